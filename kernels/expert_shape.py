"""The sizes of one MoE layer's experts, as a kernel needs them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExpertShape:
    """One MoE layer: E experts of three matrices each, k of them per token.

    Attributes
    ----------
    hidden_size
        H, width of the activations that enter and leave.
    expert_intermediate_size
        I, width between the up and down projections (of one GPU's share under tensor parallelism).
    experts
        E, routed experts of the layer.
    top_k
        k, experts that each token chooses.
    """

    hidden_size: int
    expert_intermediate_size: int
    experts: int
    top_k: int

    def __post_init__(self) -> None:
        for name in ("hidden_size", "expert_intermediate_size", "experts", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} exceeds the {self.experts} experts")

    @property
    def parameters(self) -> int:
        """Weights of one expert: gate and up are [I, H], down is [H, I]."""
        return 3 * self.hidden_size * self.expert_intermediate_size
