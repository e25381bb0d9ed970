"""What a runtime does on request that it does not do by default."""

from dataclasses import dataclass

from placer.errors import BadInputError


@dataclass(frozen=True)
class RuntimeBehaviour:
    """Options of a runtime that change how long a layer takes.

    Attributes
    ----------
    deferred_experts
        Selections of each token, those of least weight, whose CPU time runs beside the next layer
        (kt-kernel's --kt-max-deferred-experts-per-token); they reach the hidden states a layer late, so the
        model's output changes.
    skip_idle_cold
        Whether a layer-step in which no cold expert has rows leaves the CPU alone; sglang-kt 0.7.2 submits and syncs
        it all the same.
    """

    deferred_experts: int = 0
    skip_idle_cold: bool = False

    def __post_init__(self) -> None:
        if self.deferred_experts < 0:
            raise BadInputError(f"--deferred-experts is {self.deferred_experts}", "give 0 or more")

    def check(self, top_k: int) -> None:
        """Raise BadInputError where more is deferred than the ``top_k`` experts that a token takes."""
        if self.deferred_experts > top_k:
            raise BadInputError(
                f"--deferred-experts {self.deferred_experts} is more than the {top_k} experts that a token takes",
                f"give 0 to {top_k}",
            )


DEFAULT_BEHAVIOUR = RuntimeBehaviour()
