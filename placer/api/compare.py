"""`placer.compare`: which way to run a model, on how many GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from placer.api.budget import check_hbm_budget, hbm_budget_bytes
from placer.api.checked import checked
from placer.api.choice import datasheet_method, member
from placer.api.choice import kv_dtype as known_kv_dtype
from placer.api.cpu import named_cpu
from placer.api.number import check_seed
from placer.api.opened import Source, opened
from placer.api.progress import Progress, silent
from placer.api.routing import Routing, routing
from placer.api.size import Size, size_bytes
from placer.api.traffic import workload
from placer.api.unused import refuse_unused
from placer.cpu_datasheet import CpuDatasheet
from placer.errors import BadInputError
from placer.kv_pool import holds_kv_dtype
from placer.model.kv import KV_DTYPES
from placer.model.spec import ModelSpec, read_model
from placer.modes.comparison import Comparison
from placer.modes.comparison import compare as compare_ways
from placer.modes.document import comparison_document
from placer.modes.hardware import ComparedHardware, datasheet_hardware, profiled_hardware
from placer.modes.request import CompareRequest
from placer.profiler.profile import Profile, read_profile
from placer.profiler.serving.server import Scheduler
from placer.runtime_behaviour import RuntimeBehaviour


@dataclass(frozen=True)
class Compared:
    """Every way of running a model, in rows, and the one that wins."""

    comparison: Comparison

    @property
    def keeps_targets(self) -> bool:
        """Whether any way fits and keeps the targets."""
        return self.comparison.best is not None

    def document(self) -> dict[str, Any]:
        """What ``compare --json`` prints."""
        return comparison_document(self.comparison)


@checked
def compare(
    model: ModelSpec | Source,
    *,
    gpus: Sequence[int] = (1, 2, 4, 8),
    gpu: str | None = None,
    cpu: str | None = None,
    cpu_method: str | None = None,
    cores: int | None = None,
    clock: float | None = None,
    turbo_off: bool = False,
    memory_channels: int | None = None,
    memory_mts: int | None = None,
    profile: Profile | Source | None = None,
    trace: Routing | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    concurrency: int = 16,
    kv_tokens: int = 0,
    slo_tpot: float | None = None,
    slo_ttft: float | None = None,
    kv_dtype: str | None = None,
    hbm_budget: Size = "100%",
    rate: float | None = None,
    arrivals: Source | None = None,
    length_variation: float = 0.0,
    prefix_hit: float = 0.0,
    scheduler: str = "sglang",
    deferred_experts: int = 0,
    skip_idle_cold: bool = False,
    host_memory: Size | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Compared:
    """GPU-only, streamed experts or hot/cold: every way to run ``model`` on these numbers of ``gpus``.

    The hardware is ``cpu`` and ``gpu`` by datasheet, or ``profile``; ``trace`` None is uniform routing. Prompts
    have 1,024 tokens and outputs 512 on average, unless they are given here or, request by request, in ``arrivals``.

    Raises
    ------
    BadInputError
        When no CPU is given, a name is not known, or trace or profile belong to another model.
    """
    check_seed(seed)
    check_hbm_budget(hbm_budget)
    sheet = named_cpu(
        cpu,
        cores=cores,
        clock=clock,
        turbo_off=turbo_off,
        memory_channels=memory_channels,
        memory_mts=memory_mts,
    )
    # Every option is judged before a file is read; what is left open needs the model and its hardware.
    asked = CompareRequest(
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
        gpus=tuple(sorted(set(gpus))),
        budget_bytes=0,
        device_bytes=0,
        kv_tokens=kv_tokens,
        kv_dtype=known_kv_dtype(kv_dtype or KV_DTYPES[0]),
        host_memory_bytes=None if host_memory is None else size_bytes(host_memory, "--host-memory"),
        seed=seed,
        scheduler=member(scheduler, Scheduler, "--scheduler"),
        behaviour=RuntimeBehaviour(deferred_experts, skip_idle_cold),
    )
    spec = opened(model, read_model)
    hardware = _hardware(spec, sheet, gpu, cpu_method, profile)
    usable, memory = hardware.usable_bytes, hardware.profile.host_memory_bytes
    cure = "lower it, or name the GPU that you mean (--gpu NAME)"
    held = next(name for name in KV_DTYPES if holds_kv_dtype(spec, name))
    request = replace(
        asked,
        budget_bytes=hbm_budget_bytes(hbm_budget, usable, hardware.gpu.name, cure),
        device_bytes=usable,
        kv_dtype=held if kv_dtype is None else asked.kv_dtype,
        host_memory_bytes=memory if host_memory is None else asked.host_memory_bytes,
    )
    return Compared(
        compare_ways(spec, hardware, None if trace is None else routing(trace), request, progress)
    )


def _hardware(
    model: ModelSpec,
    cpu: CpuDatasheet | None,
    gpu: str | None,
    cpu_method: str | None,
    profile: Profile | Source | None,
) -> ComparedHardware:
    """Both datasheets, or the profile with its GPU replaced by the one that is named."""
    if cpu is not None:
        if profile is not None:
            raise BadInputError(
                "--cpu NAME takes a CPU from its datasheet, and --profile FILE holds the one that it was made on",
                "leave out --cpu"
                + (", or leave out --profile" if gpu else ", or give --gpu NAME in place of --profile"),
            )
        if gpu is None:
            raise BadInputError(
                "--cpu NAME takes datasheets: it goes with --gpu NAME",
                "add --gpu NAME (placer hardware --list)",
            )
        method = None if cpu_method is None else datasheet_method(cpu_method)
        return datasheet_hardware(model, cpu, gpu, method)
    if profile is None:
        raise BadInputError(
            "compare needs a CPU", "add --cpu NAME (placer hardware --list) or --profile FILE"
        )
    refuse_unused(
        {"--cpu-method": cpu_method is not None},
        "--profile FILE holds the CPU and the method that it was made with",
        "leave it out, or make a profile with that method (placer profile)",
    )
    return profiled_hardware(model, opened(profile, read_profile), gpu)
