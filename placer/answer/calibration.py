"""What `placer calibrate` prints: how far off predictions were, figure by figure, and the factors that correct them."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import InFull, Usually, VerdictLine, note_lines
from placer.answer.visible import all_visible, visible
from placer.calibrating import Calibrated
from placer.profiler.calibration import CalibratedFigure, Calibration, CalibrationSource
from placer.profiler.factor import FACTOR_MEANING, FactorName
from placer.units import duration, rounded

_MOST_ROWS = 24


def calibration_answer(result: Calibrated, destination: str) -> RenderableType:
    """Measured against predicted, before and after, and what every factor rests on."""
    calibration = all_visible(result.calibration)
    parts: list[RenderableType] = [
        VerdictLine(_verdict(calibration)),
        *[VerdictLine(each) for each in calibration.warnings],
        Text(f"  server: {calibration.placement}; routing: {calibration.trace}"),
        Text("  " + "; ".join(_source(each) for each in calibration.sources)),
        Text(""),
        Usually(_figure_table(calibration.figures[:_MOST_ROWS], len(calibration.figures))),
        InFull(_figure_table(calibration.figures, len(calibration.figures))),
        Text(""),
        _factor_table(calibration),
        Text(""),
    ]
    if calibration.alternatives:
        others = " or ".join(f"({each})" for each in calibration.alternatives)
        parts.append(
            Text(
                f"the same figures would be explained as well by {others}: more figures (other numbers of clients, "
                "a timing log) tell them apart; --factors chooses"
            )
        )
    if result.replaced is not None:
        parts.append(Text(f"replaced, not multiplied: {visible(result.replaced.sentence)}"))
    parts += note_lines(each for each in calibration.distrust if each not in calibration.warnings)
    parts.append(Text(f"{visible(destination)}: {_use(calibration)}"))
    return Group(*parts)


def _use(calibration: Calibration) -> str:
    """What the written profile does."""
    if not calibration.factors.changed:
        return "written, but no factor changed: every prediction stays as it was"
    applied = "solve, evaluate and trace compare now apply these factors, and say so"
    if calibration.warnings:
        return f"{applied}; with the warnings above, prefer the profile without them until they are cleared"
    return applied


def _source(source: CalibrationSource) -> str:
    what = "calls" if "log" in source.written_by else "requests"
    return f"{source.name}: {source.samples:,} {what} of {source.written_by}"


def _verdict(calibration: Calibration) -> str:
    first = calibration.figures[0]
    return (
        f"predicted {first.name} {_amount(first.before, first.unit)}, measured {_amount(first.measured, first.unit)} "
        f"({first.error_before:+.1%}); calibrated: {calibration.factors}; mean error {calibration.error_before:.1%} "
        f"before, {calibration.error_after:.1%} after (geometric mean: twice and half count alike)"
    )


def _figure_table(figures: Sequence[CalibratedFigure], total: int) -> Table:
    table = Table(
        title="measured against predicted", title_justify="left", title_style="", box=None, pad_edge=False
    )
    table.add_column("figure")
    for header in ("measured", "predicted", "error", "calibrated", "error"):
        table.add_column(header, justify="right")
    table.add_column("")
    for each in figures:
        table.add_row(
            each.name,
            _amount(each.measured, each.unit),
            _amount(each.before, each.unit),
            f"{each.error_before:+.1%}",
            _amount(each.after, each.unit),
            f"{each.error_after:+.1%}",
            "" if each.fitted else "check",
        )
    if total > len(figures):
        table.add_row(f"and {total - len(figures)} more (-v)", *[""] * 6)
    return table


def _factor_table(calibration: Calibration) -> Table:
    table = Table(title="factors", title_justify="left", title_style="", box=None, pad_edge=False)
    table.add_column("factor", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("of")
    table.add_column("why")
    for name in FactorName:
        value = calibration.factors.value(name)
        table.add_row(
            name.value,
            duration(value, 3) if name is FactorName.STEP else f"×{value:.3f}",
            FACTOR_MEANING[name],
            calibration.reasons[name.value],
        )
    return table


def _amount(value: float, unit: str) -> str:
    return duration(value) if unit == "us" else f"{rounded(value, 4)} {unit}"
