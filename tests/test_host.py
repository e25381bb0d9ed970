"""The host ledger: kt-kernel holds every expert, hot ones too."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_model import QWEN3_CODER_480B
from tiny_model import tiny_model

from placer.demand import MemoryDemand
from placer.errors import InfeasibleError
from placer.host import CPU_FORMATS, HostRoom, check_host_memory, host_ledger
from placer.level_room import request_levels, without_host
from placer.model.spec import ModelSpec, read_model
from placer.parallelism import Parallelism
from placer.solve_request import SolveRequest
from placer.units import GIB, enough_gib, parse_size
from placer.workload import Workload


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("coder")
    (folder / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    return read_model(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def test_a_480b_model_holds_all_9920_experts_in_host_memory(coder: ModelSpec) -> None:
    lines = host_ledger(coder, cpu_method="RAWINT4", chunk_tokens=8192, numa_nodes=1).lines
    assert lines["experts"] == 9_920 * 29_491_200


def test_on_two_numa_nodes(coder: ModelSpec) -> None:
    host = host_ledger(coder, cpu_method="AMXINT4", chunk_tokens=8192, numa_nodes=2)
    assert host.lines["experts"] == 9_920 * 23_662_592
    assert host.lines["experts"] / 1e9 == pytest.approx(234.7, abs=0.05)
    # The worked scratch of one node of two at a chunk of 8,192 is 4.9 GB.
    assert host.lines["scratch"] / 2 / 1e9 == pytest.approx(4.9, abs=0.05)
    assert host.node_bytes == (host.lines["experts"] + host.lines["scratch"]) // 2


def test_scratch_and_staging_by_hand(tiny: ModelSpec) -> None:
    # Ten tokens, top-2, 8 experts, H 256, I 128 on one node: 20 + 32 · 8 = 276 rows.
    host = host_ledger(tiny, cpu_method="RAWINT4", chunk_tokens=10, numa_nodes=1)
    assert host.lines["scratch"] == 2 * 20 * (512 + 256) + 276 * (256 + 128) + 4 * 276 * (256 + 256)
    # Input and output of 256 in two bytes, ids of eight and weights of four, twice.
    assert host.lines["staging"] == 2 * 10 * (2 * 256 * 2 + 2 * 12)
    assert host.total_bytes == sum(host.lines.values())


@given(
    chunk=st.integers(1, 8192),
    more=st.integers(0, 8192),
    nodes=st.sampled_from([1, 2, 4]),
    method=st.sampled_from(sorted(CPU_FORMATS)),
)
def test_a_larger_chunk_never_needs_less(
    tiny: ModelSpec, chunk: int, more: int, nodes: int, method: str
) -> None:
    small = host_ledger(tiny, cpu_method=method, chunk_tokens=chunk, numa_nodes=nodes)
    large = host_ledger(tiny, cpu_method=method, chunk_tokens=chunk + more, numa_nodes=nodes)
    assert large.total_bytes >= small.total_bytes
    assert large.lines["experts"] == small.lines["experts"]
    assert small.node_bytes * nodes >= small.lines["experts"] + small.lines["scratch"]


def test_memory_is_checked_against_every_expert(coder: ModelSpec) -> None:
    host = host_ledger(coder, cpu_method="AMXINT4", chunk_tokens=8192, numa_nodes=2)
    check_host_memory(host, None)
    check_host_memory(host, host.total_bytes)
    with pytest.raises(InfeasibleError, match="'experts'") as caught:
        check_host_memory(host, host.total_bytes - 1)
    assert "--host-memory" in caught.value.hint
    # Cold experts alone, 64 of 160, would fit into half of it: the check does not fall for that.
    with pytest.raises(InfeasibleError):
        check_host_memory(host, 128 * GIB)


def test_levels_whose_host_ledger_does_not_fit_are_left_out(tiny: ModelSpec) -> None:
    tiny = replace(tiny, max_context_tokens=4096)
    asked = SolveRequest(Workload(1024, 64, 4), budget_bytes=8 * GIB)
    free = request_levels(tiny, asked)
    chunks = sorted({level.settings.chunk_tokens for level in free})
    assert chunks == [512, 1024]
    enough = HostRoom("RAWINT4", 1, None).ledger(tiny, 512).total_bytes
    tight = replace(asked, host=HostRoom("RAWINT4", 1, enough))
    assert request_levels(tiny, tight) == tuple(each for each in free if each.settings.chunk_tokens == 512)
    short = replace(asked, host=HostRoom("RAWINT4", 1, enough - 1))
    with pytest.raises(InfeasibleError, match="host memory"):
        request_levels(tiny, short)


def test_a_server_whose_experts_are_all_hot_needs_no_host_memory(tiny: ModelSpec) -> None:
    tiny = replace(tiny, max_context_tokens=4096)
    room = HostRoom("RAWINT4", 1, 2**20)
    asked = SolveRequest(Workload(1024, 64, 4), budget_bytes=8 * GIB, host=room)
    spared = without_host(tiny, asked)
    assert (spared.host, spared.least_hot) == (None, tiny.experts)
    every = len(tiny.moe_layers) * tiny.experts
    assert all(level.room_experts == every for level in request_levels(tiny, spared))
    # Nothing else is asked where host memory holds the experts, or some experts stay cold.
    for changed in (
        {"host": replace(room, memory_bytes=64 * GIB)},
        {"most_hot": tiny.experts - 1},
        {"pins": {tiny.moe_layers[0]: False}},
    ):
        other = replace(asked, **changed)
        assert without_host(tiny, other) is other
    least = room.ledger(tiny, 512).total_bytes
    needed = MemoryDemand(tiny, Parallelism(1), 8 * GIB, 1, 512, "bf16", 0, request_tokens=1088)
    tight = replace(asked, budget_bytes=needed.ledger().needed_bytes)
    assert without_host(tiny, tight) is tight
    with pytest.raises(InfeasibleError, match="host memory") as caught:
        request_levels(tiny, tight)
    size = re.search(
        r"--hbm-budget of at least (\S+) \(every expert hot needs none there\)", caught.value.hint
    )
    assert size is not None
    assert (
        without_host(tiny, replace(tight, budget_bytes=parse_size(size.group(1)))).least_hot == tiny.experts
    )
    with pytest.raises(InfeasibleError) as caught:
        request_levels(tiny, replace(tight, device_bytes=tight.budget_bytes))
    assert "--hbm-budget" not in caught.value.hint
    # Where both memories are short, no change of one is a cure.
    with pytest.raises(InfeasibleError, match=r"host memory of 1\.0 MiB is too small too") as caught:
        request_levels(tiny, replace(tight, budget_bytes=tight.budget_bytes - 2**20))
    cures = caught.value.hint.removeprefix("any one of these fits: ").split("; ")
    assert all(cure.endswith(f" and --host-memory of at least {enough_gib(least):.2f}GiB") for cure in cures)


def test_a_smaller_chunk_is_advised_where_host_memory_holds_it(tiny: ModelSpec) -> None:
    tiny = replace(tiny, max_context_tokens=4096)
    room = HostRoom("RAWINT4", 1, None)
    enough = room.ledger(tiny, 448).total_bytes
    for chunk in (None, 2048):
        asked = SolveRequest(
            Workload(1024, 64, 4),
            budget_bytes=8 * GIB,
            chunk_tokens=chunk,
            host=replace(room, memory_bytes=enough),
        )
        with pytest.raises(InfeasibleError) as caught:
            request_levels(tiny, asked)
        assert "any one of these fits: --chunk of at most 448; or plan for a server with" in caught.value.hint
        assert {
            level.settings.chunk_tokens for level in request_levels(tiny, replace(asked, chunk_tokens=448))
        } == {448}
    # No chunk helps where the experts alone do not fit.
    hopeless = replace(asked, host=replace(room, memory_bytes=room.ledger(tiny, 64).lines["experts"]))
    with pytest.raises(InfeasibleError) as caught:
        request_levels(tiny, hopeless)
    assert "--chunk" not in caught.value.hint
