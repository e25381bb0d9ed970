"""The named factors of a calibration: what a server's own measurements say of the cost model's parts."""

from dataclasses import dataclass, replace
from enum import StrEnum


class FactorName(StrEnum):
    """Parts of the cost model that a calibration can scale, and one that it can add."""

    COLD = "cold"
    HOT = "hot"
    BASE = "base"
    TRANSFER = "transfer"
    STEP = "step_us"


FACTOR_MEANING = {
    FactorName.COLD: "the CPU kernel's time of cold experts",
    FactorName.HOT: "the GPU kernel's time of hot experts",
    FactorName.BASE: "what a step takes outside the routed experts (attention, router, output head)",
    FactorName.TRANSFER: "copies to the host and back, once per layer",
    FactorName.STEP: "microseconds added to every step (scheduling, sampling)",
}


@dataclass(frozen=True)
class Factors:
    """What the parts of the cost model are multiplied by, and microseconds added to every step."""

    cold: float = 1.0
    hot: float = 1.0
    base: float = 1.0
    transfer: float = 1.0
    step_us: float = 0.0

    def with_value(self, name: FactorName, value: float) -> "Factors":
        """These factors with one replaced."""
        return replace(self, **{name.value: value})

    def value(self, name: FactorName) -> float:
        """One of them."""
        return float(getattr(self, name.value))

    @property
    def changed(self) -> tuple[FactorName, ...]:
        """The factors that change something."""
        neutral = Factors()
        return tuple(name for name in FactorName if self.value(name) != neutral.value(name))

    def __str__(self) -> str:
        parts = [
            f"{self.step_us / 1e3:+.3g} ms per step"
            if name is FactorName.STEP
            else f"{name.value} ×{self.value(name):.3f}"
            for name in self.changed
        ]
        return ", ".join(parts) or "nothing changed"


UNCALIBRATED = Factors()
