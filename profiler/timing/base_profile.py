"""Profile the base of a step: what surrounds the routed experts, timed on this machine's GPU in its own process."""

import json
from collections.abc import Callable
from dataclasses import asdict

import torch
from pydantic import TypeAdapter

from placer.errors import MissingComponentError
from placer.kernels.gpu_needs import ELSEWHERE
from placer.model.spec import ModelSpec
from placer.profiler.base_cost import BaseCost
from placer.profiler.timing.base_plan import BasePlan, base_plan
from placer.profiler.timing.campaign import Progress
from placer.profiler.timing.worker_process import run_worker

MAX_SECONDS = 60.0
"""Wall time of the rounds unless the caller says otherwise."""


def profile_base(
    model: ModelSpec,
    tp: int,
    *,
    max_seconds: float = MAX_SECONDS,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> BaseCost:
    """Time ``model``'s layers outside their routed experts, on one GPU of ``tp``, inside CUDA graphs.

    Raises
    ------
    BadInputError
        When ``tp`` does not divide the heads, or time or memory is too short.
    MissingComponentError
        When there is no GPU, no attention kernel computes what it should, or the process crashes or hangs.
    """
    if not torch.cuda.is_available():
        raise MissingComponentError(f"torch {torch.__version__} finds no CUDA device", ELSEWHERE)
    return run_plan(base_plan(model, tp, seed=seed, max_seconds=max_seconds), progress)


def run_plan(plan: BasePlan, progress: Callable[[Progress], None] | None = None) -> BaseCost:
    """Run the worker for ``plan``; raises what `profile_base` raises."""
    done = run_worker(
        "placer.profiler.timing.base_worker",
        json.dumps(asdict(plan)),
        what="timing attention and projections",
        cure="use --gpu NAME",
        progress=progress,
    )
    return TypeAdapter(BaseCost).validate_python(done["cost"])
