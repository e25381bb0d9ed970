"""The plan that this process honours, and the layers that it was applied to."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placer.runtime.load import Placement, PlacementError, load
from placer.runtime.vllm.cold_pool import ColdCalls, ColdPool
from placer.runtime.vllm.refusal import Refusal
from placer.runtime.vllm.settings import Settings

if TYPE_CHECKING:
    from placer.runtime.vllm.routed_experts import PlacedRoutedExperts


@dataclass
class Session:
    """One engine's plan; ``layers`` are its MoE layers by the name that the engine gives them."""

    settings: Settings
    placement: Placement
    layers: dict[str, "PlacedRoutedExperts"] = field(default_factory=dict)
    pool: ColdPool | None = None

    def cold_pool(self, calls: ColdCalls) -> ColdPool:
        """The pool of cold experts, opened by the first layer that asks for it."""
        if self.pool is None:
            self.pool = ColdPool(self.settings, self.placement, calls)
        return self.pool

    @property
    def cold_path(self) -> str:
        """The cold path in words."""
        return self.pool.path if self.pool is not None else "none"


_current: Session | None = None


def open_session(settings: Settings) -> Session:
    """Read the plan of ``settings``; it replaces the one that this process had.

    Raises
    ------
    Refusal
        When the placement cannot be used.
    """
    global _current  # noqa: PLW0603 - vLLM builds its layers itself, and hands them nothing of ours
    try:
        placement = load(settings.placement)
    except PlacementError as error:
        raise Refusal(str(error)) from None
    _current = Session(settings, placement)
    return _current


def session() -> Session:
    """The session that `open_session` opened."""
    if _current is None:
        raise Refusal("no placement was read in this process", "report this")
    return _current
