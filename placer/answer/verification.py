"""What `placer verify` prints: the error first, then the layer-steps that were predicted worst."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.verification import Verification

SHOWN = 5


def verification_answer(verification: Verification) -> RenderableType:
    """Measured against predicted, in total and for the worst layer-steps."""
    errors, medians = verification.errors, verification.median_errors
    head = Text(
        f"cold side, measured against predicted: MAPE {errors.mape:.1%}, p90 {errors.p90_error:.1%}, bias "
        f"{errors.bias:+.1%} over {errors.calls} layer-steps of held-out requests",
        style="bold",
    )
    facts = [
        f"a layer-step takes {verification.measured_us / 1e3:,.3f} ms measured (lower quartile of "
        f"{verification.repeats} repeats), {verification.predicted_us / 1e3:,.3f} ms predicted",
        f"against the median: MAPE {medians.mape:.1%}, p90 {medians.p90_error:.1%}, bias {medians.bias:+.1%}",
        f"{verification.kernel}; {verification.running} running requests",
    ]
    if verification.approximate:
        facts.append(f"routing: {verification.approximate}")
    worst = Table(title="predicted worst", title_justify="left", title_style="", box=None, pad_edge=False)
    for header in ("layer", "step", "cold experts", "rows", "measured", "predicted", "error"):
        worst.add_column(header, justify="right")
    for each in verification.worst()[:SHOWN]:
        worst.add_row(
            str(verification.layers[each.layer_step.layer]),
            str(each.layer_step.step),
            str(len(each.layer_step.rows)),
            str(sum(each.layer_step.rows)),
            f"{each.p25_us / 1e3:,.3f} ms",
            f"{each.predicted_us / 1e3:,.3f} ms",
            f"{each.error:+.1%}",
        )
    warnings = (
        [Text(f"warning: {verification.quiet_warning}", style="yellow")] if verification.quiet_warning else []
    )
    notes = [Text(f"note: {note}", style="dim") for note in verification.notes]
    return Group(head, *[Text(fact) for fact in facts], Text(""), worst, *warnings, *notes)
