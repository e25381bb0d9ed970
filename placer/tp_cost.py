"""The cost model of a profile at another tensor-parallel size than it was made for."""

from dataclasses import replace

from placer.datasheet import GpuDatasheet
from placer.hbm import ServerSettings
from placer.host_link import sheet_of
from placer.level_cost import step_load
from placer.model.spec import ModelSpec
from placer.profiler.base import step_base_us
from placer.profiler.cost import CostModel, GpuRates, Provenance, Regime, SideCost
from placer.profiler.profile import Profile
from placer.profiler.roofline import roofline_hot, roofline_rates, sums_us
from placer.profiler.steps import StepKind
from placer.workload import Workload


def tp_cost(
    model: ModelSpec, profile: Profile, tp: int, settings: ServerSettings, workload: Workload
) -> tuple[CostModel, str]:
    """Both sides at ``tp`` GPUs, and how that was obtained, in words.

    A GPU of a datasheet is costed again. Measured kernels were timed on the profile's share of an expert: the time of
    experts' rows is divided by as much as the share shrinks, a call's is kept. A measured rest of the step is scaled
    by what a roofline of the same rates says of a decode step at ``settings``.
    """
    gpu = profile.gpu
    sheet = sheet_of(profile)
    rates = _rates(gpu.rates, sheet, model, profile.tp, tp)
    if gpu.kernel is None and sheet is not None:
        hot = roofline_hot(sheet, model, tp)
        origin = f"hot side from the datasheet of {sheet.name} at tp {tp}"
    else:
        hot = _shared(gpu.hot, profile.tp / tp)
        origin = f"hot side measured at tp {profile.tp}, the time of its rows divided by {tp / profile.tp:g}"
    factor = 1.0
    if gpu.base is not None:
        load = step_load(StepKind.DECODE, settings.max_running_requests, settings, workload)
        factor = step_base_us(model, rates, load, tp=tp, kv_dtype=settings.kv_dtype) / step_base_us(
            model, gpu.rates, load, tp=profile.tp, kv_dtype=settings.kv_dtype
        )
        origin += f", the rest measured at tp {profile.tp}, times {factor:.2f} by its roofline"
    else:
        origin += ", the rest from the same rates"
    if profile.tp == 1:
        origin += f", sums over GPUs {sums_us(sheet, tp):g} µs a layer (assumed)"
    cost = replace(profile.kernel_cost_model(), hot=hot, rates=rates, base_factor=factor)
    if profile.calibration is not None:
        cost = cost.calibrated(profile.calibration.factors)
    return cost, origin


def _rates(rates: GpuRates, sheet: GpuDatasheet | None, model: ModelSpec, known_tp: int, tp: int) -> GpuRates:
    """``rates`` with the sums over ``tp`` GPUs in place of those over ``known_tp``."""
    token_us = 0.0 if sheet is None else roofline_rates(sheet, model, tp).layer_token_us
    return replace(
        rates,
        layer_call_us=rates.layer_call_us - sums_us(sheet, known_tp) + sums_us(sheet, tp),
        layer_token_us=token_us,
    )


def _shared(side: SideCost, share: float) -> SideCost:
    """``side`` with the time of its rows multiplied by ``share``, and that of its calls kept."""

    def regime(each: Regime) -> Regime:
        return replace(
            each,
            expert_us=each.expert_us * share,
            tile_us=each.tile_us * share,
            residue_us=tuple(us * share for us in each.residue_us),
            floor_us=each.floor_us * share,
        )

    return SideCost(tuple(regime(each) for each in side.regimes), Provenance.EXTRAPOLATED)
