"""What a layer computes between its projections: norms, rotation, routing and gating, without their weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerGlue:
    """What a layer computes between its projections.

    Attributes
    ----------
    hidden_size
        Two additions and two RMS norms of this width.
    rotated_width
        Query and key values that are turned by their position.
    experts, top_k
        A softmax over the experts' scores and the choice of k; 0 in a layer without routing.
    gated_width
        Width of silu(gate)·up of a dense MLP or of shared experts; 0 where there is none.
    """

    hidden_size: int
    rotated_width: int
    experts: int
    top_k: int
    gated_width: int

    def bound(self, tokens: int, *, device: str, seed: int) -> Callable[[], Tensor]:
        """All of it for ``tokens`` tokens, by torch's own kernels: as many launches as a server's fused ones."""
        generator = torch.Generator(device).manual_seed(seed)

        def drawn(width: int) -> Tensor:
            return torch.randn(tokens, max(1, width), generator=generator, device=device).to(torch.bfloat16)

        hidden, residual, heads, turn = (
            drawn(w) for w in (self.hidden_size,) * 2 + (self.rotated_width,) * 2
        )
        scores, both = drawn(self.experts), drawn(2 * self.gated_width)
        weight = torch.ones(self.hidden_size, dtype=torch.bfloat16, device=device)

        def run() -> Tensor:
            out = hidden
            for _ in range(2):
                out = torch.nn.functional.rms_norm(out + residual, (self.hidden_size,), weight)
            _ = heads * turn
            if self.experts:
                torch.topk(scores.softmax(dim=-1, dtype=torch.float32), self.top_k, dim=-1)
            if self.gated_width:
                gate, up = both.chunk(2, dim=1)
                _ = torch.nn.functional.silu(gate) * up
            return out

        return run
