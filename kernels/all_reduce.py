"""The sum over GPUs that ends attention and experts of every layer: one process per GPU, torch.distributed."""

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor, distributed

from placer.errors import MissingComponentError
from placer.kernels.problem import Problem

_PROCESSES: Any = torch.multiprocessing
"""torch types what it takes from here in some versions and not in others."""
WARM_UPS = 3
LAYERS = 8
"""Sums of one sample in a CUDA graph, as a step has many: starting the graph is shared among them."""


def all_reduce_problem(gpus: int) -> Problem | None:
    """Why no sum over ``gpus`` GPUs can be timed here; None when it can."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < gpus:
        return Problem(f"{found} of {gpus} GPUs are here", f"profile where {gpus} GPUs are")
    if not distributed.is_available() or not distributed.is_nccl_available():
        return Problem("torch has no NCCL", "install torch for CUDA")
    return None


def time_all_reduce(
    world: int, widths: Sequence[int], *, samples: int, device: str = "cuda"
) -> list[list[float]]:
    """Microseconds of summing bfloat16 tensors of ``widths`` numbers over ``world`` processes: [widths][samples].

    On "cuda" NCCL sums inside a CUDA graph; on "cpu", for tests, gloo does, by the wall clock.

    Raises
    ------
    MissingComponentError
        When a process fails, or the sum is wrong.
    """
    with TemporaryDirectory(prefix="placer-all-reduce-") as folder:
        out = Path(folder) / "times.pt"
        try:
            _PROCESSES.spawn(
                _process, args=(world, tuple(widths), samples, device, _free_port(), str(out)), nprocs=world
            )
        except (_PROCESSES.ProcessRaisedException, _PROCESSES.ProcessExitedException) as error:
            raise MissingComponentError(
                f"a sum over {world} processes failed: {str(error).strip().splitlines()[-1]}",
                "profile with --tp 1, or check NCCL",
            ) from None
        times: list[list[float]] = torch.load(out)
        return times


def _process(
    rank: int, world: int, widths: tuple[int, ...], samples: int, device: str, port: int, out: str
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=world)
    try:
        times = [_timed(width, world, rank, samples, device) for width in widths]
        if rank == 0:
            torch.save(times, out)
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def _timed(width: int, world: int, rank: int, samples: int, device: str) -> list[float]:
    tensor = torch.full((width,), float(rank + 1), dtype=torch.bfloat16, device=device)
    distributed.all_reduce(tensor)
    expected = world * (world + 1) / 2
    if not bool((tensor == expected).all()):
        raise RuntimeError(f"the sum over {world} processes is not {expected}")
    tensor.zero_()
    for _ in range(WARM_UPS):
        distributed.all_reduce(tensor)
    return _graph_times(tensor, samples) if device == "cuda" else _wall_times(tensor, samples)


def _graph_times(tensor: Tensor, samples: int) -> list[float]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAYERS):
            distributed.all_reduce(tensor)
    times = []
    for _ in range(samples):
        distributed.barrier()
        begin, end = cuda_event(), cuda_event()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) * 1e3 / LAYERS)
    return times


def _wall_times(tensor: Tensor, samples: int) -> list[float]:
    times = []
    for _ in range(samples):
        started = time.perf_counter()
        distributed.all_reduce(tensor)
        times.append((time.perf_counter() - started) * 1e6)
    return times


def cuda_event() -> Any:
    """A CUDA event that keeps its time; torch types its constructor in some versions and not in others."""
    events: Any = torch.cuda
    return events.Event(enable_timing=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
