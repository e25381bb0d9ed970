"""`placer.solve`: hot experts and KV decided together."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from placer.api.budget import check_hbm_budget, hbm_budget_bytes
from placer.api.checked import checked
from placer.api.choice import choice, member, one_of, prefill_side
from placer.api.number import at_least, check_seed
from placer.api.opened import Source, opened, path_or_none, paths_of
from placer.api.progress import Progress, silent
from placer.api.routing import Routing, routing
from placer.api.size import Size, size_bytes
from placer.api.time_limit import solver_seconds
from placer.api.traffic import workload
from placer.hbm import given_loss_bytes
from placer.model.spec import ModelSpec, read_model
from placer.modes.without_cpu import with_gpu_only
from placer.objective import Objective
from placer.output import checked_output
from placer.placement import PlacementDocument, write_placement
from placer.planning import plan
from placer.profiler.profile import Profile, read_profile
from placer.profiler.profile_use import ProfileUse
from placer.profiler.serving.server import Scheduler
from placer.profiler.trace.mix import check_shares
from placer.robust import Criterion
from placer.runtime_behaviour import RuntimeBehaviour
from placer.solve_request import SolveRequest

KV_DTYPES = {"bf16": ("bf16",), "fp8": ("fp8",), "auto": ("bf16", "fp8")}
"""KV precisions to try, by name."""
PLACES = {"all": True, "none": False}
"""Whether all of a pinned layer's experts are hot, by name."""


@checked
def solve(
    model: ModelSpec | Source,
    *,
    trace: Routing | None,
    profile: Profile | Source,
    hbm_budget: Size = "100%",
    tp: int = 1,
    concurrency: int = 16,
    max_running: int | None = None,
    min_kv_tokens: int = 0,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    slo_tpot: float | None = None,
    slo_ttft: float | None = None,
    kv_dtype: str = "bf16",
    solver: str = "auto",
    gap: float = 0.005,
    time_limit: float | None = None,
    prove: bool = False,
    prefill_from: str = "decode",
    chunk: int | None = None,
    min_hot: int = 0,
    gpu_free: Size | None = None,
    speculative: bool = False,
    host_memory: Size | None = None,
    threads: int | None = None,
    cpu_method: str | None = None,
    force_profile: bool = False,
    seed: int = 0,
    pin: Mapping[int, str] | None = None,
    min_hot_per_layer: int = 0,
    max_hot_per_layer: int | None = None,
    frontier: bool = False,
    what_if: bool = False,
    write_lp: Source | None = None,
    mix: Mapping[str, float] | None = None,
    robust: str | None = None,
    objective: str = "throughput",
    rate: float | None = None,
    arrivals: Source | None = None,
    length_variation: float = 0.0,
    prefix_hit: float = 0.0,
    scheduler: str = "sglang",
    deferred_experts: int = 0,
    skip_idle_cold: bool = False,
    output: Source | None = None,
    progress: Progress = silent,
) -> PlacementDocument:
    """Decide which experts of ``model`` are hot and how many KV tokens are kept, with a proven gap.

    ``trace`` None plans under uniform routing, before any trace exists; None for ``max_running`` and ``chunk`` lets
    the solver choose. ``pin`` fixes layers: ``{3: "all", 5: "none"}``. Prompts have 1,024 tokens and outputs 512 on
    average, unless they are given here or, request by request, in ``arrivals``.

    Raises
    ------
    BadInputError
        When an input cannot be used, or trace or profile belong to another model.
    InfeasibleError
        When nothing fits the HBM budget or host memory, or no level meets the latency targets.
    """
    at_least(1, tp=tp, threads=threads)
    at_least(0, min_hot=min_hot, min_hot_per_layer=min_hot_per_layer)
    check_seed(seed)
    if mix:
        check_shares(mix)
    check_hbm_budget(hbm_budget)
    free = None if gpu_free is None else size_bytes(gpu_free, "--gpu-free")
    memory = None if host_memory is None else size_bytes(host_memory, "--host-memory")
    given = paths_of(trace, profile, arrivals)
    if output is not None:
        checked_output(Path(output), given)
    if write_lp is not None:
        checked_output(Path(write_lp), [*given, *paths_of(output)], "--write-lp")
    # Every option is judged before a file is read; the budget needs the GPU of the profile.
    asked = SolveRequest(
        workload=workload(
            prompt_tokens,
            output_tokens,
            concurrency,
            slo_tpot=slo_tpot,
            slo_ttft=slo_ttft,
            rate=rate,
            arrivals=arrivals,
            length_variation=length_variation,
            prefix_hit=prefix_hit,
        ),
        budget_bytes=0,
        tp=tp,
        max_running=max_running,
        min_kv_tokens=min_kv_tokens,
        kv_dtypes=choice(kv_dtype, KV_DTYPES, "--kv-dtype"),
        solver=one_of(solver, ("auto", "highs", "cbc"), "--solver"),
        gap=gap,
        time_limit_s=solver_seconds(time_limit, prove),
        prove=prove,
        seed=seed,
        prefill_from=prefill_side(prefill_from),
        chunk_tokens=chunk,
        min_hot_per_layer=min_hot,
        speculative=speculative,
        pins={
            layer: choice(place, PLACES, f"--pin of layer {layer}") for layer, place in (pin or {}).items()
        },
        least_hot=min_hot_per_layer,
        most_hot=max_hot_per_layer,
        frontier=frontier,
        lp_path=path_or_none(write_lp),
        mix=mix or {},
        robust=None if robust is None else member(robust, Criterion, "--robust"),
        objective=member(objective, Objective, "--objective"),
        scheduler=member(scheduler, Scheduler, "--scheduler"),
        behaviour=RuntimeBehaviour(deferred_experts, skip_idle_cold),
    )
    spec = opened(model, read_model)
    measured = opened(profile, read_profile)
    usable = measured.gpu.usable_bytes
    cure = "lower it, or profile for the GPU that you mean ('placer profile --gpu NAME')"
    request = replace(
        asked,
        budget_bytes=hbm_budget_bytes(hbm_budget, usable, measured.gpu.name, cure),
        loss_bytes=given_loss_bytes(device_bytes=usable, gpu_free_bytes=free),
        device_bytes=usable,
    )
    routed = None if trace is None else routing(trace)
    document = plan(
        spec,
        routed,
        measured,
        request,
        host_memory_bytes=memory,
        use=ProfileUse(threads, cpu_method, force_profile),
        what_if=what_if,
        progress=progress,
    )
    document = with_gpu_only(document, spec, routed, measured, request)
    progress("writing the placement", 1.0)
    if output is not None:
        write_placement(document, Path(output))
    return document
