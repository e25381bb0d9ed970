"""The table of CPUs: every row has a source, and figures that follow from cores, clocks and channels."""

import pytest

from placer.cpu_datasheet import CPU_NAMES, CpuAdjustment, cpu_datasheet
from placer.errors import BadInputError


@pytest.mark.parametrize("name", CPU_NAMES)
def test_every_row_is_sourced_and_plausible(name: str) -> None:
    cpu = cpu_datasheet(name)
    assert len(cpu.source) > 30
    assert len(cpu.arithmetic_source) > 30
    assert 16 <= cpu.cores <= 192
    # No base clock above the turbo, and no all-core clock of today's silicon above 5 GHz.
    assert 1.5 <= cpu.base_ghz <= cpu.clock_ghz <= 5.0
    assert cpu.memory_channels in (2, 4, 8, 12)
    assert 4400 <= cpu.memory_mts <= 6400
    # INT8 products are twice as many as bfloat16 ones in every unit.
    assert cpu.int8_ops_per_cycle == 2 * cpu.bf16_ops_per_cycle
    assert ("amx_int8" in cpu.isa) == (cpu.int8_ops_per_cycle == 2048) == name.startswith("xeon")


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        # Channels · 8 bytes · transfers: AMD states 460.80 GB/s for its 9004 series, 576 for DDR5-6000.
        ("epyc-9654", 460.8),
        ("epyc-9755", 576.0),
        ("xeon-8480+", 307.2),
        ("xeon-8480+x2", 614.4),
        ("xeon-6980p", 614.4),
        ("ryzen-9-7950x", 83.2),
    ],
)
def test_bandwidths_follow_from_channels_and_transfers(name: str, gb_per_s: float) -> None:
    assert cpu_datasheet(name).bandwidth_bytes_per_s == pytest.approx(gb_per_s * 1e9)


def test_peaks_follow_from_cores_clock_and_units() -> None:
    # 56 cores · 3.0 GHz · 2048 operations of AMX; 96 · 3.55 · 128 of VNNI.
    assert cpu_datasheet("xeon-8480+").int8_flops == pytest.approx(56 * 3.0e9 * 2048)
    assert cpu_datasheet("epyc-9654").int8_flops == pytest.approx(96 * 3.55e9 * 128)


def test_two_sockets_have_twice_of_everything_but_the_clock() -> None:
    one, two = cpu_datasheet("xeon-6454s"), cpu_datasheet("Xeon-6454Sx2")
    assert (two.name, two.sockets, two.numa_nodes) == ("xeon-6454sx2", 2, 2)
    assert (two.cores, two.cache_bytes) == (2 * one.cores, 2 * one.cache_bytes)
    assert two.clock_ghz == one.clock_ghz


def test_a_name_that_ends_in_x_is_one_socket() -> None:
    assert cpu_datasheet("threadripper-7970x").sockets == 1
    assert cpu_datasheet("epyc-9684xx2").cores == 192


@pytest.mark.parametrize("name", ["Xeon Gold 6454S", "xeon-gold-6454s", " XEON-6454S "])
def test_names_are_understood_as_makers_write_them(name: str) -> None:
    assert cpu_datasheet(name).name == "xeon-6454s"
    assert cpu_datasheet("EPYC 9654P").name == "epyc-9654"


def test_a_server_may_differ_from_the_sheet() -> None:
    asked = CpuAdjustment(cores=32, turbo_off=True, memory_channels=4, memory_mts=4400)
    cpu = cpu_datasheet("xeon-8480+", asked)
    assert (cpu.cores, cpu.clock_ghz) == (32, 2.0)
    assert cpu.bandwidth_bytes_per_s == 4 * 8 * 4400e6
    assert cpu.adjustments == (
        "32 of 56 cores",
        "turbo off: 2 GHz",
        "4 of 8 memory channels per socket",
        "memory at 4400 MT/s",
    )
    assert cpu_datasheet("xeon-8480+", CpuAdjustment(clock_ghz=2.6)).clock_ghz == 2.6


@pytest.mark.parametrize(
    ("name", "asked", "what"),
    [
        ("xeon-8480+", CpuAdjustment(cores=57), "--cores is 57"),
        ("xeon-8480+", CpuAdjustment(cores=0), "--cores is 0"),
        ("xeon-8480+", CpuAdjustment(clock_ghz=0.0), "--clock is 0"),
        ("xeon-8480+", CpuAdjustment(clock_ghz=2.0, turbo_off=True), "both were given"),
        ("xeon-8480+", CpuAdjustment(memory_channels=12), "--memory-channels is 12"),
        ("xeon-8480+", CpuAdjustment(memory_mts=0), "--memory-mts is 0"),
        ("xeon-8480+", CpuAdjustment(memory_mts=10), "--memory-mts is 10, "),
        ("ryzen-9-7950xx2", CpuAdjustment(), "runs in 1 socket"),
        ("epyc-9654x4", CpuAdjustment(), "runs in 2 socket"),
    ],
)
def test_what_no_server_is_is_refused(name: str, asked: CpuAdjustment, what: str) -> None:
    with pytest.raises(BadInputError, match=what):
        cpu_datasheet(name, asked)


def test_an_unknown_cpu_names_those_that_are_like_it_or_all_known() -> None:
    with pytest.raises(BadInputError, match="xeon-8480") as caught:
        cpu_datasheet("xeon-8480")
    assert caught.value.hint == "did you mean xeon-8480+?"
    with pytest.raises(BadInputError, match="unknown CPU 'z80'") as caught:
        cpu_datasheet("z80")
    assert "epyc-9965" in caught.value.hint
