"""What `placer verify` prints: the error first, then by step and regime, then what was predicted worst."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import InFull, Usually, VerdictLine, note_lines
from placer.units import duration
from placer.verification import PartErrors, Verification

SHOWN = 5


def verification_answer(verification: Verification) -> RenderableType:
    """Measured against predicted, in total, by kind of step, by regime and for the worst layer-steps."""
    overall, medians = verification.overall, verification.median_errors
    errors, net = overall.errors, overall.net_errors
    head = VerdictLine(
        f"cold side, measured against predicted: MAPE {errors.mape:.1%}, p90 {errors.p90_error:.1%}, bias "
        f"{errors.bias:+.1%} over {errors.calls} layer-steps of held-out requests"
    )
    facts = [
        f"a layer-step takes {duration(overall.measured_us)} measured (lower quartile of "
        f"{verification.repeats} repeats), {duration(overall.predicted_us)} predicted",
        f"against the median: MAPE {medians.mape:.1%}, p90 {medians.p90_error:.1%}, bias {medians.bias:+.1%}",
    ]
    if verification.drift is not None:
        facts.append(
            f"the machine's times changed by {verification.drift:+.1%} since it was profiled; net of that: MAPE "
            f"{net.mape:.1%}, p90 {net.p90_error:.1%}, bias {net.bias:+.1%}"
        )
    facts.append(verification.kernel)
    if verification.approximate:
        facts.append(f"routing: {verification.approximate}")
    warnings = [
        f"warning: {text}" for text in (verification.drift_advice, verification.quiet_warning) if text
    ]
    notes = note_lines(verification.notes)
    return Group(
        head,
        *[Text(fact) for fact in facts],
        *[Text(warning, style="yellow") for warning in warnings],
        Text(""),
        _parts(verification),
        Text(""),
        Usually(_worst(verification, SHOWN)),
        InFull(_worst(verification, None)),
        *notes,
        VerdictLine(verification.judgement),
    )


def _parts(verification: Verification) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for header in ("layer-steps", "measured", "predicted", "MAPE", "p90", "bias", "drift", "net MAPE"):
        table.add_column(header, justify="right")

    def add(part: PartErrors, drift: str) -> None:
        table.add_row(
            part.name,
            str(part.errors.calls),
            duration(part.measured_us),
            duration(part.predicted_us),
            f"{part.errors.mape:.1%}",
            f"{part.errors.p90_error:.1%}",
            f"{part.errors.bias:+.1%}",
            drift,
            f"{part.net_errors.mape:.1%}",
        )

    for part in verification.by_step().values():
        add(part, "")
    for drift, within in verification.by_regime():
        if within is not None:
            add(within, f"{drift.drift:+.1%}" if drift.anchors else "unknown")
    return table


def _worst(verification: Verification, most: int | None) -> Table:
    table = Table(title="predicted worst", title_justify="left", title_style="", box=None, pad_edge=False)
    for header in ("layer", "tokens", "step", "cold experts", "rows", "measured", "predicted", "error"):
        table.add_column(header, justify="right")
    for each in verification.worst()[:most]:
        table.add_row(
            str(verification.layers[each.layer_step.layer]),
            str(each.layer_step.tokens),
            str(each.layer_step.step),
            str(len(each.layer_step.rows)),
            str(sum(each.layer_step.rows)),
            duration(each.p25_us),
            duration(each.predicted_us),
            f"{each.error:+.1%}",
        )
    return table
