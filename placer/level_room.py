"""The levels of a request, and room at them for the experts that pins and limits keep hot."""

import math
from dataclasses import replace

from placer.errors import InfeasibleError
from placer.hbm import repacking_bytes
from placer.host import HostRoom, check_host_memory
from placer.hot_bounds import MIN_FLAG, HotBounds, hot_bounds
from placer.level import Level, levels
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.remedy import chunk_step, largest
from placer.solve_request import SolveRequest
from placer.units import GIB, enough_gib


def request_levels(model: ModelSpec, request: SolveRequest) -> tuple[Level, ...]:
    """The levels that ``request`` asks for.

    Raises
    ------
    BadInputError
        When pins and limits contradict each other, or the request cannot be served at any budget.
    InfeasibleError
        When no level fits the budget, or none of those that do fits host memory.
    """
    # Contradictions are told before the budget is looked at.
    hot_bounds(model, request.pins, least=request.least_hot, most=request.most_hot)
    grid = levels(
        model,
        request.workload,
        tp=request.tp,
        budget_bytes=request.budget_bytes,
        max_running=request.max_running,
        min_kv_tokens=request.min_kv_tokens,
        kv_dtypes=request.kv_dtypes,
        chunk_tokens=request.chunk_tokens,
        # With pins, how many experts the limits keep hot is known only layer by layer (`roomy_levels`).
        min_hot_per_layer=max(request.min_hot_per_layer, 0 if request.pins else request.least_hot),
        min_hot_flag=MIN_FLAG if request.least_hot > request.min_hot_per_layer else "--min-hot",
        speculative=request.speculative,
        loss_bytes=request.loss_bytes,
        device_bytes=request.device_bytes,
        host=request.host,
        scheduler=request.scheduler,
    )
    return grid if request.host is None else _held(model, grid, request, request.host)


def without_host(model: ModelSpec, request: SolveRequest) -> SolveRequest:
    """``request`` with every expert hot, where host memory holds no level of it and the budget holds all experts.

    Such a server is started without CPU experts, so that kt-kernel holds none in host memory. Other requests are
    returned as they are.

    Raises
    ------
    BadInputError
        As `request_levels`.
    """
    if request.host is None or _kept_cold(model, request) or _has_levels(model, request):
        return request
    everywhere = replace(request, host=None, pins={}, least_hot=model.experts)
    return everywhere if _has_levels(model, everywhere) else request


def _kept_cold(model: ModelSpec, request: SolveRequest) -> bool:
    """Whether ``request`` asks for experts that are not hot."""
    return not all(request.pins.values()) or request.most_hot not in (None, model.experts)


def _has_levels(model: ModelSpec, request: SolveRequest) -> bool:
    try:
        return bool(request_levels(model, request))
    except InfeasibleError:
        return False


def _held(
    model: ModelSpec, grid: tuple[Level, ...], request: SolveRequest, host: HostRoom
) -> tuple[Level, ...]:
    """The levels whose host ledger fits: kt-kernel's scratch grows with the chunk."""
    held = tuple(level for level in grid if host.holds(model, level.settings.chunk_tokens))
    if not held:
        least = min(level.settings.chunk_tokens for level in grid)
        cures = [_smaller_chunk(model, grid, host), _all_hot(model, grid, request)]
        cure = "; ".join(each for each in cures if each is not None) or None
        check_host_memory(host.ledger(model, least), host.memory_bytes, cure)
    return held


def _smaller_chunk(model: ModelSpec, grid: tuple[Level, ...], host: HostRoom) -> str | None:
    """The largest chunk below those of ``grid`` that host memory holds, as it is asked for; None where none does.

    What fits the GPU with a larger chunk fits it with a smaller one.
    """
    step = chunk_step(model)
    chunk, running = min((level.settings.chunk_tokens, level.settings.max_running_requests) for level in grid)
    # kt-kernel refuses a decode step larger than the chunk.
    steps = largest(-(-running // step), (chunk - 1) // step, lambda steps: host.holds(model, steps * step))
    return None if steps is None else f"--chunk of at most {steps * step}"


def _all_hot(model: ModelSpec, grid: tuple[Level, ...], request: SolveRequest) -> str | None:
    """The budget with which every expert is hot and none is needed in host memory; None where it cannot be given."""
    if _kept_cold(model, request):
        return None
    every = len(model.moe_layers) * model.experts
    level = max(grid, key=lambda level: level.ledger.unused_bytes)
    budget_bytes = _budget_bytes(model, level, request, every)
    beyond = request.device_bytes is not None and budget_bytes > request.device_bytes
    # Where the budget does already, `without_host` asks for it.
    if beyond or budget_bytes <= request.budget_bytes:
        return None
    return f"--hbm-budget of at least {budget_bytes / GIB:.2f}GiB (every expert hot needs none there)"


def _budget_bytes(model: ModelSpec, level: Level, request: SolveRequest, experts: int) -> int:
    """The budget that leaves room for so many hot experts at ``level``, in whole hundredths of a GiB."""
    share = expert_share_bytes(model, request.tp)
    needed_bytes = experts * (share + repacking_bytes(model, share))
    return math.ceil(enough_gib(request.budget_bytes + needed_bytes - level.ledger.unused_bytes) * GIB)


def roomy_levels(
    model: ModelSpec, grid: tuple[Level, ...], limits: HotBounds, request: SolveRequest
) -> tuple[Level, ...]:
    """The levels that have room for the experts that pins and limits keep hot."""
    needed = int(limits.least.sum())
    roomy = tuple(level for level in grid if level.room_experts >= needed)
    if not roomy:
        raise _no_room(model, max(grid, key=lambda level: level.room_experts), limits, request)
    return roomy


def _no_room(model: ModelSpec, level: Level, limits: HotBounds, request: SolveRequest) -> InfeasibleError:
    """Says what keeps too many experts hot, and the smallest changes that would fit."""
    pinned = model.experts * sum(limits.pins.values())
    room, needed = level.room_experts, int(limits.least.sum())
    budget_bytes = _budget_bytes(model, level, request, needed)
    cures = []
    by = ["--pin"] if pinned else []
    if request.least_hot:
        by.append(f"{MIN_FLAG} {request.least_hot}")
        if room >= pinned:
            most = (room - pinned) // (len(limits.least) - len(limits.pins))
            cures.append(f"{MIN_FLAG} of at most {most}")
    cures += ["pin fewer layers"] if pinned else []
    beyond = request.device_bytes is not None and budget_bytes > request.device_bytes
    size = f"{budget_bytes / GIB:.2f}"
    cures.append(f"a GPU with {size} GiB usable" if beyond else f"--hbm-budget of at least {size}GiB")
    return InfeasibleError(
        f"does not fit: {' and '.join(by)} keep{'s' if len(by) == 1 else ''} {needed:,} "
        f"experts hot, the budget has room for {room:,}",
        "any one of these fits: " + "; ".join(cures) if len(cures) > 1 else cures[0],
    )
