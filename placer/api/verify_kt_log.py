"""`placer.verify_kt_log`: the layers that sglang-kt timed itself against what was predicted."""

from pathlib import Path

from placer.api.checked import checked
from placer.api.number import check_seed
from placer.api.opened import Source, opened
from placer.api.routing import Routing, routing
from placer.model.spec import ModelSpec, read_model
from placer.placement import PlacementDocument, read_placement
from placer.profiler.kt_timing_log import read_kt_timing_log
from placer.profiler.profile import Profile, read_profile
from placer.runtime_verification import RuntimeVerification, verify_runtime


@checked
def verify_kt_log(
    placement: PlacementDocument | Source,
    kt_log: Source,
    *,
    model: ModelSpec | Source,
    trace: Routing,
    profile: Profile | Source,
    seed: int = 0,
) -> RuntimeVerification:
    """Compare ``kt_log``, of a server with SGLANG_KT_HYBRID_TIMING, with what was predicted; nothing is run.

    Raises
    ------
    BadInputError
        When the inputs belong to different models, or the log cannot be used.
    """
    check_seed(seed)
    return verify_runtime(
        opened(placement, read_placement),
        opened(model, read_model),
        routing(trace),
        opened(profile, read_profile),
        read_kt_timing_log(Path(kt_log)),
        seed=seed,
    )
