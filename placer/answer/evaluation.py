"""What `placer evaluate` prints."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine, note_lines
from placer.answer.sampling import interval_text
from placer.answer.visible import all_visible, short_name
from placer.evaluation import Evaluation
from placer.units import counted, duration, percent


def evaluation_answer(evaluation: Evaluation) -> RenderableType:
    """What `placer evaluate` prints."""
    evaluation = all_visible(evaluation)
    table = Table(box=None, pad_edge=False)
    headers = (
        "placement",
        "decode step's MoE time",
        "per output token",
        "gain of the plan (95 %)",
        "coverage",
    )
    for header in headers:
        table.add_column(header, justify="left" if header == "placement" else "right")
    for name, time_us in evaluation.step_us.items():
        table.add_row(
            name,
            duration(time_us),
            duration(evaluation.output_token_us[name]),
            interval_text(evaluation.gains.over[name]) if name in evaluation.gains.over else "",
            percent(evaluation.coverage[name]),
        )
    table.add_row("uniform null", "", "", "", percent(evaluation.coverage["uniform_null"]))
    steps = Text(
        f"{evaluation.steps:,} decode steps of {counted(evaluation.running_requests, 'running request')} "
        f"({counted(evaluation.concurrency, 'client')})",
        style="dim",
    )
    parts: list[RenderableType] = [VerdictLine(evaluation.verdict), Text(""), table, steps]
    if evaluation.gains.no_interval is not None:
        parts.append(Text(f"no interval: {evaluation.gains.no_interval}"))
    if evaluation.dynamic is not None:
        # Its shares of selections are of other steps than the coverage above.
        parts.append(
            Text(f"on output tokens of steps that follow each other: {evaluation.dynamic['verdict']}")
        )
    if evaluation.domains:
        domains = Table(title="by domain", title_justify="left", box=None, pad_edge=False)
        for header in ("domain", "plan", "frequency", "uniform", "plan's coverage"):
            domains.add_column(header, justify="left" if header == "domain" else "right")
        for name, tables in evaluation.domains.items():
            times = tables["step_us"]
            domains.add_row(
                short_name(name),
                *(duration(times[key]) for key in ("plan", "frequency", "uniform")),
                percent(tables["coverage"]["plan"]),
            )
        parts += [Text(""), domains]
    parts += note_lines(evaluation.notes)
    return Group(*parts)
