"""A plan whose experts are all hot, beside the same server started without CPU experts."""

import math
from typing import Literal

from placer.band import Band
from placer.errors import BadInputError
from placer.gpu_only_section import GpuOnlySection
from placer.model.spec import ModelSpec
from placer.modes.hardware import profiled_hardware
from placer.modes.mode import Mode, ModeRow, Way
from placer.modes.request import CompareRequest
from placer.modes.rows import ModeRows
from placer.modes.steps import judged_trace
from placer.parallelism import Parallelism
from placer.placement import PlacementDocument
from placer.predicted_sections import BandSection
from placer.profiler.profile import Profile
from placer.profiler.trace.trace import Trace
from placer.solve_request import SolveRequest


def with_gpu_only(
    document: PlacementDocument,
    model: ModelSpec,
    trace: Trace | None,
    profile: Profile,
    request: SolveRequest,
) -> PlacementDocument:
    """``document`` with what the row gpu-only of a comparison says of the same GPUs, budget and traffic.

    That row takes the fastest settings that keep the targets; ``document`` is returned as it is unless all of its
    experts are hot.
    """
    if not document.every_expert_hot:
        return document
    try:
        row = _row(document, model, trace, profile, request)
    except BadInputError as error:
        # A GPU that no datasheet describes, or a profile that was taken by force.
        section = GpuOnlySection(fits=False, problem=error.what)
    else:
        section = _section(row, document.kv.dtype)
    return document.model_copy(update={"gpu_only": section})


def _row(
    document: PlacementDocument,
    model: ModelSpec,
    trace: Trace | None,
    profile: Profile,
    request: SolveRequest,
) -> ModeRow:
    asked = CompareRequest(
        workload=request.workload,
        gpus=(request.tp,),
        budget_bytes=request.budget_bytes,
        device_bytes=request.device_bytes or request.budget_bytes,
        kv_tokens=request.min_kv_tokens,
        kv_dtype=document.kv.dtype,
        seed=request.seed,
        scheduler=request.scheduler,
    )
    hardware = profiled_hardware(model, profile, None)
    judged = judged_trace(model, trace, request.seed)
    made = ModeRows(model, hardware, trace, judged, asked)
    return made.row(Way(Mode.GPU_ONLY, Parallelism(request.tp)))


def _section(row: ModeRow, kv_dtype: Literal["bf16", "fp8"]) -> GpuOnlySection:
    if row.figures is None or row.settings is None:
        return GpuOnlySection(fits=False, problem=row.obstacle.reason if row.obstacle else row.stopper)
    bands, settings = row.figures.bands, row.settings
    return GpuOnlySection(
        fits=True,
        output_tokens_per_s=_finite(bands.output_tokens_per_s),
        tpot_ms_p95=_finite(bands.tpot_ms_p95),
        ttft_ms_p95=_finite(bands.ttft_ms_p95),
        kv_tokens=settings.kv_tokens,
        kv_dtype=kv_dtype,
        max_running_requests=settings.max_running_requests,
        chunked_prefill_size=settings.chunk_tokens,
        provenance=dict(row.provenance),
    )


def _finite(band: Band) -> BandSection:
    """``band``, null where it has no bound."""
    low, mid, high = (value if math.isfinite(value) else None for value in band)
    return BandSection(low=low, mid=mid, high=high)
