"""A kernel's output as a CUDA graph replays it, which is how servers run it."""

from collections.abc import Callable

import torch


def replayed(run: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Call ``run`` once to warm up, capture it, replay it: what it wrote, on the CPU."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    graph.replay()
    torch.cuda.synchronize()
    return out.cpu()
