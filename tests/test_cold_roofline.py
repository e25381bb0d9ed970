"""The CPU's roofline: bytes or arithmetic by hand, against kernels that were timed, and what may be asked of it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.cpu_datasheet import CPU_NAMES, cpu_datasheet
from placer.errors import BadInputError
from placer.examples.datasheet_check import QWEN30, QWEN480, TIMED, TimedKernel, table
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cold_kernel import COLD_KERNELS
from placer.profiler.cold_roofline import BAND, NUMA_SHARE, lone_expert_factor, roofline_cold
from placer.profiler.cost import Provenance
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.fit import call_us


def bytes_of(shape: ExpertShape, per_weight: float) -> int:
    return int(shape.parameters * per_weight)


def times(sheet: DatasheetCpu, tokens: int, rows: list[int]) -> list[float]:
    """Microseconds of an expert with each of ``rows`` in a call of ``tokens``."""
    return [float(us) for us in sheet.cost.regime(tokens).rows_us(np.array(rows))]


def test_an_expert_costs_its_bytes_or_its_arithmetic() -> None:
    cpu = cpu_datasheet("xeon-8480+")
    size = bytes_of(QWEN30, 0.625)
    found = roofline_cold(cpu, QWEN30, size, threads=50)
    # 2,949,120 bytes at 47 % of 8 · 8 · 4.8 GB/s; one row is less work than that.
    read_us = 2_949_120 / (0.47 * 307.2e9) * 1e6
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


@pytest.mark.parametrize("timed", TIMED, ids=lambda timed: f"{timed.cpu.name}-{timed.method}-{timed.tokens}")
def test_timed_kernels_lie_in_the_band(timed: TimedKernel) -> None:
    ratios = timed.ratios()
    low, high = BAND
    assert low < ratios.min()
    assert ratios.max() < high
    # Kernels' rates were timed: they hold closer than the band, which is for what was not.
    assert 0.7 < ratios.min() <= ratios.max() < 1.3


def test_the_document_shows_the_table() -> None:
    document = Path(__file__).resolve().parents[1] / "docs" / "datasheets.md"
    assert table() in document.read_text(encoding="utf-8")


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


def test_a_call_with_rows_joins_its_threads_five_times() -> None:
    size = bytes_of(QWEN30, 0.625)
    found = roofline_cold(cpu_datasheet("xeon-8480+"), QWEN30, size, threads=32).cost
    tokens = np.array([4])
    # Without rows 25 µs and 4 tokens of 2048 values at 1 ns over 32 threads; with rows 5 · 1.75 · log2(32) more.
    assert found.idle_us(tokens)[0] == pytest.approx(25.0 + 4 * 2048e-3 / 32)
    assert found.fixed_us(tokens)[0] - found.idle_us(tokens)[0] == pytest.approx(5 * 1.75 * 5)
    alone = roofline_cold(cpu_datasheet("xeon-8480+"), QWEN30, size, threads=1).cost
    assert alone.fixed_us(tokens)[0] == alone.idle_us(tokens)[0]


def test_smaller_blocks_leave_fewer_threads_idle() -> None:
    # FP8 takes 128 columns at a time: 12 blocks of gate and up and 16 of down, for 64 threads.
    assert lone_expert_factor(QWEN30, 64, 128) == pytest.approx(64 * (2 / 3 / 12 + 1 / 3 / 16))


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
