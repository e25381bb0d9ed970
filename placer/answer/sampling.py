"""What `placer solve` prints of sampling error: steps, gains that are none, and every domain beside the worst."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.visible import short_name
from placer.interval import Interval
from placer.placement import PlacementDocument
from placer.sampling_sections import GainSection, RobustSection, StepsSection
from placer.units import duration, gap_percent, percent, signed_percent


def gain_text(gain: GainSection | None) -> str:
    """A gain over a baseline as `interval_text` writes it; nothing for the plan itself."""
    return "" if gain is None else interval_text(Interval(gain.mean, gain.low, gain.high))


def interval_text(gain: Interval) -> str:
    """A gain with its interval, or "none" where that holds zero."""
    if gain.low is None or gain.high is None:
        return f"{signed_percent(gain.mean)} (unknown)"
    between = f"({signed_percent(gain.low)} to {signed_percent(gain.high)})"
    return f"{signed_percent(gain.mean) if gain.excludes_zero else 'none'} {between}"


def sampling_lines(document: PlacementDocument) -> list[RenderableType]:
    """How sure the gains are, on how many steps the plan was solved, and the worst domain."""
    parts: list[RenderableType] = []
    if document.heldout.gains:
        parts.append(Text(_gain_line(document)))
    if document.heldout.steps is not None:
        parts.append(Text(_steps_line(document.heldout.steps)))
    if document.mix:
        shares = ", ".join(f"{short_name(name)} {percent(share)}" for name, share in document.mix.items())
        parts.append(Text(f"mix of the tokens: {shares}"))
    if document.robust is not None:
        parts += [Text(""), _domain_table(document.robust), Text(_robust_line(document.robust))]
    return [*parts, Text("")] if parts or document.baselines else parts


def _gain_line(document: PlacementDocument) -> str:
    held = document.heldout
    gains = held.gains or {}
    if any(gain.distinct is None for gain in gains.values()):
        return f"no interval: {document.null_reasons.get('heldout.gains', 'not stated')}"
    same = [name for name, gain in gains.items() if not gain.distinct and name != held.chosen]
    over = f"intervals: bootstrap over {held.requests:,} reported requests" if held.requests else "intervals"
    lost = [name for name, gain in gains.items() if gain.distinct and gain.mean < 0 and name != held.chosen]
    said = [over]
    if lost:
        price = ": the price of the worst domain" if document.robust is not None else ""
        said.append(f"slower than {', '.join(lost)} beyond sampling error{price}")
    if same:
        said.append(f"no gain and no loss is proven against {', '.join(same)}")
    elif not lost:
        said.append("every gain is more than sampling error")
    return "; ".join(said)


def _steps_line(steps: StepsSection) -> str:
    tried = list(zip(steps.decode_steps, steps.choosing_us, strict=True))
    if len(tried) < 2:
        return f"solved on {steps.used:,} decode steps; whether more would change the plan was not tested"
    (_, before), (last, after) = tried[-2:]
    moved = signed_percent(after / before - 1.0)
    how = "converged" if steps.converged else "not converged: record more requests"
    return (
        f"solved on {steps.used:,} decode steps; {last:,} change the time per token on the choosing requests "
        f"by {moved}: {how}"
    )


def _domain_table(robust: RobustSection) -> Table:
    table = Table(
        title="by domain, time per output token on held-out requests",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for header in ("domain", "this plan", "plan for all", "frequency", "its own plan", "regret", ""):
        table.add_column(header, justify="left" if header in ("domain", "") else "right")
    for name, each in robust.domains.items():
        table.add_row(
            short_name(name, 28),
            *(duration(value) for value in (each.plan_us, each.mix_us, each.frequency_us, each.own_us)),
            signed_percent(each.regret),
            "<- worst" if name == robust.worst else "",
        )
    return table


def _robust_line(robust: RobustSection) -> str:
    if robust.criterion == "time":
        value, bound = f"{duration(robust.value)} per output token", duration(robust.bound)
    else:
        value, bound = f"{robust.value:.3f} times its own plan's", f"{robust.bound:.3f}"
    left_out = "; left out: " + ", ".join(map(short_name, robust.left_out)) if robust.left_out else ""
    return (
        f"worst domain on the solving steps: {value}; at these settings no plan is below {bound} "
        f"(gap {gap_percent(robust.gap)}; the solver's own gap is that of the domains together){left_out}"
    )
