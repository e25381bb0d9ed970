"""`placer.verify`: a placement's layers run with the real kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from placer import verification
from placer.api.checked import checked
from placer.api.number import check_seed
from placer.api.opened import Source, opened
from placer.api.progress import Progress, silent
from placer.api.routing import Routing, routing
from placer.joined_verification import JoinedVerification, verify_joined
from placer.model.spec import ModelSpec, read_model
from placer.placement import PlacementDocument, read_placement
from placer.profiler.profile import Profile, read_profile


@dataclass(frozen=True)
class Verified:
    """The cold side, measured and predicted, and both sides at once where there is a GPU."""

    cold: verification.Verification
    joined: JoinedVerification

    def document(self) -> dict[str, Any]:
        """What ``verify --json`` prints."""
        return {**self.cold.document(), "hot_side": self.joined.document()}


@checked
def verify(
    placement: PlacementDocument | Source,
    *,
    model: ModelSpec | Source,
    trace: Routing,
    profile: Profile | Source,
    layer_steps: int = 200,
    running: Sequence[int] | None = None,
    prefill: Sequence[int] | None = None,
    max_seconds: float = 120.0,
    seed: int = 0,
    progress: Progress = silent,
) -> Verified:
    """Run layer-steps of ``placement`` with the kernels of ``profile`` and compare with what was predicted.

    ``running`` are running requests of decode steps, ``prefill`` tokens of prefill chunks: None chooses, empty runs
    none.

    Raises
    ------
    BadInputError
        When the inputs belong to different models, nothing is asked for, or the time does not suffice.
    MissingComponentError
        When the profile's kernel does not run here.
    """
    check_seed(seed)
    request = verification.VerifyRequest(
        layer_steps=layer_steps,
        running=None if running is None else tuple(running),
        prefill_tokens=None if prefill is None else tuple(prefill),
        max_seconds=max_seconds,
        seed=seed,
    )
    spec = opened(model, read_model)
    inputs = (
        opened(placement, read_placement),
        spec,
        routing(trace),
        opened(profile, read_profile),
    )
    cold = verification.verify(*inputs, request, progress=progress)
    joined = verify_joined(
        *inputs, layer_steps=layer_steps, max_seconds=max_seconds, seed=seed, progress=progress
    )
    return Verified(cold, joined)
