"""The CPU's roofline: bytes or arithmetic by hand, against kernels that were timed, and what may be asked of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.cpu_datasheet import CPU_NAMES, CpuDatasheet, cpu_datasheet
from placer.errors import BadInputError
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cold_kernel import COLD_KERNELS
from placer.profiler.cold_roofline import BAND, NUMA_SHARE, lone_expert_factor, roofline_cold
from placer.profiler.cost import Provenance
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.fit import call_us

QWEN30 = ExpertShape(2048, 768, 128, 8)
QWEN480 = ExpertShape(6144, 2560, 48, 8)
"""The sizes of Qwen3-Coder-480B, with as many experts as the timings below had."""


def one_core(*, ghz: float, channel_mts: int, cores: int = 1) -> CpuDatasheet:
    """A machine of ``cores`` cores behind one memory channel."""
    return CpuDatasheet(
        name="measured",
        sockets=1,
        cores=cores,
        clock_ghz=ghz,
        base_ghz=ghz,
        memory_channels=1,
        memory_mts=channel_mts,
        cache_bytes=1 << 25,
        int8_ops_per_cycle=256,
        bf16_ops_per_cycle=32,
        isa=("avx2", "avx512f", "avx512bw"),
        pcie_generation=5,
        source="a test",
        arithmetic_source="a test",
    )


EMERALD = one_core(ghz=2.83, channel_mts=2050)
"""16.4 GB/s for one core, 725 Gop/s of VNNI: what the Emerald Rapids under the first timings below did."""
ZEN4 = one_core(ghz=3.45, channel_mts=3025)
"""24.2 GB/s for one core, 442 Gop/s of INT8: the Zen 4 under the last of them."""


def bytes_of(shape: ExpertShape, per_weight: float) -> int:
    return int(shape.parameters * per_weight)


def times(sheet: DatasheetCpu, tokens: int, rows: list[int]) -> list[float]:
    """Microseconds of an expert with each of ``rows`` in a call of ``tokens``."""
    return [float(us) for us in sheet.cost.regime(tokens).rows_us(np.array(rows))]


def test_an_expert_costs_its_bytes_or_its_arithmetic() -> None:
    cpu = cpu_datasheet("xeon-8480+")
    size = bytes_of(QWEN30, 0.625)
    found = roofline_cold(cpu, QWEN30, size, threads=50)
    # 2,949,120 bytes at 60 % of 8 · 8 · 4.8 GB/s; one row is less work than that.
    read_us = 2_949_120 / (0.6 * 307.2e9) * 1e6
    assert times(found, 8, [0, 1]) == pytest.approx([0.0, read_us])
    # 64 rows: 0.45 rows' worth of unpacking and 64 rows of 9,437,184 operations, 13.4 in a cycle of 50 cores at 3 GHz.
    row_us = 9_437_184 / (13.4 * 3_000 * 50)
    assert times(found, 64, [64]) == pytest.approx([64.45 * row_us])
    assert found.cost.provenance is Provenance.DATASHEET
    assert found.cost.regimes[0].floor_us == pytest.approx(read_us)


def test_the_second_kernel_starts_beyond_four_rows_per_expert_on_average() -> None:
    found = roofline_cold(cpu_datasheet("epyc-9654"), QWEN30, bytes_of(QWEN30, 0.625))
    assert found.border_tokens == 64
    few, many = found.cost.regimes
    assert (few.max_tokens, many.min_tokens) == (64, 65)
    # The same rows take less than half as long there, and three rows longer than four.
    assert times(found, 65, [32])[0] < 0.5 * times(found, 64, [32])[0]
    assert many.residue_us[3] > many.tile_us


def test_amx_serves_prefill_of_converted_weights_only_where_it_is() -> None:
    size = bytes_of(QWEN30, 0.5)
    intel, amd = (cpu_datasheet(name) for name in ("xeon-8480+", "epyc-9554"))
    with_amx = roofline_cold(intel, QWEN30, size, method="AMXINT4").cost.regimes[1]
    without = roofline_cold(amd, QWEN30, size, method="AMXINT4").cost.regimes[1]
    assert with_amx.tile == 16
    assert with_amx.tile_us / 16 < without.tile_us / without.tile / 5
    # RAWINT4 executes no tile instruction: AMX changes nothing.
    raw = roofline_cold(intel, QWEN30, size, method="RAWINT4")
    assert raw.cost.regimes[1].tile == 4


@pytest.mark.parametrize(
    ("method", "per_weight", "shape", "cpu", "tokens", "measured"),
    [
        # kt-kernel and torch, microseconds of an expert by rows, weights from memory: one core of an Emerald Rapids.
        (
            "RAWINT4",
            0.625,
            QWEN30,
            EMERALD,
            64,
            {1: 382, 2: 656, 4: 1120, 8: 2130, 16: 4310, 32: 8240, 64: 16190},
        ),
        (
            "RAWINT4",
            0.625,
            QWEN30,
            EMERALD,
            65,
            {1: 437, 2: 480, 3: 733, 4: 612, 8: 914, 16: 1718, 32: 3209, 64: 6354},
        ),
        ("RAWINT4", 0.625, QWEN480, EMERALD, 24, {1: 3770, 2: 6230, 4: 10970, 8: 20800, 16: 40030}),
        ("RAWINT4", 0.625, QWEN480, EMERALD, 25, {32: 28170, 64: 60680}),
        ("LLAMAFILE", 0.5625, QWEN30, EMERALD, 9, {1: 345, 2: 611, 4: 1013, 8: 1786, 9: 1958}),
        ("LLAMAFILE", 0.5625, QWEN30, EMERALD, 10, {10: 1028, 16: 1507, 32: 3031, 64: 6084}),
        ("torch", 0.625, QWEN30, EMERALD, 8, {1: 375, 2: 467, 4: 647, 8: 1227, 16: 2366, 32: 4634, 64: 9147}),
        ("torch", 0.625, QWEN480, EMERALD, 8, {1: 3474, 2: 4347, 4: 6232, 8: 11876, 16: 23140, 64: 91100}),
        # The fit of a profile on one core of a Zen 4.
        ("RAWINT4", 0.625, QWEN30, ZEN4, 64, {1: 238, 2: 455, 4: 863, 8: 1673, 32: 6530, 64: 13007}),
        ("RAWINT4", 0.625, QWEN30, ZEN4, 65, {1: 401, 2: 445, 3: 658, 4: 570, 8: 866, 16: 1510, 64: 5372}),
    ],
)
def test_timed_kernels_lie_in_the_band(
    method: str,
    per_weight: float,
    shape: ExpertShape,
    cpu: CpuDatasheet,
    tokens: int,
    measured: dict[int, float],
) -> None:
    found = roofline_cold(cpu, shape, bytes_of(shape, per_weight), method=method, threads=1)
    low, high = found.band
    ratios = np.array(list(measured.values())) / times(found, tokens, list(measured))
    assert ratios.min() > low
    assert ratios.max() < high
    # Kernels' rates were timed: they hold closer than the band, which is for what was not.
    assert 0.7 < ratios.min() <= ratios.max() < 1.3


def test_two_threads_on_two_cores_lie_in_the_band() -> None:
    cpu = one_core(ghz=2.83, channel_mts=4125, cores=2)
    found = roofline_cold(cpu, QWEN30, bytes_of(QWEN30, 0.625), method="torch", threads=2)
    measured = np.array([227, 275, 371, 676, 1252, 2409, 4690])
    ratios = measured / times(found, 8, [1, 2, 4, 8, 16, 32, 64])
    assert found.band[0] < ratios.min() <= ratios.max() < found.band[1]


@pytest.mark.parametrize(
    ("shape", "threads", "factor"),
    [
        # Gate and up: 6 blocks of 256 columns, down: 8. Of 64 threads 6 and then 8 work: 64 · (2/3/6 + 1/3/8).
        (QWEN30, 64, 9.78),
        # 20 and 24 blocks: 64 · (2/3/20 + 1/3/24).
        (QWEN480, 64, 3.02),
        (QWEN30, 1, 1.0),
        # Two threads share 6 and 8 blocks evenly.
        (QWEN30, 2, 1.0),
        # Four: 6 blocks take two rounds, in which 8 would fit.
        (QWEN30, 4, 1.22),
    ],
)
def test_a_lone_expert_leaves_threads_idle(shape: ExpertShape, threads: int, factor: float) -> None:
    assert lone_expert_factor(shape, threads) == pytest.approx(factor, abs=0.01)


def test_a_second_socket_helps_as_much_as_it_was_seen_to() -> None:
    size = bytes_of(QWEN480, 0.625)
    one = roofline_cold(cpu_datasheet("xeon-6454s"), QWEN480, size, threads=31).cost.regimes[0]
    two = roofline_cold(cpu_datasheet("xeon-6454sx2"), QWEN480, size, threads=62).cost.regimes[0]
    assert one.floor_us / two.floor_us == pytest.approx(2 * NUMA_SHARE)
    assert one.tile_us / two.tile_us == pytest.approx(2 * NUMA_SHARE)
    # An expert that cannot be cut over both runs on one of them.
    half = roofline_cold(cpu_datasheet("xeon-6454sx2"), QWEN480, size, numa_nodes=1)
    assert (half.threads, half.numa_nodes) == (31, 1)
    assert half.cost.regimes[0].floor_us == pytest.approx(one.floor_us)


DEEPSEEK = ExpertShape(7168, 2048, 256, 8)
DEEPSEEK_MOE_LAYERS = 58


@pytest.mark.parametrize(
    ("cpu", "tokens_per_s"),
    [
        # DeepSeek-V3 in Q4_K_M, all experts on the CPU, one request, a 4090 for the rest: one socket and two
        # (ktransformers doc/en/DeepseekR1_V3_tutorial.md, V0.2, eight experts).
        ("xeon-6454s", 8.73),
        ("xeon-6454sx2", 12.208),
    ],
)
def test_a_servers_tokens_leave_room_for_the_gpu_and_no_more_than_the_band(
    cpu: str, tokens_per_s: float
) -> None:
    found = roofline_cold(cpu_datasheet(cpu), DEEPSEEK, bytes_of(DEEPSEEK, 0.5625), method="LLAMAFILE")
    layer_us = call_us(found.cost, np.ones(8, dtype=np.int64), 1)
    cold_share = DEEPSEEK_MOE_LAYERS * layer_us / 1e6 * tokens_per_s
    # The GPU's part takes something between nothing and half of a token.
    assert found.band[0] < 1 / cold_share
    assert 0.5 / cold_share < found.band[1]


@settings(deadline=None)
@given(
    name=st.sampled_from(CPU_NAMES),
    method=st.sampled_from(sorted(COLD_KERNELS)),
    tokens=st.integers(1, 4096),
    rows=st.integers(1, 256),
)
def test_no_expert_is_free_and_whole_tiles_never_shrink(
    name: str, method: str, tokens: int, rows: int
) -> None:
    found = roofline_cold(cpu_datasheet(name), QWEN30, bytes_of(QWEN30, 0.625), method=method)
    regime = found.cost.regime(tokens)
    first, more = times(found, tokens, [rows, rows + regime.tile])
    assert 0 < regime.floor_us <= first <= more
    assert found.band == BAND


def test_unknown_methods_and_too_many_threads_are_refused() -> None:
    cpu = cpu_datasheet("epyc-9354")
    with pytest.raises(BadInputError, match="INT3") as caught:
        roofline_cold(cpu, QWEN30, 1, method="INT3")
    assert "RAWINT4" in caught.value.hint
    with pytest.raises(BadInputError, match="--threads is 33"):
        roofline_cold(cpu, QWEN30, 1, threads=33)
