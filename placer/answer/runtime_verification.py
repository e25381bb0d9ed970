"""What `placer verify --kt-log` prints: the error first, then each layer with the runtime's own stages."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine, note_lines
from placer.answer.visible import all_visible
from placer.profiler.factor import UNCALIBRATED
from placer.runtime_verification import STAGES, RuntimeVerification

_MOST_ROWS = 32


def runtime_verification_answer(found: RuntimeVerification) -> RenderableType:
    """Measured against predicted, by layer and size of the call."""
    found = all_visible(found)
    errors = found.errors
    head = VerdictLine(
        f"layers as the runtime timed them, against predicted: MAPE {errors.mape:.1%}, p90 {errors.p90_error:.1%}, "
        f"bias {errors.bias:+.1%} over {errors.calls} layers and sizes"
    )
    applied = "none" if found.applied == UNCALIBRATED else str(found.applied)
    facts = [
        f"{sum(each.calls for each in found.layers):,} calls of {found.log}; medians against means of replayed steps",
        f"calibration in the prediction: {applied}",
    ]
    table = _table("milliseconds of a layer", "calls", "measured", "predicted", "error", "hot", "cold")
    stages = _table("stages of the measured call, milliseconds", *(name for name, _ in STAGES))
    for each in found.layers[:_MOST_ROWS]:
        key = (str(each.layer), each.kind, f"{each.tokens:,}")
        table.add_row(
            *key,
            f"{each.calls:,}",
            _ms(each.measured_us),
            _ms(each.predicted_us),
            f"{each.error:+.1%}",
            _ms(each.hot_us),
            _ms(each.cold_us),
        )
        stages.add_row(*key, *(_ms(each.stages_us[name]) for name, _ in STAGES))
    legend = Text(
        "hot, cold: predicted; submit to merge follow each other in the measured call. Where the cold side ends "
        "last, gpu is the hot side's time, and mask to merge together are the cold side's and the copy back.",
        style="dim",
    )
    rest = len(found.layers) - _MOST_ROWS
    more = [Text(f"and {rest} more", style="dim")] if rest > 0 else []
    notes = note_lines(found.notes)
    return Group(
        head,
        *[Text(fact) for fact in facts],
        Text(""),
        table,
        Text(""),
        stages,
        *more,
        Text(""),
        legend,
        *notes,
    )


def _table(title: str, *headers: str) -> Table:
    """A table of layers and sizes; its columns of figures are never narrower than what they hold."""
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    for header in ("layer", "kind", "tokens", *headers):
        table.add_column(header, justify="left" if header == "kind" else "right", no_wrap=True)
    return table


def _ms(us: float) -> str:
    return f"{us / 1e3:,.3f}"
