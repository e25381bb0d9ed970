"""What `placer solve` prints of the plan beside the baselines."""

from rich.table import Table
from rich.text import Text

from placer.answer.sampling import gain_text
from placer.placement import PlacementDocument
from placer.predicted_sections import Figures
from placer.units import duration, figure, percent, signed_percent


def baseline_table(document: PlacementDocument) -> Table:
    """The plan beside the baselines; how much slower they are is of requests with an interval, else of tokens/s."""
    table = Table(
        title="same bytes, other placements (predicted on held-out requests)",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    gains = document.heldout.gains or {}
    slower = "time per token (95 %)" if gains else "slower by"
    for header in ("placement", "decode step", "tokens/s", "cold", slower):
        table.add_column(header, justify="left" if header == "placement" else "right", no_wrap=True)
    plan = document.predicted
    rows: list[tuple[str, Figures]] = [("this plan", plan), *document.baselines.items()]
    for name, figures in rows:
        rate = figures.output_tokens_per_s
        if name == document.heldout.chosen:
            over = "returned"
        elif gains or name == "this plan":
            over = gain_text(gains.get(name))
        else:
            over = signed_percent(plan.output_tokens_per_s / rate - 1.0) if rate else ""
        table.add_row(
            name,
            duration(1e3 * figures.decode_step_ms),
            figure(rate, 1),
            percent(figures.cold_share),
            over,
        )
    return table


def baseline_remark(document: PlacementDocument) -> Text:
    """Which baseline the runtime uses by default, and why one that decodes faster can serve fewer tokens/s."""
    plan, said = document.predicted, "uniform is the runtime's default"
    faster = [
        name
        for name, figures in document.baselines.items()
        if figures.decode_step_ms < plan.decode_step_ms
        and figures.output_tokens_per_s < plan.output_tokens_per_s
        and name != document.heldout.chosen
    ]
    if faster:
        one = len(faster) == 1
        said += (
            "; a decode step leaves prompts (prefill) out, and tokens/s count them: so "
            f"{', '.join(faster)} decode{'s' if one else ''} faster and serve{'s' if one else ''} fewer tokens/s"
        )
    return Text(said)
