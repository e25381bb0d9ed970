"""`placer profile`: time this machine's kernels at a model's shapes, and put the GPU beside them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from placer import __version__
from placer.cpu_datasheet import CpuDatasheet
from placer.datasheet import GpuDatasheet, datasheet_of_device, gpu_datasheet
from placer.errors import BadInputError, MissingComponentError
from placer.kernels.backends import AUTO, GPU_BACKENDS
from placer.kernels.cores import usable_cores
from placer.model.spec import GPU_FORMAT, ModelSpec
from placer.profiler import roofline
from placer.profiler.cost import Provenance
from placer.profiler.datasheet_cpu import CpuSide
from placer.profiler.datasheet_profile import DEFAULT_METHOD, datasheet_cpu, expert_shape, profiled_model
from placer.profiler.profile import SCHEMA, GpuProfile, Profile
from placer.profiler.replay import replay_decode
from placer.profiler.steps import Steps
from placer.profiler.timing.base_profile import profile_base
from placer.profiler.timing.cpu_profile import profile_cpu
from placer.profiler.timing.gpu_profile import profile_gpu
from placer.profiler.trace.importing import check_trace_of
from placer.profiler.trace.trace import Trace

QUICK_SECONDS, FULL_SECONDS = 70.0, 300.0
"""Wall time of a quick and of a full profile; what starts and writes comes on top."""
GPU_SHARE = 0.3
"""Part of it for the GPU's kernels where they are timed: they are faster, and compiled first."""
BASE_SHARE = 0.15
"""Part of it for what surrounds the experts there."""
_HELDOUT_CONCURRENCY = 8
_HELDOUT_STEPS = 64


@dataclass(frozen=True)
class ProfileRequest:
    """What to time.

    Attributes
    ----------
    cpu_kernel
        "auto", or the name or method of a backend (`choose_cpu_backend`).
    cpu, cpu_method
        A CPU by datasheet in place of this machine's, and the method of its kernel (None: RAWINT4).
    gpu_kernel
        "auto" or the name of a backend to time the GPU of this machine, or None.
    gpu_name
        A GPU by datasheet, or None for the GPU of this machine.
    threads
        CPU threads, or None for all usable cores but one.
    sweep_threads
        Try sensible thread counts and NUMA spreads first, and take the best.
    max_seconds
        Wall time of everything that is timed; a machine slower than its first calls said may overrun it by 15 %.
    keep_samples
        Folder for raw samples, which an interrupted profile goes on from.
    """

    tp: int = 1
    cpu_kernel: str = "auto"
    cpu: CpuDatasheet | None = None
    cpu_method: str | None = None
    gpu_kernel: str | None = None
    gpu_name: str | None = None
    threads: int | None = None
    sweep_threads: bool = False
    max_seconds: float = FULL_SECONDS
    seed: int = 0
    keep_samples: Path | None = None


def profile_model(
    model: ModelSpec,
    trace: Trace | None,
    request: ProfileRequest,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Profile:
    """Time the CPU kernel at ``model``'s shapes, or take a datasheet, and add the GPU the same way.

    Raises
    ------
    BadInputError
        When the GPU is unknown, both a measured and a datasheet GPU are asked for, or the trace is of another model.
    MissingComponentError
        When no CPU kernel runs here, or there is no GPU and none is named.
    """
    if request.gpu_name is not None and request.gpu_kernel is not None:
        raise BadInputError(
            "--gpu NAME takes a datasheet and --gpu-kernel measures: both were given", "give one of the two"
        )
    if request.cpu is None and request.cpu_method is not None:
        raise BadInputError(
            "--cpu-method names the kernel of a CPU by datasheet, and no --cpu was given",
            "use --cpu-kernel to choose what is timed here",
        )
    if request.cpu is not None and (request.sweep_threads or request.cpu_kernel != AUTO):
        raise BadInputError(
            "--cpu NAME takes a datasheet, --cpu-kernel and --sweep-threads time this machine",
            "leave --cpu out, or name the kernel by --cpu-method",
        )
    if not 0 < request.max_seconds < 1e6:
        raise BadInputError(f"--max-seconds is {request.max_seconds}", "give seconds above 0")
    if request.sweep_threads and request.threads is not None:
        raise BadInputError(
            "--sweep-threads looks for a thread count and --threads gives one: both were given",
            "give one of the two",
        )
    model.check_tp(request.tp)
    # Before any minute is spent on timing: is there a GPU to put beside the CPU?
    sheet, measure = _gpu(request)
    if measure and model.expert_format["gpu"] != GPU_FORMAT:
        raise MissingComponentError(
            f"hot experts of {model.name} are served in {model.expert_format['gpu']}, which no kernel here computes",
            f"give the GPU by its datasheet: --gpu {sheet.name}",
        )
    shape = expert_shape(model)
    gpu_seconds = GPU_SHARE * request.max_seconds if measure else 0.0
    base_seconds = BASE_SHARE * request.max_seconds if measure else 0.0
    cpu = _cpu(model, trace, request, request.max_seconds - gpu_seconds - base_seconds, progress)
    kernel = base = None
    if measure:
        kernel = profile_gpu(
            shape,
            request.tp,
            backend=request.gpu_kernel or "auto",
            max_seconds=gpu_seconds,
            seed=request.seed,
            keep_samples=request.keep_samples,
            progress=lambda done: progress(f"GPU kernel: {done.stage}", done.done / max(1, done.total)),
        )
        base = profile_base(
            model,
            request.tp,
            max_seconds=base_seconds,
            seed=request.seed,
            progress=lambda done: progress(f"rest of a layer: {done.stage}", done.done / max(1, done.total)),
        )
    usable = int(torch.cuda.get_device_properties(0).total_memory) if measure else sheet.usable_bytes
    return Profile(
        schema=SCHEMA,
        placer_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=profiled_model(model),
        tp=request.tp,
        cpu=cpu,
        gpu=GpuProfile(
            name=sheet.name,
            usable_bytes=usable,
            provenance=Provenance.DATASHEET if kernel is None else Provenance.MEASURED,
            source=sheet.source,
            efficiency=dict(roofline.EFFICIENCY),
            hot=roofline.roofline_hot(sheet, model, request.tp) if kernel is None else kernel.cost,
            rates=roofline.roofline_rates(sheet, model, request.tp),
            kernel=kernel,
            base=base,
        ),
    )


def _cpu(
    model: ModelSpec,
    trace: Trace | None,
    request: ProfileRequest,
    seconds: float,
    progress: Callable[[str, float], None],
) -> CpuSide:
    """The CPU's side: this machine's kernel in ``seconds``, or a datasheet."""
    if request.cpu is not None:
        method = DEFAULT_METHOD if request.cpu_method is None else request.cpu_method
        return datasheet_cpu(model, request.cpu, method=method, threads=request.threads)
    threads = request.threads if request.threads is not None else max(1, usable_cores() - 1)
    return profile_cpu(
        expert_shape(model),
        backend=request.cpu_kernel,
        threads=None if request.sweep_threads else threads,
        heldout_steps=_heldout_steps(model, trace, request.seed),
        max_seconds=seconds,
        seed=request.seed,
        keep_samples=request.keep_samples,
        progress=lambda done: progress(f"CPU kernel: {done.stage}", done.done / max(1, done.total)),
    )


def _gpu(request: ProfileRequest) -> tuple[GpuDatasheet, bool]:
    """The datasheet to use, and whether the hot side is measured on this machine."""
    if request.gpu_name is not None:
        return gpu_datasheet(request.gpu_name), False
    known = ("auto", *(backend.name for backend in GPU_BACKENDS))
    if request.gpu_kernel is not None and request.gpu_kernel not in known:
        raise BadInputError(
            f"unknown kernel {request.gpu_kernel!r}", f"use --gpu-kernel with one of: {', '.join(known)}"
        )
    if not torch.cuda.is_available():
        raise MissingComponentError(
            "no GPU is present, so the hot side cannot be timed here",
            "name the server's GPU by its datasheet: --gpu NAME (placer hardware --list)",
        )
    device = torch.cuda.get_device_name(0)
    # Transfers still come from the datasheet of the GPU that was found.
    if (sheet := datasheet_of_device(device)) is not None:
        return sheet, True
    raise BadInputError(
        f"GPU {device!r} has no datasheet here, which transfer times need",
        "name the closest one: --gpu NAME (placer hardware --list)",
    )


def _heldout_steps(model: ModelSpec, trace: Trace | None, seed: int) -> Steps | None:
    """Decode steps of the trace on which the fit is judged beside made-up ones."""
    if trace is None:
        return None
    check_trace_of(trace, model)
    return replay_decode(trace, _HELDOUT_CONCURRENCY, _HELDOUT_STEPS, seed=seed)
