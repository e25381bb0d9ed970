"""A whole profile from datasheets: hardware that one does not have, without timing anything."""

from dataclasses import replace
from datetime import UTC, datetime

from placer import __version__
from placer.cpu_datasheet import AS_THE_SHEET, CpuAdjustment, CpuDatasheet, cpu_datasheet
from placer.datasheet import GpuDatasheet, behind, gpu_datasheet
from placer.errors import BadInputError
from placer.kernels.cpu_method_needs import CPU_METHOD_NEEDS
from placer.kernels.expert_shape import ExpertShape
from placer.model.spec import ModelSpec
from placer.profiler import roofline
from placer.profiler.cold_roofline import cold_kernel, roofline_cold, unused_nodes
from placer.profiler.cost import Provenance
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.profile import SCHEMA, GpuProfile, Profile, ProfiledModel

DEFAULT_METHOD = "RAWINT4"
"""What SGLang runs from a checkpoint of compressed-tensors INT4, and the first that a profile times."""


def datasheet_profile(
    model: ModelSpec,
    cpu: CpuDatasheet | str,
    gpu: GpuDatasheet | str,
    tp: int = 1,
    *,
    method: str = DEFAULT_METHOD,
    threads: int | None = None,
    adjustment: CpuAdjustment = AS_THE_SHEET,
) -> Profile:
    """The profile of ``model`` on a CPU and GPUs known by their datasheets, by sheet or by name.

    Parameters
    ----------
    method, threads
        CPU method and kernel threads; None for all cores but one of the memory nodes that the method runs on.
    adjustment
        What the server differs in from the CPU's sheet, where ``cpu`` is a name.

    Raises
    ------
    BadInputError
        When a name or the method is unknown, an adjustment out of range, or ``tp`` cuts heads or FP8 blocks.
    """
    model.check_tp(tp)
    sheet = cpu_datasheet(cpu, adjustment) if isinstance(cpu, str) else cpu
    graphics = gpu_datasheet(gpu) if isinstance(gpu, str) else gpu
    return Profile(
        schema=SCHEMA,
        placer_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=profiled_model(model),
        tp=tp,
        cpu=datasheet_cpu(model, sheet, method=method, threads=threads),
        gpu=datasheet_gpu(model, behind(graphics, sheet.pcie_generation), tp),
    )


def datasheet_cpu(
    model: ModelSpec, sheet: CpuDatasheet, *, method: str = DEFAULT_METHOD, threads: int | None = None
) -> DatasheetCpu:
    """The CPU's side of ``model`` by datasheet; raises what `roofline_cold` raises.

    Raises
    ------
    BadInputError
        Also when the method's kernel cannot run these sizes.
    """
    kernel, shape, nodes = cold_kernel(method), expert_shape(model), sheet.numa_nodes
    if needs := CPU_METHOD_NEEDS.get(kernel.method):
        if problem := needs.problem(shape, frozenset(sheet.isa)):
            raise BadInputError(
                f"{kernel.method} cannot run {model.name}: {problem}", _cure(model, kernel.method, sheet)
            )
        nodes = needs.memory_nodes(shape, nodes)
    size = model.expert_bytes(kernel.format, numa_nodes=nodes)
    found = roofline_cold(sheet, shape, size, method=method, threads=threads, numa_nodes=nodes)
    unused = unused_nodes(sheet, kernel.method, shape, nodes)
    if unused is None:
        return found
    wider = [each for each in cpu_methods(model, sheet) if _runs_on(each, shape, sheet.numa_nodes)]
    instead = f"; --cpu-method {' or '.join(wider)} runs on all of them" if wider else ""
    return replace(found, notes=(f"{unused} (serve with --kt-threadpool-count {nodes}){instead}",))


def _runs_on(method: str, shape: ExpertShape, nodes: int) -> bool:
    """Whether ``method`` cuts its experts over ``nodes`` memory nodes."""
    needs = CPU_METHOD_NEEDS[method]
    return needs.cut_over_nodes and needs.memory_nodes(shape, nodes) == nodes


def _cure(model: ModelSpec, refusing: str, sheet: CpuDatasheet) -> str:
    able = [method for method in cpu_methods(model, sheet) if method != refusing]
    return (
        f"use --cpu-method {' or '.join(able)}" if able else "no kernel takes such sizes: give another model"
    )


def cpu_methods(model: ModelSpec, sheet: CpuDatasheet) -> tuple[str, ...]:
    """The methods whose kernels take experts of these sizes on this CPU, as ``--cpu-method`` names them."""
    shape, flags = expert_shape(model), frozenset(sheet.isa)
    return tuple(method for method, needs in CPU_METHOD_NEEDS.items() if needs.problem(shape, flags) is None)


def datasheet_gpu(model: ModelSpec, sheet: GpuDatasheet, tp: int) -> GpuProfile:
    """The GPU's side of ``model`` under ``tp`` by datasheet."""
    return GpuProfile(
        name=sheet.name,
        usable_bytes=sheet.usable_bytes,
        provenance=Provenance.DATASHEET,
        source=sheet.source,
        efficiency=dict(roofline.EFFICIENCY),
        hot=roofline.roofline_hot(sheet, model, tp),
        rates=roofline.roofline_rates(sheet, model, tp),
        kernel=None,
    )


def expert_shape(model: ModelSpec) -> ExpertShape:
    """The experts of ``model`` as kernels see them."""
    return ExpertShape(model.expert_hidden_size, model.expert_intermediate_size, model.experts, model.top_k)


def profiled_model(model: ModelSpec) -> ProfiledModel:
    """What a profile says of ``model``."""
    return ProfiledModel(
        name=model.name,
        config_sha256=model.config_sha256,
        hidden_size=model.hidden_size,
        expert_intermediate_size=model.expert_intermediate_size,
        experts=model.experts,
        top_k=model.top_k,
    )
