"""Changes to a plan's server, each as a request of its own."""

from dataclasses import replace

import pytest
from profiles import profile
from tiny_model import line, tiny_cost, tiny_model

from placer.change import Change, changes
from placer.datasheet import larger_gpu
from placer.hbm import ServerSettings
from placer.model.spec import ModelSpec
from placer.profiler.cost import Provenance, SideCost
from placer.profiler.profile import Profile
from placer.profiler.timing.thread_timing import ThreadTiming
from placer.solve_request import SolveRequest
from placer.tp_cost import tp_cost
from placer.units import GIB
from placer.workload import Workload

WORKLOAD = Workload(prompt_tokens=64, output_tokens=32, concurrency=8, slo_tpot_ms=5.0)
SETTINGS = ServerSettings(8, 2048, 512, "bf16")
REQUEST = SolveRequest(WORKLOAD, 2 * GIB, frontier=True, prove=True, device_bytes=4 * GIB)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def made() -> Profile:
    """`tiny_cost`'s figures, and a CPU kernel that works differently beyond 16 tokens: 4 · 8 experts / top-2."""
    known, cost = profile(), tiny_cost()
    small, large = line(20.0, 100.0, 10.0), line(20.0, 40.0, 4.0)
    cold = SideCost((replace(small, max_tokens=16), replace(large, min_tokens=17)), Provenance.MEASURED)
    return replace(
        known,
        cpu=replace(known.cpu, cost=cold),
        gpu=replace(known.gpu, hot=cost.hot, rates=cost.rates),
    )


def asked(
    model: ModelSpec, made: Profile, request: SolveRequest = REQUEST, settings: ServerSettings = SETTINGS
) -> dict[str, Change]:
    return {change.text: change for change in changes(model, made, request, settings)}


def test_every_change_is_the_plans_request_but_for_one_thing(tiny: ModelSpec, made: Profile) -> None:
    found = asked(tiny, made)
    assert list(found) == [
        "KV in fp8",
        "chunk of 256",
        "4 running",
        "16 running, 16 clients",
        "17 running, 17 clients",
        "more than 1 CPU threads",
        "2 GPUs (tp 2)",
        "10 % more HBM",
        # Half of its memory, as the plan's is half of its GPU's.
        "11.75 GiB of rtx-4090's 23.50 GiB",
    ]
    planned = found["10 % more HBM"].request
    assert planned is not None
    assert planned.budget_bytes == int(1.1 * 2 * GIB)
    assert (planned.max_running, planned.chunk_tokens, planned.kv_dtypes) == (8, 512, ("bf16",))
    # Targets, proofs and tables are the plan's own.
    assert planned.workload.slo_tpot_ms is None
    assert not planned.frontier
    assert not planned.prove
    twice = found["16 running, 16 clients"].request
    assert twice is not None
    assert (twice.max_running, twice.workload.concurrency) == (16, 16)


def test_the_border_of_the_cpu_kernel_is_named_where_it_is_crossed(tiny: ModelSpec, made: Profile) -> None:
    found = asked(tiny, made)
    assert found["16 running, 16 clients"].regime is None
    beyond = found["17 running, 17 clients"]
    assert beyond.regime == "17 tokens a step lie beyond the border of the CPU kernel at 16 (4E/top-k)"
    crowd = replace(REQUEST, workload=replace(WORKLOAD, concurrency=64))
    back = asked(tiny, made, crowd, replace(SETTINGS, max_running_requests=17))["8 running"]
    assert back.regime == "8 tokens a step lie within the border of the CPU kernel at 16 (4E/top-k)"


def test_waiting_clients_leave_room_for_more_running_requests(tiny: ModelSpec, made: Profile) -> None:
    found = asked(tiny, made, replace(REQUEST, workload=replace(WORKLOAD, concurrency=64)))
    assert {"16 running", "17 running"} <= set(found)


def test_threads_follow_the_profiles_sweep_or_cannot_be_told(tiny: ModelSpec, made: Profile) -> None:
    alone = asked(tiny, made)["more than 1 CPU threads"]
    assert alone.request is None
    assert alone.origin.startswith("cannot be told: the profile was made with one count")
    # Two threads took 60 µs where one took 100: the cold side takes 0.6 times as long.
    swept = replace(
        made,
        cpu=replace(made.cpu, sweep=(ThreadTiming(1, 1, 100.0, 101.0), ThreadTiming(2, 1, 60.0, 61.0))),
    )
    more = asked(tiny, swept)["2 CPU threads (not 1)"]
    assert more.origin.startswith("extrapolated: the cold side times 0.60")
    assert more.cost.cold.regimes[0].expert_us == pytest.approx(60.0)


def test_a_budget_beyond_the_gpu_says_so(tiny: ModelSpec, made: Profile) -> None:
    found = asked(tiny, made, replace(REQUEST, budget_bytes=4 * GIB))
    assert "10 % more HBM, beyond the GPU's 4.00 GiB" in found
    assert "23.50 GiB, as rtx-4090" in found


def test_the_next_larger_gpu() -> None:
    assert larger_gpu(int(23.5 * GIB)).name == "rtx-5090"
    assert larger_gpu(178 * GIB) is None


def test_measured_kernels_share_their_rows_and_keep_their_calls(tiny: ModelSpec, made: Profile) -> None:
    measured = replace(made, gpu=replace(made.gpu, kernel=made.cpu))
    cost, origin = tp_cost(tiny, measured, 2, SETTINGS, WORKLOAD)
    (regime,) = cost.hot.regimes
    # At tp 1 a call takes 5 µs, an expert 2 and a row 1.
    assert (regime.fixed_us, regime.expert_us, regime.tile_us) == (5.0, 1.0, 0.5)
    # Two sums over PCIe: 2 µs and two steps of 3 each.
    assert cost.rates.layer_call_us == made.gpu.rates.layer_call_us + 16.0
    assert "measured at tp 1, the time of its rows divided by 2" in origin
    assert cost.hot.provenance is Provenance.EXTRAPOLATED


def test_a_datasheets_gpu_is_costed_again(tiny: ModelSpec, made: Profile) -> None:
    cost, origin = tp_cost(tiny, made, 2, SETTINGS, WORKLOAD)
    assert cost.hot.provenance is Provenance.DATASHEET
    assert "datasheet of rtx-4090 at tp 2" in origin


def test_tp_that_cuts_fp8_blocks_cannot_be_told(tiny: ModelSpec, made: Profile) -> None:
    # Experts are 128 wide, in blocks of 128: two GPUs cannot share one.
    change = asked(tiny, made)["2 GPUs (tp 2)"]
    assert change.request is None
    assert change.origin.startswith("cannot be told: ")
