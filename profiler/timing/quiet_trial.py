"""How often the check for a quiet machine raises its alarm: short campaigns, alone and beside a busy program.

``python -m placer.profiler.timing.quiet_trial [--cpu-kernel K] [--threads N] [--runs R]`` prints both rates, at
Qwen3-30B-A3B's shapes. On a machine where nothing else runs at most one of ten campaigns should raise an alarm,
and beside a program that burns a core at least nine.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from placer.kernels.backends import CPU_BACKENDS, choose_cpu_backend
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import Call, Role, least_tokens
from placer.profiler.timing.campaign import time_campaign
from placer.profiler.timing.spec import CampaignSpec
from placer.units import counted

SHAPE = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=128, top_k=8)
"""Qwen3-30B-A3B's."""
ROWS = (1, 2, 4)
"""Rows of the calls, eight experts each; the anchor, whose movement is judged, is the middle one."""
SECONDS = 30.0
"""Wall time that a campaign may take; a few are enough."""


@dataclass(frozen=True)
class QuietTrial:
    """What campaigns said about the machine: a sentence, or None for quiet, of each of them."""

    alone: tuple[str | None, ...]
    beside_burner: tuple[str | None, ...]

    @property
    def false_alarms(self) -> int:
        """Campaigns alone on the machine that called it not quiet."""
        return sum(warning is not None for warning in self.alone)

    @property
    def alarms(self) -> int:
        """Campaigns beside a busy program that called the machine not quiet."""
        return sum(warning is not None for warning in self.beside_burner)


def trial_spec(
    backend: str, threads: int, *, seed: int, shape: ExpertShape = SHAPE, resident_bytes: int | None = None
) -> CampaignSpec:
    """The shortest campaign that carries the check: fifteen rounds of three calls and the anchor."""
    rows = [(m,) * min(8, shape.experts) for m in ROWS]
    return CampaignSpec(
        device="cpu",
        backend=backend,
        threads=threads,
        subpools=1,
        shape=shape,
        seed=seed,
        max_seconds=SECONDS,
        rounds=15,
        min_rounds=9,
        extra_calls=tuple(Call(each, least_tokens(each, shape.top_k), Role.GRID, "rows") for each in rows),
        only_extra=True,
        resident_bytes=resident_bytes,
    )


def quiet_trial(
    backend: str,
    threads: int,
    runs: int,
    *,
    shape: ExpertShape = SHAPE,
    resident_bytes: int | None = None,
) -> QuietTrial:
    """Run ``runs`` campaigns alone and as many beside a burner, in turns; raises what `time_campaign` raises."""
    alone: list[str | None] = []
    beside: list[str | None] = []
    for seed in range(runs):
        spec = trial_spec(backend, threads, seed=seed, shape=shape, resident_bytes=resident_bytes)
        alone.append(time_campaign(spec).quiet_warning())
        with burner():
            beside.append(time_campaign(spec).quiet_warning())
    return QuietTrial(tuple(alone), tuple(beside))


@contextmanager
def burner() -> Iterator[None]:
    """A process that keeps one core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def main(arguments: list[str]) -> int:
    """Print both rates; 0 when they are as they should be, 1 when not."""
    parser = argparse.ArgumentParser(prog="quiet_trial", description=__doc__.splitlines()[0])
    parser.add_argument("--cpu-kernel", default="torch", choices=[backend.name for backend in CPU_BACKENDS])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args(arguments)
    backend, _ = choose_cpu_backend(given.cpu_kernel, SHAPE, given.threads)
    found = quiet_trial(backend.name, given.threads, given.runs)
    for warning in (*found.alone, *found.beside_burner):
        print(warning or "quiet")
    print(
        f"{backend.name}, {counted(given.threads, 'thread')}: alone {found.false_alarms} of {given.runs} said "
        f"not quiet, beside a busy program {found.alarms} of {given.runs}"
    )
    return 0 if found.false_alarms <= 0.1 * given.runs and found.alarms >= 0.9 * given.runs else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
