"""A placement against the runtime's own strategies on any trace, at the same bytes."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from placer.baselines import BASELINES
from placer.dynamic_document import dynamic_section
from placer.gain import Gains, gains
from placer.hot_bounds import hot_bounds
from placer.interval import Interval
from placer.level_cost import LevelCosts
from placer.matching import check_matching, profile_notes
from placer.model.spec import ModelSpec
from placer.open_loop import open_loop_sentence
from placer.placement import PlacementDocument
from placer.planned_level import planned_behaviour, planned_level, planned_prefill_from, planned_workload
from placer.profiler.cost import CostModel
from placer.profiler.profile import Profile
from placer.profiler.trace.mix import check_mix, mixed
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.split import split_requests, tokens_where
from placer.profiler.trace.trace import Phase, TokenTrace, Trace
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, SPLIT_SHARES, Replays
from placer.solvers.problem import Mask

_WORTH = 0.01


@dataclass(frozen=True)
class Evaluation:
    """Mean MoE time of a decode step and coverage, by placement.

    Attributes
    ----------
    concurrency
        Clients of the plan's workload.
    running_requests
        Requests of every decode step that was scored: the plan's running requests, fewer than the clients
        where some wait for a slot.
    step_us
        Microseconds by placement name ("plan" and the baselines).
    output_token_us
        Microseconds per output token at full load, prompts included, by the same names: what a solve minimises.
    coverage
        Share of selections that hot experts serve, by the same names, and "uniform_null".
    domains
        By domain name: the same two tables for the plan and the baselines.
    gains
        What the plan gains over each baseline per output token, with intervals over the reported requests.
    dynamic
        The plan beside moving hot sets, as in a placement's section of that name; None for the reason in
        ``null_reasons``.
    notes
        What the replayed steps assume.
    null_reasons
        Why a figure is not stated, by its path.
    """

    steps: int
    concurrency: int
    running_requests: int
    step_us: dict[str, float]
    output_token_us: dict[str, float]
    coverage: dict[str, float]
    verdict: str
    domains: dict[str, dict[str, dict[str, float]]]
    gains: Gains
    dynamic: dict[str, Any] | None
    notes: tuple[str, ...]
    null_reasons: dict[str, str]

    def document(self) -> dict[str, Any]:
        """The ``evaluate --json`` document."""
        return {
            "steps": self.steps,
            "concurrency": self.concurrency,
            "running_requests": self.running_requests,
            "step_us": self.step_us,
            "output_token_us": self.output_token_us,
            "coverage": self.coverage,
            "verdict": self.verdict,
            "domains": self.domains,
            "requests": self.gains.requests,
            "gains": {name: asdict(gain) for name, gain in self.gains.over.items()},
            "dynamic": self.dynamic,
            "notes": list(self.notes),
            "null_reasons": self.null_reasons,
        }


def evaluate(
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    *,
    mix: Mapping[str, float] = {},
    seed: int = 0,
) -> Evaluation:
    """Score ``placement`` on the reporting requests of ``trace``.

    The baselines rank experts by the trace's requests that a solve would be made on, as a user who recorded this
    traffic would; all placements hold the same number of hot experts. ``mix`` weighs the domains of
    the trace by shares of the tokens.

    Raises
    ------
    BadInputError
        When trace, profile or placement belong to another model, or the trace lacks a domain of ``mix``.
    """
    check_matching(placement, model, profile, trace)
    if mix:
        check_mix(trace, mix, requests=len(SPLIT_SHARES))
    parts = split_requests(trace, SPLIT_SHARES, seed=seed)
    solving, reporting = (mixed(part, mix, seed) for part in (parts[0], parts[2]))
    hot = placement.hot_mask()
    counts = selection_counts(solving)
    limits = hot_bounds(model, placement.pins, least=placement.least_hot, most=placement.most_hot)
    masks: dict[str, Mask] = {
        "plan": hot,
        **{name: limits.baseline(place, counts, int(hot.sum())) for name, place in BASELINES.items()},
    }
    scores = _score(masks, placement, model, reporting, profile, seed)
    by_domain = {
        name: _score(masks, placement, model, part, profile, seed)
        for name, part in _by_domain(reporting).items()
    }
    null = float(hot.mean())
    gained = gains(
        hot,
        {name: mask for name, mask in masks.items() if name != "plan"},
        parts[2],
        scores.costs,
        model=model,
        cost=_cost(placement, profile),
        level=planned_level(placement),
        workload=planned_workload(placement),
        tp=placement.tp,
        prefill_from=planned_prefill_from(placement),
        seed=seed,
        mix=mix,
    )
    null_reasons = {} if gained.no_interval is None else {"gains": gained.no_interval}
    dynamic = dynamic_section(
        hot,
        reporting,
        profile,
        model=model,
        cost=_cost(placement, profile),
        level=planned_level(placement),
        workload=planned_workload(placement),
        tp=placement.tp,
        seed=seed + 2 * EVALUATION_SEED,
        null_reasons=null_reasons,
    )
    return Evaluation(
        steps=scores.steps,
        concurrency=placement.workload.concurrency,
        running_requests=placement.kv.max_running_requests,
        step_us=scores.step_us,
        output_token_us=scores.output_token_us,
        coverage={**scores.coverage, "uniform_null": null},
        verdict=_verdict(scores.output_token_us, scores.coverage, null, gained.over, _cure(placement, mix)),
        domains={
            name: {"step_us": each.step_us, "coverage": each.coverage} for name, each in by_domain.items()
        },
        gains=gained,
        dynamic=dynamic,
        null_reasons=null_reasons,
        notes=tuple(
            dict.fromkeys(
                (
                    *profile_notes(placement, profile),
                    *profile.calibration_notes,
                    *reporting.header.notes,
                    *scores.notes,
                    *_mix_notes(placement, mix),
                    *_planned_notes(placement),
                    *filter(None, (open_loop_sentence(placement),)),
                )
            )
        ),
    )


def _cure(placement: PlacementDocument, mix: Mapping[str, float]) -> str:
    """What to do about a plan that does not help: a trace that holds the traffic need not be recorded again."""
    if not mix or (placement.mix or {}) == dict(mix):
        return "solve again with a trace of this traffic"
    shares = ",".join(f"{name}={share:g}" for name, share in mix.items())
    return f"solve again with this trace and {shlex.join(['--mix', shares])}"


def _mix_notes(placement: PlacementDocument, mix: Mapping[str, float]) -> tuple[str, ...]:
    """A note where the plan was made for another mix of domains than it is judged on."""
    if (placement.mix or {}) == dict(mix):
        return ()
    made = "a mix of its own (--mix)" if placement.mix else "the trace's own mix of domains"
    return (f"the plan was made for {made}, and is judged on {'--mix' if mix else 'this trace as it is'}",)


def _planned_notes(placement: PlacementDocument) -> tuple[str, ...]:
    """What scores leave out, because the plan was solved without it or replayed steps lack it."""
    notes = []
    if planned_prefill_from(placement) == "none":
        notes.append("prompts are left out, as when the plan was solved (--prefill-from none)")
    if deferred := planned_behaviour(placement).deferred_experts:
        notes.append(
            f"no expert is deferred here, though the plan's server defers {deferred} of each token: its predicted "
            "steps hold that, these times do not"
        )
    return tuple(notes)


@dataclass(frozen=True)
class _Scores:
    """Figures by placement name on one part of a trace."""

    steps: int
    step_us: dict[str, float]
    output_token_us: dict[str, float]
    coverage: dict[str, float]
    costs: LevelCosts
    notes: tuple[str, ...]


def _score(
    masks: dict[str, Mask],
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    seed: int,
) -> _Scores:
    workload = planned_workload(placement)
    prefill_from = planned_prefill_from(placement)
    replays = Replays(trace, seed + 2 * EVALUATION_SEED, prefill_from, step_factor=EVALUATION_STEPS)
    costs = replays.costs(model, _cost(placement, profile), planned_level(placement), workload, placement.tp)
    counts = selection_counts(trace)
    return _Scores(
        steps=len(costs.decode.hot_us),
        step_us={name: float(costs.decode.layer_us(mask).sum(axis=1).mean()) for name, mask in masks.items()},
        output_token_us={name: costs.output_token_us(mask) for name, mask in masks.items()},
        coverage={name: coverage_of_mask(counts, mask) for name, mask in masks.items()},
        costs=costs,
        notes=replays.notes(),
    )


def _cost(placement: PlacementDocument, profile: Profile) -> CostModel:
    """The profile's cost model under what the runtime was planned to do."""
    return replace(profile.cost_model(), behaviour=planned_behaviour(placement))


def _by_domain(trace: Trace) -> dict[str, Trace]:
    """Parts of a token trace by domain name; empty where the trace has no domains."""
    if not isinstance(trace, TokenTrace) or trace.domain is None:
        return {}
    return {
        trace.header.domains[int(domain)]: tokens_where(trace, trace.domain == domain)
        for domain in np.unique(trace.domain[trace.phase == Phase.DECODE])
        if domain >= 0
    }


def _verdict(
    output_token_us: dict[str, float],
    coverage: dict[str, float],
    null: float,
    gained: Mapping[str, Interval],
    cure: str,
) -> str:
    best = min((name for name in output_token_us if name != "plan"), key=lambda name: output_token_us[name])
    against_best = output_token_us[best] / output_token_us["plan"]
    against_default = output_token_us["uniform"] / output_token_us["plan"]
    served = f"the plan's hot experts serve {coverage['plan']:.1%} of all selections ({null:.1%} by chance)"
    if null in (0.0, 1.0):
        held = "every expert" if null else "no expert"
        return f"{held} is hot: there is no placement to compare, whatever the traffic"
    if against_default < 1.0 + _WORTH:
        return f"the plan does not help on this trace: {served}; {cure}"
    if against_best < 1.0 - _WORTH:
        gain = gained.get(best)
        if gain is not None and gain.low is not None and not gain.excludes_zero:
            return (
                f"the plan is as good as the best on this trace: {served}; '{best}' ranked on it takes "
                f"{against_best:.2f} times the plan's time per output token, which is within sampling error"
            )
        return (
            f"the plan is not the best on this trace: {served}, and '{best}' ranked on it takes "
            f"{against_best:.2f} times the plan's time per output token; 'placer trace compare' says whether "
            "solving again pays"
        )
    return (
        f"the plan holds: {served}; per output token the runtime's default takes {against_default:.2f} times the "
        f"plan's time, the best baseline ('{best}') {against_best:.3f} times"
    )
