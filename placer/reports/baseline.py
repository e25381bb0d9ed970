"""The plan beside the placements that people run today, on the same bytes."""

from dataclasses import dataclass

from placer.answer.sampling import gain_text
from placer.open_loop import ttft_without_value
from placer.placement import PlacementDocument
from placer.predicted_sections import Figures
from placer.reports.absent import Absent
from placer.units import duration, figure, percent, signed_percent

PLAN = "this plan"


@dataclass(frozen=True)
class PlacementRow:
    """One placement's figures in words.

    ``throughput_gain`` and ``gain``, which is in time per token with its 95 % interval, are the plan's over it; ""
    where unknown.
    """

    name: str
    decode_step: str
    tpot_p95: str
    ttft_p95: str
    output_tokens_per_s: str
    throughput_gain: str
    cold_share: str
    gain: str


def placement_rows(document: PlacementDocument) -> tuple[PlacementRow, ...] | Absent:
    """The plan first, then the baselines as the placement lists them."""
    if not document.baselines:
        return Absent(
            "without a trace no expert is known to be hotter than another, so there is nothing to compare",
            "record a trace and solve with it",
        )
    if document.every_expert_hot:
        return Absent(
            "every expert is hot, so every other placement on these bytes is the same",
            "solve with a smaller --hbm-budget to see where hot experts begin to matter",
        )
    gains = document.heldout.gains or {}
    plan, without = document.predicted, ttft_without_value(document)
    return (
        _row(PLAN, plan, "", "", without),
        *(
            _row(
                name,
                figures,
                signed_percent(plan.output_tokens_per_s / figures.output_tokens_per_s - 1.0)
                if figures.output_tokens_per_s
                else "unknown",
                "returned" if name == document.heldout.chosen else gain_text(gains.get(name)),
                without,
            )
            for name, figures in document.baselines.items()
        ),
    )


def _row(name: str, figures: Figures, throughput_gain: str, gain: str, without: str) -> PlacementRow:
    """``without`` stands for a TTFT that has no value."""
    tpot, ttft = figures.tpot_ms.p95, figures.ttft_ms.p95
    return PlacementRow(
        name=name,
        decode_step=duration(1e3 * figures.decode_step_ms),
        tpot_p95="unknown" if tpot is None else duration(1e3 * tpot, 3),
        ttft_p95=without if ttft is None else duration(1e3 * ttft, 3),
        output_tokens_per_s=figure(figures.output_tokens_per_s, 1),
        throughput_gain=throughput_gain,
        cold_share=percent(figures.cold_share),
        gain=gain,
    )
