"""The plan and the baselines on a trace that was given."""

from dataclasses import dataclass

from placer.answer.sampling import interval_text
from placer.evaluation import Evaluation
from placer.reports.absent import Absent
from placer.units import counted, duration, percent

NO_TRACE = Absent(
    "no trace was given", "the plan is scored on the trace of --trace T, with --model DIR and --profile P"
)


@dataclass(frozen=True)
class TraceScore:
    """The verdict on the trace, a row of words for each placement (the first is the plan), and what they assume.

    ``rows`` hold: placement, MoE time of a decode step, time per output token, gain of the plan with its 95 %
    interval, coverage.
    """

    verdict: str
    rows: tuple[tuple[str, str, str, str, str], ...]
    notes: tuple[str, ...]


def trace_score(evaluation: Evaluation | None) -> TraceScore | Absent:
    """``evaluation`` in words."""
    if evaluation is None:
        return NO_TRACE
    gains = evaluation.gains
    unknown = () if gains.no_interval is None else (f"no interval: {gains.no_interval}",)
    steps = (
        f"{evaluation.steps:,} decode steps of {counted(evaluation.running_requests, 'running request')} "
        f"({counted(evaluation.concurrency, 'client')})"
    )
    return TraceScore(
        evaluation.verdict,
        tuple(
            (
                "this plan" if name == "plan" else name,
                duration(time_us),
                duration(evaluation.output_token_us[name]),
                interval_text(gains.over[name]) if name in gains.over else "",
                percent(evaluation.coverage[name]),
            )
            for name, time_us in evaluation.step_us.items()
        ),
        (steps, *unknown, *evaluation.notes),
    )
