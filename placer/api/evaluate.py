"""`placer.evaluate`: a placement against the runtime's own strategies."""

from collections.abc import Mapping

from placer import evaluation
from placer.api.checked import checked
from placer.api.number import check_seed
from placer.api.opened import Source, opened
from placer.api.routing import Routing, routing
from placer.model.spec import ModelSpec, read_model
from placer.placement import PlacementDocument, read_placement
from placer.profiler.profile import Profile, read_profile
from placer.profiler.trace.mix import check_shares


@checked
def evaluate(
    placement: PlacementDocument | Source,
    *,
    model: ModelSpec | Source,
    trace: Routing,
    profile: Profile | Source,
    mix: Mapping[str, float] | None = None,
    seed: int = 0,
) -> evaluation.Evaluation:
    """Score ``placement`` and the runtime's own strategies on ``trace``, at the same bytes.

    ``mix`` weighs the trace's domains: ``{"code": 0.7, "chat": 0.3}``.

    Raises
    ------
    BadInputError
        When trace, profile or placement belong to another model, the trace lacks a domain of ``mix``, or its shares
        do not sum to 1.
    """
    check_seed(seed)
    if mix:
        check_shares(mix)
    return evaluation.evaluate(
        opened(placement, read_placement),
        opened(model, read_model),
        routing(trace),
        opened(profile, read_profile),
        mix=mix or {},
        seed=seed,
    )
