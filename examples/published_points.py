"""Public measured points beside what placer predicts from datasheets alone: the tables of docs/published.md.

Run as ``python -m placer.examples.published_points``; it prints Markdown and takes some seconds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placer.examples.ending import end_with
from placer.examples.published_point import (
    LAST_SEEN,
    STRATEGIES,
    PublishedPoint,
    published_points,
    published_strategies,
)
from placer.examples.published_prediction import gains, predicted, predicted_strategies

_UNITS = {
    "decode_tokens_per_s": "tokens/s of one client",
    "output_tokens_per_s": "tokens/s of all",
    "tpot_ms": "ms per token",
    "step_ms": "ms per step",
}
PAIRS = (
    (2, 3, "4 GPUs for 2"),
    (3, 4, "8 GPUs for 4"),
    (28, 29, "8 GPUs for 4"),
    (13, 14, "2 GPUs for 1"),
    (21, 22, "2 GPUs for 1, and 64 hot experts of 256 for 32"),
    (23, 24, "2 GPUs for 1, and 32 hot experts of 256 for 16"),
    (15, 16, "2 sockets for 1"),
    (32, 33, "2 hot experts of 384 for none"),
    (33, 34, "45 hot experts of 384 for 2, and another GPU"),
)
"""Points that differ by one change, by their numbers, and that change."""
Strategies = Mapping[int, Mapping[str, float]]
"""Tokens per second by per cent of hot experts and strategy."""


@dataclass(frozen=True)
class Compared:
    """A point and its prediction, in the point's unit."""

    point: PublishedPoint
    predicted: float

    @property
    def speed(self) -> float:
        """Predicted speed over measured speed: above 1, the server is slower than predicted."""
        ratio = self.predicted / self.point.measured
        return 1.0 / ratio if self.point.kind.endswith("_ms") else ratio


def compared_points(points: Iterable[PublishedPoint]) -> list[Compared]:
    """Every point with its prediction."""
    return [Compared(point, predicted(point)) for point in points]


def error(found: Sequence[Compared]) -> float:
    """Mean factor by which predictions are off, less one."""
    return math.exp(sum(abs(math.log(each.speed)) for each in found) / len(found)) - 1.0


def points_table(found: Sequence[Compared]) -> str:
    """The points as Markdown."""
    lines = [
        "| # | model | GPUs | CPU, method | hot per layer | clients | prompt + output | measured | predicted "
        "| speed predicted / measured | source |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        point = each.point
        cpu = f"{point.cpu}, {point.method}, {point.threads} threads" if point.cpu else "—"
        cells = (
            point.number,
            f"{point.model} ({point.weights})",
            f"{point.tp} x {point.gpu}",
            cpu,
            point.hot if point.cpu else "all",
            point.running if point.requests is None else f"{point.running} of {point.requests}",
            f"{point.prompt_tokens} + {point.output_tokens}",
            f"{point.measured:g} {_UNITS[point.kind]}",
            f"{each.predicted:.0f}" if each.predicted >= 100 else f"{each.predicted:.3g}",
            f"{each.speed:.2f}",
            f"{point.source}; {point.note}",
        )
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines)


def pair_gains(found: Sequence[Compared]) -> dict[tuple[int, int], tuple[float, float]]:
    """What the second point of each of `PAIRS` gains over the first, as a fraction: predicted, and measured."""
    by_number = {each.point.number: each for each in found}
    gained = {}
    for first, second, _ in PAIRS:
        slow, fast = by_number[first], by_number[second]
        gained[first, second] = (
            fast.predicted / slow.predicted - 1,
            fast.point.measured / slow.point.measured - 1,
        )
    return gained


def gains_table(found: Sequence[Compared]) -> str:
    """`pair_gains` as Markdown."""
    lines = ["| points | model | what changes | predicted / measured |", "|---" * 4 + "|"]
    models = {each.point.number: each.point.model for each in found}
    gained = pair_gains(found)
    for first, second, change in PAIRS:
        here, there = gained[first, second]
        lines.append(
            f"| {first} to {second} | {models[first]} | {change} | {100 * here:+.1f} / {100 * there:+.1f} |"
        )
    return "\n".join(lines)


def strategies_table(measured: Strategies, found: Strategies) -> str:
    """kt-kernel's table as Markdown, predicted / measured, and what frequency gains over each strategy."""
    others = [name for name in STRATEGIES if name != "frequency"]
    lines = [
        f"| hot | {' | '.join(STRATEGIES)} | {' | '.join(f'frequency over {name}' for name in others)} |",
        "|---" * (1 + len(STRATEGIES) + len(others)) + "|",
    ]
    for percent, row in found.items():
        speeds = [f"{row[name]:.1f} / {measured[percent][name]:.1f}" for name in STRATEGIES]
        here, there = gains(row), gains(measured[percent])
        gained = [f"{100 * here[name]:+.1f} / {100 * there[name]:+.1f}" for name in others]
        lines.append(f"| {percent}% | {' | '.join([*speeds, *gained])} |")
    return "\n".join(lines)


def worst_gain_error(measured: Strategies, found: Strategies) -> float:
    """Largest difference between a predicted and a measured gain of frequency, in percentage points."""
    return max(
        100 * abs(gain - gains(measured[percent])[name])
        for percent, row in found.items()
        for name, gain in gains(row).items()
    )


def strategies_error(measured: Strategies, found: Strategies) -> float:
    """Mean factor by which the tokens per second of a cell are off, less one."""
    logs = [
        abs(math.log(row[name] / measured[percent][name])) for percent, row in found.items() for name in row
    ]
    return math.exp(sum(logs) / len(logs)) - 1.0


def document() -> str:
    """Both tables and their figures as Markdown."""
    measured = published_strategies()
    found = predicted_strategies(tuple(measured))
    points = compared_points(published_points())
    blind = [each for each in points if each.point.blind]
    odd = [each for each in points if each.point.tuned]
    even = [each for each in points if not each.point.tuned and not each.point.blind]
    return "\n".join(
        (
            "## Strategies",
            "",
            f"Off by {strategies_error(measured, found):.1%} on average; gains of frequency by at most "
            f"{worst_gain_error(measured, found):.1f} percentage points.",
            "",
            strategies_table(measured, found),
            "",
            "## Points",
            "",
            f"Odd points, on which factors were tuned: off by {error(odd):.0%} on average. Even ones, which only "
            f"check: {error(even):.0%}. Those from {LAST_SEEN + 1} on, which were predicted blind: {error(blind):.0%}.",
            "",
            points_table(points),
            "",
            "## Gains",
            "",
            "What one change brings, in per cent of tokens per second.",
            "",
            gains_table(points),
        )
    )


def main() -> int:
    """Print the document."""
    print(document())
    return 0


if __name__ == "__main__":
    end_with(main)
