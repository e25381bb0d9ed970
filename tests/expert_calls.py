"""Random calls of expert MLPs, and how far an output is from what it should be."""

import torch

from placer.kernels.expert_shape import ExpertShape


def random_call(
    shape: ExpertShape, tokens: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(x, ids, weights) as `ExpertMLP.forward` takes them; every token names k different experts."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, shape.hidden_size, generator=generator).to(torch.bfloat16)
    ids = torch.stack([torch.randperm(shape.experts, generator=generator) for _ in range(tokens)])
    return x, ids[:, : shape.top_k].contiguous(), torch.rand(tokens, shape.top_k, generator=generator)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of what is off over the norm of what is expected."""
    return float((found.float() - expected).norm() / expected.norm())
