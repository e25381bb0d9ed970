"""The settings of a way of running a model: the best of all that fit, found without playing them all."""

from dataclasses import replace

import pytest
from profiles import profile
from tiny_model import tiny_model

from placer.hbm import ServerSettings
from placer.kernels.expert_shape import ExpertShape
from placer.model.spec import ModelSpec
from placer.modes.gpu_only import GpuLayers
from placer.modes.hardware import ComparedHardware, profiled_hardware
from placer.modes.hot_cold import solve_compared
from placer.modes.memory import ModeMemory
from placer.modes.mode import Cache, Mode, Way
from placer.modes.request import CompareRequest
from placer.modes.search import play, search, target_excess
from placer.modes.step_times import ModeTimes
from placer.modes.steps import ComparedSteps
from placer.parallelism import Parallelism
from placer.prediction import Prediction
from placer.serving import ServingFigures
from placer.solve_request import SolveRequest
from placer.untraced import solve_untraced, uniform_trace
from placer.workload import Workload

GIB = 2**30
SHAPE = ExpertShape(hidden_size=256, expert_intermediate_size=128, experts=8, top_k=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def hardware(model: ModelSpec) -> ComparedHardware:
    return profiled_hardware(model, profile(SHAPE), None)


class Server:
    """GPU-only serving of the tiny model on one GPU: 48 clients of prompts 32 times their outputs."""

    def __init__(self, model: ModelSpec, hardware: ComparedHardware, **targets: float) -> None:
        workload = Workload(1024, 32, 48, **targets)
        self.request = CompareRequest(workload, (1,), 8 * GIB, 8 * GIB)
        one = Parallelism(1)
        self.demands = tuple(ModeMemory(model, Way(Mode.GPU_ONLY, one), self.request).demands())
        cost = hardware.at(one).cost_model()
        layers = GpuLayers(cost.hot, ComparedSteps(uniform_trace(model, 0), 0), 1)
        self.times = ModeTimes(model, cost, layers, workload, 1, self.request.scheduler)

    def all(self) -> list[tuple[ServerSettings, ServingFigures]]:
        """Every server that fits, played."""
        return [(each.settings, play(self.times, each.settings, self.request)) for each in self.demands]

    def found(self) -> tuple[ServerSettings, ServingFigures]:
        candidate, figures = search(self.demands, lambda _slots: self.times, self.request)
        return candidate.settings, figures


@pytest.fixture(scope="module")
def everything(model: ModelSpec, hardware: ComparedHardware) -> list[tuple[ServerSettings, ServingFigures]]:
    return Server(model, hardware).all()


def between(values: list[float], share: float) -> float:
    """So far from the least to the largest of ``values``."""
    return min(values) + share * (max(values) - min(values))


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.4, 0.7])
def test_the_fastest_that_keeps_a_target_is_found_whatever_misses_it(
    model: ModelSpec,
    hardware: ComparedHardware,
    everything: list[tuple[ServerSettings, ServingFigures]],
    share: float,
) -> None:
    target = between([figures.tpot_ms.p95 for _, figures in everything], share)
    best = max(
        (figures for _, figures in everything if figures.tpot_ms.p95 <= target),
        key=lambda figures: figures.output_tokens_per_s,
    )
    _, found = Server(model, hardware, slo_tpot_ms=target).found()
    assert found.tpot_ms.p95 <= target
    assert found.output_tokens_per_s == pytest.approx(best.output_tokens_per_s, rel=0.02)


@pytest.mark.parametrize("tpot", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("ttft", [0.01, 0.1, 0.5])
def test_where_two_targets_cannot_both_be_kept_the_nearest_to_both_is_found(
    model: ModelSpec,
    hardware: ComparedHardware,
    everything: list[tuple[ServerSettings, ServingFigures]],
    tpot: float,
    ttft: float,
) -> None:
    server = Server(
        model,
        hardware,
        slo_tpot_ms=between([figures.tpot_ms.p95 for _, figures in everything], tpot),
        slo_ttft_ms=between([figures.ttft_ms.p95 for _, figures in everything], ttft),
    )
    least = min(target_excess(figures, server.request.workload) for _, figures in everything)
    _, found = server.found()
    assert target_excess(found, server.request.workload) <= max(1.0, 1.02 * least)


def test_without_targets_one_server_is_played(model: ModelSpec, hardware: ComparedHardware) -> None:
    settings, figures = Server(model, hardware).found()
    assert settings.max_running_requests == 48
    assert figures.output_tokens_per_s > 0


@pytest.mark.parametrize("running", [2, 6, 24])
def test_hot_experts_beside_cold_ones_serve_as_many_as_the_target_allows(
    model: ModelSpec, hardware: ComparedHardware, running: int
) -> None:
    workload, cost = Workload(256, 64, 48), hardware.profile.cost_model()
    asked = SolveRequest(
        workload=workload, budget_bytes=8 * GIB, tp=1, max_running=running, device_bytes=8 * GIB
    )
    served = solve_untraced(model, cost, asked).prediction
    target = replace(workload, slo_tpot_ms=1.001 * served.tpot_ms_p95)
    found = solve_compared(model, None, cost, CompareRequest(target, (1,), 8 * GIB, 8 * GIB), 1)
    assert found.level.settings.max_running_requests == running
    assert found.prediction.tpot_ms_p95 <= 1.001 * served.tpot_ms_p95


@pytest.mark.parametrize("most", [5, 7, 11])
@pytest.mark.parametrize("cache", [None, Cache.LRU])
def test_the_most_requests_that_fit_beside_all_experts_are_tried(
    model: ModelSpec, cache: Cache | None, most: int
) -> None:
    """A grid of 1, 2, 3, 4, 6, 8, 12 would leave room for one more unused, or take experts off the GPU for it."""
    way = Way(Mode.GPU_ONLY if cache is None else Mode.STREAMED, Parallelism(1), cache)
    free = CompareRequest(Workload(512, 512, 12), (1,), 8 * GIB, 8 * GIB)
    needed = [
        replace(demand, hot_per_layer=model.experts).ledger().needed_bytes
        for demand in ModeMemory(
            model, way, replace(free, workload=replace(free.workload, concurrency=most))
        ).demands()
        if demand.running == most
    ]
    tight = replace(free, budget_bytes=min(needed), device_bytes=min(needed))
    demands = list(ModeMemory(model, way, tight).demands())
    held = [demand.running for demand in demands if demand.hot_per_layer == model.experts]
    assert max(held) == most


@pytest.mark.parametrize(("short", "plenty"), [(3, 4), (4, 6)])
def test_of_servers_that_keep_a_target_one_that_keeps_up_is_taken(
    model: ModelSpec, hardware: ComparedHardware, short: int, plenty: int
) -> None:
    cost = hardware.profile.cost_model()

    def served(running: int, rate_per_s: float) -> Prediction:
        workload = Workload(256, 64, 48, rate_per_s=rate_per_s)
        asked = SolveRequest(
            workload=workload, budget_bytes=8 * GIB, tp=1, max_running=running, device_bytes=8 * GIB
        )
        return solve_untraced(model, cost, asked).prediction

    # ``short`` at a time finish all that arrives, but with so little to spare that waiting grows.
    serving = served(short, 1e6).serving
    assert serving is not None
    rate_per_s = 0.98 * serving.capacity_per_s
    few, enough = (served(running, rate_per_s) for running in (short, plenty))
    assert [each.serving is not None and each.serving.falls_behind for each in (few, enough)] == [True, False]
    target = Workload(256, 64, 48, rate_per_s=rate_per_s, slo_tpot_ms=1.001 * enough.tpot_ms_p95)
    found = solve_compared(model, None, cost, CompareRequest(target, (1,), 8 * GIB, 8 * GIB), 1).prediction
    assert found.serving is not None
    assert not found.serving.falls_behind
    assert found.tpot_ms_p95 <= 1.001 * enough.tpot_ms_p95
