"""What plans gain over the runtime's own placements on requests they have not seen: a table over R and share hot.

Run as ``python -m placer.examples.held_out_gains TRACE --model DIR``; TRACE is anything that `placer trace import`
reads. Times come from given rates, so that the table says what routing and placement do, whatever the machine.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.answer.sampling import interval_text
from placer.baselines import BASELINES
from placer.errors import BadInputError
from placer.examples.ending import end_with
from placer.hbm import HbmLedger, ServerSettings
from placer.level import Level
from placer.model.spec import ModelSpec, read_model
from placer.output import write_text
from placer.profiler.cost import CostModel, GpuRates, Provenance, Regime, SideCost
from placer.profiler.trace.importing import check_trace_of, import_trace
from placer.profiler.trace.trace import Trace
from placer.sampling import decode_steps
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve_levels
from placer.workload import Workload

RUNNING = (1, 4, 16, 64)
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
COLD_US, COLD_ROW_US, COLD_CALL_US = 60.0, 4.0, 80.0
HOT_US, HOT_ROW_US, HOT_CALL_US = (1.5, 12.0), 0.2, 30.0
"""Microseconds of an expert, of each of its rows, and of a layer's call; of hot experts, a fast and a slow GPU."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    hot_us: float
    running: int
    share: float
    solved: Solved

    @property
    def slower_than(self) -> tuple[str, ...]:
        """Baselines that are faster beyond the interval."""
        assert self.solved.gains is not None
        return tuple(
            name for name, gain in self.solved.gains.over.items() if gain.high is not None and gain.high < 0.0
        )


def cost_model(hot_us: float) -> CostModel:
    """Straight lines: an expert with n > 0 rows costs 60 + 4 n µs cold and ``hot_us`` + 0.2 n µs hot."""

    def side(call_us: float, expert_us: float, row_us: float) -> SideCost:
        line = Regime(1, None, call_us, 0.0, expert_us, 1, row_us, (0.0,), 0.0, 1 << 20)
        return SideCost((line,), Provenance.DATASHEET)

    rates = GpuRates(1e12, 1e14, 10.0, 10.0, 0.1, Provenance.DATASHEET)
    return CostModel(side(COLD_CALL_US, COLD_US, COLD_ROW_US), side(HOT_CALL_US, hot_us, HOT_ROW_US), rates)


def cases(
    model: ModelSpec, trace: Trace, running: Sequence[int], shares: Sequence[float], hot_us: Sequence[float]
) -> Iterator[Case]:
    """Solve every case: decode steps of R running requests, this share of all experts hot, nothing else decided."""
    for each_us in hot_us:
        for requests in running:
            for share in shares:
                room = round(share * len(model.moe_layers) * model.experts)
                settings = ServerSettings(requests, requests * 1536, 1024, "bf16")
                level = Level(settings, HbmLedger(1, {"unused": 1}), room)
                request = SolveRequest(
                    Workload(1024, 512, requests), 1, max_running=requests, prefill_from="none"
                )
                solved = solve_levels(model, trace, cost_model(each_us), request, (level,))
                yield Case(each_us, requests, share, solved)


def table(found: Sequence[Case], command: str, source: str) -> str:
    """The table as Markdown, with what it shows above it."""
    fallbacks = sum(case.solved.chosen != "plan" for case in found)
    settled = sum(case.solved.convergence is not None and case.solved.convergence.converged for case in found)
    slower = [case for case in found if case.slower_than]
    figures = [
        (gain.mean, name, case)
        for case in found
        if case.solved.gains is not None
        for name, gain in case.solved.gains.over.items()
    ]
    least = min(figures, key=lambda figure: figure[0])
    lines = [
        "# Gains on held-out requests",
        "",
        f"Routing: {source}. Half of the requests are solved on, a fifth chooses between the plan and the baselines, "
        "and the table is the rest: each baseline's time per output token over the returned placement's, less one, "
        "with a 95 % bootstrap interval over requests; *none* where that holds zero.",
        "",
        f"Cost model: rates, not a machine. A layer costs {COLD_CALL_US:g} µs and {COLD_US:g} + {COLD_ROW_US:g} n µs "
        f"per cold expert with n rows on the CPU; {HOT_CALL_US:g} µs and the stated figure + {HOT_ROW_US:g} n µs per "
        "hot expert on the GPU; both run side by side.",
        "",
        f"- slower than a baseline beyond the interval: {len(slower)} of {len(found)} cases",
        f"- a baseline won on the choosing requests and was returned: {fallbacks} of {len(found)} cases",
        f"- twice the steps changed the time on the choosing requests by at most 0.2 %: {settled} of {len(found)}",
        f"- worst figure of the table: {least[0]:+.2%} against {least[1]} (R = {least[2].running}, "
        f"{least[2].share:.0%} hot)",
        "",
        f"Made by `{command}`. *steps* is how many times the first number of steps was solved on "
        f"({', '.join(f'{decode_steps(each)} at R = {each}' for each in dict.fromkeys(c.running for c in found))}).",
        "",
        f"| hot expert | R | hot | returned | steps | {' | '.join(BASELINES)} |",
        f"|---|---|---|---|---|{'---|' * len(BASELINES)}",
    ]
    for case in found:
        assert case.solved.gains is not None
        gains, steps = case.solved.gains.over, case.solved.convergence
        lines.append(
            f"| {case.hot_us:g} µs | {case.running} | {case.share:.0%} | {case.solved.chosen} | "
            f"{'' if steps is None else f'x{steps.used}'} | "
            + " | ".join(
                "returned" if name == case.solved.chosen else interval_text(gains[name]) for name in BASELINES
            )
            + " |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print a line per case to stderr and the table to stdout or a file; 1 if a case is slower than a baseline."""
    parser = argparse.ArgumentParser(prog="python -m placer.examples.held_out_gains", description=__doc__)
    parser.add_argument("trace", type=Path, help="per-token trace, or what `placer trace import` reads")
    parser.add_argument(
        "--model", type=Path, required=True, help="checkpoint directory (config.json is enough)"
    )
    parser.add_argument("--running", type=int, nargs="+", default=RUNNING, help="running requests")
    parser.add_argument("--share", type=float, nargs="+", default=SHARES, help="shares of all experts hot")
    parser.add_argument("--hot-us", type=float, nargs="+", default=HOT_US, help="µs of a hot expert")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    given = parser.parse_args(arguments)
    _check(given)
    model = read_model(given.model)
    trace = import_trace(given.trace)
    check_trace_of(trace, model)
    found = []
    for case in cases(model, trace, given.running, given.share, given.hot_us):
        found.append(case)
        print(
            f"{case.hot_us:g} µs, R {case.running}, {case.share:.0%} hot: {case.solved.chosen}, "
            f"{case.solved.seconds:.1f} s{', slower than ' + ', '.join(case.slower_than) if case.slower_than else ''}",
            file=sys.stderr,
        )
    text = table(found, _command(given), trace.header.source)
    if given.output is None:
        print(text, end="")
    else:
        write_text(given.output, text)
    return int(any(case.slower_than for case in found))


def _check(given: argparse.Namespace) -> None:
    for flag, values, most in (
        ("--running", given.running, math.inf),
        ("--share", given.share, 1.0),
        ("--hot-us", given.hot_us, math.inf),
    ):
        # Not a number is in no range.
        wrong = next((value for value in values if not 0 < value <= most or math.isinf(value)), None)
        if wrong is not None:
            limits = "" if math.isinf(most) else f" and at most {most:g}"
            raise BadInputError(f"{flag} is {wrong:g}", f"give numbers above 0{limits}")


def _command(given: argparse.Namespace) -> str:
    """The command as another machine would type it: files and folders by their own names."""
    words = ["python -m placer.examples.held_out_gains", given.trace.name, "--model", given.model.stem]
    for option, values, default in (
        ("--running", given.running, RUNNING),
        ("--share", given.share, SHARES),
        ("--hot-us", given.hot_us, HOT_US),
    ):
        if tuple(values) != default:
            words += [option, *(f"{value:g}" for value in values)]
    return " ".join(words)


if __name__ == "__main__":
    end_with(lambda: main(sys.argv[1:]))
