"""Edited placements: fields that disagree are refused by name, whatever number was changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_configs import DEEPSEEK_V3, DEEPSEEK_V4_FLASH, MIMO_V2_FLASH, QWEN3_NEXT_80B
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placements import placement_dict
from planned import planned
from test_remedy import model_of
from tiny_model import TINY_CONFIG

from placer.errors import BadInputError
from placer.exports.kt_flags import server_flags
from placer.hbm import HbmLedger, free_memory_share
from placer.parallelism import Parallelism
from placer.placement import PlacementDocument, read_placement, render_placement
from placer.units import GIB

CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tiny": (TINY_CONFIG, {"kv_dtype": "bf16", "budget_bytes": 4 * GIB}),
    "windows": (MIMO_V2_FLASH, {"running": 2, "request_tokens": 30_000}),
    "states": (QWEN3_NEXT_80B, {"parallel": Parallelism(2)}),
    "drafting": (DEEPSEEK_V3, {"speculative": True, "parallel": Parallelism(8)}),
    "compressed": (DEEPSEEK_V4_FLASH, {}),
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    made = {}
    for name, (config, changes) in CONFIGS.items():
        model = model_of(tmp_path_factory.mktemp("model"), config)
        first, last = model.moe_layers[0], model.moe_layers[-1]
        document = planned(model, {first: [2, 0, 3], last: [1]}, **changes)
        made[name] = json.loads(render_placement(document))
    return made


def read(folder: Path, document: dict[str, Any]) -> PlacementDocument:
    (folder / "p.json").write_text(json.dumps(document))
    return read_placement(folder / "p.json")


def edited(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    at: Any = copy
    *parents, last = path.split(".")
    for name in parents:
        at = at[int(name) if isinstance(at, list) else name]
    at[int(last) if isinstance(at, list) else last] = value
    return copy


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_planned_is_read(documents: dict[str, dict[str, Any]], name: str, tmp_path: Path) -> None:
    read(tmp_path, documents[name])


FAULTS = [
    ("tiny", "kv.tokens", 2561, "kv.tokens", "kv.pools"),
    ("tiny", "kv.tokens", 2559, "kv.tokens", "workload"),
    ("tiny", "kv.bytes_per_token_per_gpu", 1025, "kv.bytes_per_token_per_gpu", "kv.pools"),
    ("tiny", "kv.dtype", "fp8", "kv.bytes_per_token_per_gpu", "kv.dtype"),
    ("tiny", "kv.max_running_requests", 5, "kv.max_running_requests", "workload.concurrency"),
    ("tiny", "kv.max_running_requests", 3, "request_table", "kv.max_running_requests"),
    ("tiny", "kv.max_total_tokens", 2559, "kv.max_total_tokens", "kv.claimed_bytes"),
    ("tiny", "kv.chunked_prefill_size", 1024, "runtime_staging", "kv.chunked_prefill_size"),
    ("tiny", "kv.chunked_prefill_size", 3, "kv.max_running_requests", "kv.chunked_prefill_size"),
    ("tiny", "kv.cuda_graph_max_bs", 2, "kv.cuda_graph_max_bs", "kv.max_running_requests"),
    ("tiny", "kv.context_length", 100, "kv.context_length", "workload"),
    ("tiny", "tp", 2, "hot_experts", "tp 2"),
    ("tiny", "hbm.expert_bytes", 98_304, "hot_experts", "hbm.expert_bytes"),
    ("tiny", "hbm.device_bytes", 2**40, "hbm.device_bytes", "hardware.gpu.usable_bytes"),
    ("tiny", "hbm.budget_bytes_per_gpu", 2**40, "hbm.ledger", "budget_bytes_per_gpu"),
    ("tiny", "hbm.ledger.kv_pool", 1, "hbm.ledger", "budget_bytes_per_gpu"),
    ("tiny", "host.ledger.experts", 1, "host.total_bytes", "host.ledger"),
    ("tiny", "mem_fraction_static", 0.99999, "mem_fraction_static", "hbm.ledger"),
    ("tiny", "mem_fraction_static", 0.0001, "mem_fraction_static", "hbm.ledger"),
    ("tiny", "mem_fraction_static", 1.5, "mem_fraction_static", "hbm.ledger"),
    ("tiny", "model.layers", [0, 1, 3], "model.layers", "model.config"),
    ("tiny", "model.experts", 9, "model.experts", "model.config"),
    ("tiny", "model.top_k", 3, "model.top_k", "model.config"),
    ("tiny", "model.config.num_experts", 16, "model.experts", "model.config"),
    ("tiny", "model.config.num_key_value_heads", 1, "kv.bytes_per_token_per_gpu", "model.config"),
    ("tiny", "hot.0", [2, 0], "hot_total", "hot names 3"),
    ("tiny", "hot.0", [2, 2, 3], "hot.0", "twice"),
    ("tiny", "hot.0", [2, 0, 8], "hot.0", "model.experts"),
    ("tiny", "cpu_method", "AVX2", "cpu_method", "AMXINT4"),
    ("tiny", "kt.threads", 64, "kt.threads", "hardware.cpu.threads"),
    ("tiny", "kt.subpools", 1, "kt.subpools", "hardware.cpu.numa_nodes"),
    ("windows", "kv.swa_full_tokens_ratio", 0.8, "kv.swa_full_tokens_ratio", "kv.pools"),
    ("windows", "kv.pools.1.slots", 5, "hbm.ledger.kv_pool", "kv.pools"),
    ("states", "kv.max_mamba_cache_size", 4, "kv.max_mamba_cache_size", "kv.states"),
    ("states", "kv.states.0.slots", 6, "request_state", "kv.states"),
    ("drafting", "kv.speculation.draft_tokens", 5, "kv.speculation.draft_tokens", "kv.speculation.steps"),
    ("drafting", "kv.speculation", None, "hbm.ledger.mtp", "kv.speculation"),
    ("compressed", "kv.chunked_prefill_size", 500, "kv.chunked_prefill_size", "kv.page_tokens"),
    ("compressed", "kv.max_total_tokens", 256, "kv.max_total_tokens", "kv."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "value", "field", "other"), FAULTS)
def test_both_fields_are_named(
    documents: dict[str, dict[str, Any]],
    tmp_path: Path,
    name: str,
    path: str,
    value: Any,
    field: str,
    other: str,
) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, edited(documents[name], path, value))
    assert field in caught.value.what
    assert other in caught.value.what
    assert "\n" not in caught.value.what
    assert caught.value.hint


def test_a_document_without_factors_is_checked_as_far_as_it_goes(tmp_path: Path) -> None:
    document = placement_dict({0: [1]}, layers=[0, 1], experts=4)
    read(tmp_path, document)
    for path, value, field in (
        ("kv.bytes_per_token_per_gpu", 65, "hbm.ledger.kv_pool"),
        ("kv.tokens", 5122, "hbm.ledger.kv_pool"),
        ("hot", {}, "hot_total"),
    ):
        with pytest.raises(BadInputError, match=field):
            read(tmp_path, edited(document, path, value))


def numbers(value: Any, path: str = "") -> Iterator[str]:
    """The path of every number of a document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from numbers(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from numbers(inner, f"{path}.{index}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def started(document: PlacementDocument) -> dict[str, Any]:
    """What the exported server is started with."""
    assert document.mem_fraction_static is not None
    flags = server_flags(
        document,
        document.model.config or {},
        ratio=0.5,
        mem_fraction_static=document.mem_fraction_static,
        model_path=None,
        kt_weight_path=None,
    )
    return {flag.name: flag.value for flag in flags}


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_changed_number_is_refused_or_harmless(
    documents: dict[str, dict[str, Any]], tmp_path: Path, data: st.DataObject
) -> None:
    """Harmless: the server is started as before, or differently in a way that takes no more memory."""
    name = data.draw(st.sampled_from(sorted(documents)), label="document")
    document = documents[name]
    path = data.draw(st.sampled_from(sorted(numbers(document))), label="path")
    at: Any = document
    for part in path.split("."):
        at = at[int(part) if isinstance(at, list) else part]
    changed = data.draw(
        st.one_of(
            st.sampled_from([0, 1, -1, at + 1, at - 1, at * 2, at // 2, -at]),
            st.integers(-5, 10**12) if isinstance(at, int) else st.floats(-2, 2, allow_nan=False),
        ).filter(lambda value: value != at),
        label="value",
    )
    before = read(tmp_path, document)
    try:
        after = read(tmp_path, edited(document, path, changed))
        flags = started(after)
    except BadInputError:
        return
    planned_flags = started(before)
    different = {flag for flag in planned_flags if flags.get(flag) != planned_flags[flag]}
    assert set(flags) == set(planned_flags)
    # Larger graphs are never captured: the runtime leaves out batches above the running requests.
    if "cuda-graph-max-bs" in different:
        assert after.kv.cuda_graph_max_bs > after.kv.max_running_requests
    # Any fraction from what weights and KV need to what the reserve leaves starts the same server.
    if "mem-fraction-static" in different:
        assert after.mem_fraction_static is not None
        ledger = HbmLedger(after.hbm.budget_bytes_per_gpu, after.hbm.ledger)
        device = after.hbm.device_bytes
        assert device is not None
        least, most = free_memory_share(ledger, device_bytes=device)
        assert least <= after.mem_fraction_static < most + 0.001
    # A shorter longest request makes a smaller table.
    if "context-length" in different:
        assert flags["context-length"] < planned_flags["context-length"]
    assert different <= {"cuda-graph-max-bs", "cuda-graph-bs", "mem-fraction-static", "context-length"}
    # As many hot experts of every layer as before.
    assert np.array_equal(after.hot_mask().sum(axis=1), before.hot_mask().sum(axis=1))
    assert after.hbm.ledger == before.hbm.ledger


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"min": 4, "max": 8}, "hot_per_layer: is 4 to 8, but hot.0 names 3 experts"),
        ({"min": 0, "max": 2}, "hot_per_layer: is 0 to 2, but hot.0 names 3 experts"),
        ({"min": 0, "max": 3}, None),
    ],
)
def test_layers_keep_their_limits_of_hot_experts(
    documents: dict[str, dict[str, Any]], tmp_path: Path, limits: dict[str, int], said: str | None
) -> None:
    document = {**documents["tiny"], "hot_per_layer": limits}
    if said is None:
        placement = read(tmp_path, document)
        assert (placement.least_hot, placement.most_hot) == (0, 3)
    else:
        with pytest.raises(BadInputError) as caught:
            read(tmp_path, document)
        assert said in caught.value.what


@pytest.mark.parametrize(
    ("pinned", "said"),
    [
        ({"0": "all"}, "pinned.0: is 'all', but hot.0 names 3 of 8 experts"),
        ({"0": "none"}, "pinned.0: is 'none', but hot.0 names 3 of 8 experts"),
        ({"4": "none"}, "pinned.4: is not one of model.layers"),
        ({"1": "none"}, None),
    ],
)
def test_a_pinned_layer_is_as_it_is_pinned(
    documents: dict[str, dict[str, Any]], tmp_path: Path, pinned: dict[str, str], said: str | None
) -> None:
    document = {**documents["tiny"], "pinned": pinned}
    if said is None:
        assert read(tmp_path, document).pins == {1: False}
    else:
        with pytest.raises(BadInputError) as caught:
            read(tmp_path, document)
        assert said in caught.value.what
