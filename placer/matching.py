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


def profile_notes(placement: PlacementDocument, profile: Profile) -> tuple[str, ...]:
    """What to know of times by ``profile`` where ``placement`` was solved with another one.

    It is a warning where that one is of other hardware.
    """
    if placement.profile_sha256 in (None, profile.sha256):
        return ()
    planned, given = (
        [str(sides.get(side, {}).get("name")) for side in ("cpu", "gpu")]
        for sides in (placement.hardware, profile.hardware())
    )
    if planned == given:
        return (
            f"times are of another profile of {' and '.join(given)} than the plan was solved with (calibrated or made "
            "again since)",
        )
    return (
        f"warning: times are of a profile of {' and '.join(given)}, and the plan was solved for "
        f"{' and '.join(planned)}: give the profile that it was solved with, or solve again",
    )
