"""sglang-kt's selection rule: how it counts layers, what it selects, and that any plan passes through it."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.exports.kt_ranking import NEVER_SELECTED, cut_ratio, ranked_counts
from placer.exports.kt_requirements import expert_width
from placer.exports.kt_selection import (
    KtLayout,
    hot_experts,
    kt_layout,
    read_logical_count,
    select_hot,
)

DATA = Path(__file__).parents[2] / "shared" / "data"


def layers_of(**config: Any) -> list[int]:
    return list(kt_layout({"num_hidden_layers": 6, "num_experts": 4, **config}).moe_layers)


def test_every_layer_is_moe_unless_the_config_says_otherwise() -> None:
    assert layers_of() == [0, 1, 2, 3, 4, 5]
    assert layers_of(first_k_dense_replace=2) == [2, 3, 4, 5]
    assert layers_of(first_k_dense_replace=None) == [0, 1, 2, 3, 4, 5]
    assert layers_of(moe_layer_freq=2) == [0, 2, 4]
    assert layers_of(first_k_dense_replace=1, moe_layer_freq=2) == [2, 4]


def test_hash_layers_are_moe_layers() -> None:
    assert layers_of(first_k_dense_replace=3, num_hash_layers=3) == [0, 1, 2, 3, 4, 5]
    assert layers_of(first_k_dense_replace=3, num_hash_layers=1) == [2, 3, 4, 5]
    assert layers_of(num_hash_layers=3) == [0, 1, 2, 3, 4, 5]


def test_of_a_list_of_frequencies_only_the_first_moe_layer_is_read() -> None:
    assert layers_of(moe_layer_freq=[0, 1, 1, 1, 1, 1]) == [1, 2, 3, 4, 5]
    assert layers_of(moe_layer_freq=[0, 1, 0, 1, 0, 1]) == [1, 2, 3, 4, 5]
    assert layers_of(moe_layer_freq=[0, 0, 0, 0, 0, 0]) == [0, 1, 2, 3, 4, 5]
    assert layers_of(moe_layer_freq=[0, 1, 1, 1, 1, 1], first_k_dense_replace=2) == [2, 3, 4, 5]


def test_other_rules_for_dense_layers_are_not_read() -> None:
    assert layers_of(mlp_only_layers=[0, 1], decoder_sparse_step=2) == [0, 1, 2, 3, 4, 5]
    assert layers_of(interleave_moe_layer_step=2) == [0, 1, 2, 3, 4, 5]


def test_a_config_class_fills_in_its_own_default() -> None:
    assert layers_of(model_type="deepseek_v3") == [3, 4, 5]
    assert layers_of(model_type="glm4_moe") == [1, 2, 3, 4, 5]
    assert layers_of(model_type="deepseek_v3", first_k_dense_replace=0) == [0, 1, 2, 3, 4, 5]


def test_experts_are_looked_up_under_three_names_in_order() -> None:
    names = {"num_local_experts": 8, "num_experts": 16, "n_routed_experts": 32}
    assert kt_layout({"num_hidden_layers": 1, **names}).experts == 8
    assert kt_layout({"num_hidden_layers": 1, **names, "num_local_experts": None}).experts == 16
    assert kt_layout({"num_hidden_layers": 1, "n_routed_experts": 32}).experts == 32


def test_the_text_model_of_a_multimodal_config_is_read() -> None:
    text = {"num_hidden_layers": 3, "num_experts": 4, "first_k_dense_replace": 1}
    assert kt_layout({"num_hidden_layers": 99, "text_config": text}) == KtLayout(3, 4, 1, 1)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"num_experts": 4}, "num_hidden_layers"),
        ({"num_hidden_layers": 4}, "num_local_experts, num_experts or n_routed_experts"),
        ({"num_hidden_layers": "4", "num_experts": 4}, "num_hidden_layers"),
        ({"num_hidden_layers": 4, "num_experts": 4, "moe_layer_freq": 0}, "moe_layer_freq"),
        ({"num_hidden_layers": 4, "num_experts": 4, "moe_layer_freq": None}, "moe_layer_freq"),
        ({"num_hidden_layers": 4, "num_experts": 4, "first_k_dense_replace": [1]}, "first_k_dense_replace"),
    ],
)
def test_a_config_that_would_stop_the_runtime_is_refused(config: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=f"config.json: {field} is"):
        kt_layout(config)


def test_the_ranking_is_global_and_dense_layers_are_all_hot() -> None:
    layout = KtLayout(num_layers=3, experts=4, first_moe=1, moe_every=1)
    counts = torch.tensor([[[0, 0, 0, 0], [9, 1, 8, 2], [7, 3, 4, 5]]])
    hot = select_hot(counts, layout, 3 / 8)
    assert hot.tolist() == [[True] * 4, [True, False, True, False], [True, False, False, False]]


def test_counts_of_several_passes_are_added() -> None:
    layout = KtLayout(1, 3, 0, 1)
    counts = torch.tensor([[[1, 0, 5]], [[6, 0, 1]]], dtype=torch.int32)
    assert select_hot(counts, layout, 1.5 / 3).tolist() == [[True, False, False]]


def test_dense_rows_with_counts_steal_slots() -> None:
    layout = KtLayout(num_layers=2, experts=2, first_moe=1, moe_every=1)
    stolen = select_hot(torch.tensor([[[9, 8], [7, 6]]]), layout, 1.0)
    assert stolen.tolist() == [[True, True], [False, False]]


def test_equal_counts_at_the_cut_are_refused() -> None:
    layout = KtLayout(1, 4, 0, 1)
    with pytest.raises(BadInputError, match="equal at the cut after 2"):
        select_hot(torch.tensor([[[5, 3, 3, 1]]]), layout, 0.5)
    assert select_hot(torch.tensor([[[5, 3, 3, 1]]]), layout, 0.75).tolist() == [[True, True, True, False]]


def test_counts_of_another_model_are_refused() -> None:
    with pytest.raises(BadInputError, match="needs \\[buffer, 2, 4\\]"):
        select_hot(torch.zeros(1, 3, 4), KtLayout(2, 4, 0, 1), 0.0)
    with pytest.raises(BadInputError, match="shape"):
        select_hot(torch.zeros(2, 4), KtLayout(2, 4, 0, 1), 0.0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("counts.json", {"logical_count": torch.ones(1, 1, 1)}),
        ("raw.pt", torch.ones(1, 1, 1)),
        ("other.pt", {"counts": torch.ones(1, 1, 1)}),
        ("mapping.pt", {"logical_count": torch.ones(1, 1, 1), "physical_to_logical_map": torch.ones(1, 1)}),
        ("numpy.pt", {"logical_count": np.ones((1, 1, 1))}),
    ],
)
def test_files_that_either_loader_refuses_or_ignores_are_refused(
    tmp_path: Path, name: str, content: object
) -> None:
    torch.save(content, tmp_path / name)
    with pytest.raises(BadInputError):
        read_logical_count(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"not a torch file", b"PK\x03\x04"])
def test_a_broken_file_ends_in_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "counts.pt").write_bytes(content)
    with pytest.raises(BadInputError, match=r"cannot load .*counts\.pt"):
        read_logical_count(tmp_path / "counts.pt")


def test_ranks_take_a_share_of_every_layer_hottest_first() -> None:
    # Layer 1 has four hot experts and layer 2 two: half the plan is two of layer 1 and one of layer 2.
    layout = KtLayout(num_layers=3, experts=6, first_moe=1, moe_every=1)
    counts = ranked_counts({1: [5, 4, 3, 2], 2: [0, 1]}, [1, 2], layout)
    assert counts[0].tolist() == [NEVER_SELECTED] * 6
    assert counts[1].tolist() == [6, 3, 7, 9, 10, 12]
    assert counts[2].tolist() == [11, 8, 5, 4, 2, 1]
    half = select_hot(torch.from_numpy(counts)[None], layout, cut_ratio(3, layout.total_experts))
    assert [np.flatnonzero(row).tolist() for row in half[1:]] == [[4, 5], [0]]


def test_limits_of_layers_hold_at_other_ratios() -> None:
    # Layer 0 keeps both of its hot experts, layer 1 none of its four; layer 2 may have no more than its one.
    layout = KtLayout(num_layers=3, experts=4, first_moe=0, moe_every=1)
    hot = {0: [3, 1], 1: [0, 1, 2, 3], 2: [2]}
    counts = torch.from_numpy(ranked_counts(hot, [0, 1, 2], layout, least={0: 2}, full={2}))[None]

    def sizes(number: int) -> list[int]:
        return select_hot(counts, layout, cut_ratio(number, 12)).sum(axis=1).tolist()

    assert [sizes(number) for number in (1, 2, 3, 4, 5, 6, 7)] == [
        [1, 0, 0],
        [2, 0, 0],
        [2, 1, 0],
        [2, 1, 1],
        [2, 2, 1],
        [2, 3, 1],
        [2, 4, 1],
    ]
    assert [sizes(number) for number in (8, 9, 10)] == [[3, 4, 1], [4, 4, 1], [4, 4, 2]]


def test_the_obvious_ratio_loses_an_expert_where_ours_does_not() -> None:
    assert int(1440 * (436 / 1440)) == 435
    layout = KtLayout(num_layers=12, experts=120, first_moe=0, moe_every=1)
    assert hot_experts(layout, cut_ratio(436, 1440)) == 436
    assert f"{cut_ratio(436, 1440):.9f}" == "0.303125000"
    assert (cut_ratio(0, 1440), cut_ratio(1440, 1440)) == (0.0, 1.0)


@given(st.integers(1, 10**8), st.data())
@example(82432, None)  # 92 layers of 896 experts
def test_the_ratio_survives_nine_decimals_for_any_count(total: int, data: st.DataObject | None) -> None:
    totals = range(0, total + 1, 97) if data is None else [data.draw(st.integers(0, total))]
    for hot in totals:
        assert int(total * float(f"{cut_ratio(hot, total):.9f}")) == hot


@st.composite
def models(draw: st.DrawFn) -> tuple[dict[str, Any], list[int], int]:
    """A config, the model's own MoE layers, and its experts: with the rules that the runtime reads or not."""
    num_layers, experts = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    name = draw(st.sampled_from(["num_local_experts", "num_experts", "n_routed_experts"]))
    config: dict[str, Any] = {"num_hidden_layers": num_layers, name: experts}
    rule = draw(st.sampled_from(["all", "first", "every", "list", "sparse step", "hash"]))
    layers = list(range(num_layers))
    if rule == "first":
        config["first_k_dense_replace"] = draw(st.integers(0, num_layers - 1))
        layers = layers[config["first_k_dense_replace"] :]
    elif rule == "every":
        config["moe_layer_freq"] = draw(st.integers(1, 3))
        layers = layers[:: config["moe_layer_freq"]]
    elif rule == "list":
        frequency = draw(st.lists(st.integers(0, 1), min_size=num_layers, max_size=num_layers).filter(any))
        config["moe_layer_freq"] = frequency
        layers = [layer for layer in layers if frequency[layer]]
    elif rule == "sparse step":
        config["decoder_sparse_step"] = draw(st.integers(1, 3))
        layers = [layer for layer in layers if (layer + 1) % config["decoder_sparse_step"] == 0] or [0]
    elif rule == "hash":
        config |= {"num_hash_layers": 3, "first_k_dense_replace": 3}
    return ({"text_config": config} if draw(st.booleans()) else config), layers, experts


@given(models(), st.data())
def test_any_plan_of_any_model_is_selected_exactly(
    model: tuple[dict[str, Any], list[int], int], data: st.DataObject
) -> None:
    config, layers, experts = model
    layout = kt_layout(config)
    every = st.permutations(range(experts))
    size = st.one_of(st.just(0), st.just(experts), st.integers(0, experts))
    hot = {layer: data.draw(every)[: data.draw(size)] for layer in layers}
    counts = torch.from_numpy(ranked_counts(hot, layers, layout).astype(np.int32))[None]
    ratio = float(f"{cut_ratio(sum(map(len, hot.values())), layout.total_experts):.9f}")
    selected = select_hot(counts, layout, ratio)
    assert {layer: np.flatnonzero(selected[layer]).tolist() for layer in layers} == {
        layer: sorted(ids) for layer, ids in hot.items()
    }
    for layer in set(layout.moe_layers) - set(layers):
        assert not selected[layer].any()


@given(models(), st.data())
def test_a_lower_ratio_keeps_a_prefix_of_every_hot_list(
    model: tuple[dict[str, Any], list[int], int], data: st.DataObject
) -> None:
    config, layers, experts = model
    layout = kt_layout(config)
    hot = {
        layer: data.draw(st.permutations(range(experts)))[: data.draw(st.integers(0, experts))]
        for layer in layers
    }
    total = sum(map(len, hot.values()))
    fewer = data.draw(st.integers(0, total))
    counts = torch.from_numpy(ranked_counts(hot, layers, layout))[None]
    selected = select_hot(counts, layout, cut_ratio(fewer, layout.total_experts))
    for layer in layers:
        kept = int(selected[layer].sum())
        assert sorted(hot[layer][:kept]) == np.flatnonzero(selected[layer]).tolist()
        # The same share of every layer, to within one expert.
        assert total == 0 or abs(kept - len(hot[layer]) * fewer / total) <= len(layers)


@pytest.mark.parametrize("name", ["kt_placement_01_48x128_uneven", "kt_placement_rank_61x256_dense3"])
def test_masks_that_the_runtime_made_are_reproduced(name: str) -> None:
    expected_path = DATA / "runtime_fixtures" / f"{name}.expected.json"
    if not expected_path.exists():
        pytest.skip("needs ../shared/data/runtime_fixtures")
    expected = json.loads(expected_path.read_text())
    layout = kt_layout(expected["config"])
    counts = read_logical_count(expected_path.with_name(f"{name}.pt"))
    hot = select_hot(counts, layout, expected["kt_gpu_experts_ratio"])
    assert hot.sum(axis=1).tolist() == expected["per_layer_hot"]
    assert hot_experts(layout, expected["kt_gpu_experts_ratio"]) == expected["n_hot"]
    for row, ids in zip(hot, expected.get("hot", []), strict=False):
        assert np.flatnonzero(row).tolist() == (list(range(layout.experts)) if ids == "all" else ids)


def test_layouts_and_widths_of_published_models() -> None:
    if not (DATA / "models.csv").exists():
        pytest.skip("needs ../shared/data/models.csv")
    with (DATA / "models.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        config = json.loads((DATA / "model_configs" / f"{row['model']}.json").read_text())
        layout = kt_layout(config)
        assert layout.num_layers == int(row["L"]), row["model"]
        assert layout.experts == int(row["E"]), row["model"]
        assert len(layout.moe_layers) == int(row["n_moe_layers"]), row["model"]
        text = config.get("text_config", config)
        assert expert_width(text)[1] == int(row["moe_I"]), row["model"]
