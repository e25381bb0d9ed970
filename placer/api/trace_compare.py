"""`placer.trace_compare`: whether traffic has drifted so far that a plan should be solved again."""

from placer.api.checked import checked
from placer.api.choice import prefill_side
from placer.api.number import check_seed
from placer.api.opened import Source, opened
from placer.api.progress import Progress, silent
from placer.api.routing import Routing, routing
from placer.drift import WORTH, Drift, compare_traces
from placer.model.spec import ModelSpec, read_model
from placer.placement import PlacementDocument, read_placement
from placer.profiler.profile import Profile, read_profile


@checked
def trace_compare(
    first: Routing,
    second: Routing,
    *,
    placement: PlacementDocument | Source,
    model: ModelSpec | Source,
    profile: Profile | Source,
    worth: float = WORTH,
    prefill_from: str = "decode",
    time_limit: float = 30.0,
    seed: int = 0,
    progress: Progress = silent,
) -> Drift:
    """What ``placement``, made from ``first``, costs on ``second`` against solving there anew.

    Raises
    ------
    BadInputError
        When a trace, the profile or the placement belong to another model, or ``worth`` is no share.
    """
    check_seed(seed)
    return compare_traces(
        opened(placement, read_placement),
        opened(model, read_model),
        opened(profile, read_profile),
        routing(first),
        routing(second),
        worth=worth,
        prefill_from=prefill_side(prefill_from),
        time_limit_s=time_limit,
        seed=seed,
        progress=progress,
    )
