"""Whether a placement and what it is judged by belong together: model, profile and traces."""

from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.profile import Profile
from placer.profiler.profile_use import check_profile_matches
from placer.profiler.trace.importing import check_trace_of
from placer.profiler.trace.trace import Trace


def check_matching(placement: PlacementDocument, model: ModelSpec, profile: Profile, *traces: Trace) -> None:
    """Refuse a placement, profile or trace that was made for another model than ``model``.

    Raises
    ------
    BadInputError
        Naming the first that does not belong.
    """
    placement.check_model(model)
    check_profile_matches(profile, model, tp=placement.tp)
    for trace in traces:
        check_trace_of(trace, model)
