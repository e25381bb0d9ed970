"""Export to sglang-kt: files that select the plan, scripts that refuse what the plan was not made for."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from kt_export import CONFIG, FILES, SCRIPTS, plan
from placements import placement

from placer.errors import BadInputError
from placer.exports import sglang_kt
from placer.exports.kt_flags import longest_context, render_config, server_flags
from placer.exports.kt_selection import kt_layout, read_logical_count, select_hot
from placer.exports.sglang_kt import export_sglang_kt
from placer.placement import PlacementDocument, read_placement
from placer.profiler.serving.graph_batch import captured_batches
from placer.written_files import LIST


def flags_in(folder: Path) -> dict[str, Any]:
    flags: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return flags


# --- the files --------------------------------------------------------------------------------------------


def test_an_export_is_the_plan_its_flags_and_scripts(tmp_path: Path) -> None:
    result = export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    assert result.files == FILES == sglang_kt.FILES
    assert {path.name for path in result.folder.iterdir()} == {*result.files, LIST}
    assert list(tmp_path.iterdir()) == [result.folder]
    assert result.runtime == "sglang-kt 0.7.2"
    counts = read_logical_count(result.folder / "init_expert_location.pt")
    selected = select_hot(
        counts, kt_layout(CONFIG), float(str(flags_in(result.folder)["kt-gpu-experts-ratio"]))
    )
    assert np.array_equal(selected[1:], plan().hot_mask())
    assert selected[0].all()  # the dense layer
    assert (counts[0, 0] == -1).all()
    assert counts.dtype == torch.int32
    # The copy of the placement is what the checks read.
    assert read_placement(result.folder / "placement.json") == plan()
    assert [name for name in FILES if os.access(result.folder / name, os.X_OK)] == SCRIPTS


def test_the_flags_are_the_plans(tmp_path: Path) -> None:
    config = CONFIG | {"moe_intermediate_size": 256}
    export_sglang_kt(
        plan(tp=2), tmp_path / "out", config=config, model_path="/models/tiny: fp8", kt_weight_path="/weights"
    )
    assert flags_in(tmp_path / "out") == {
        "model-path": "/models/tiny: fp8",
        "kt-weight-path": "/weights",
        "kt-method": "RAWINT4",
        "kt-expert-placement-strategy": "frequency",
        "init-expert-location": "init_expert_location.pt",
        "kt-gpu-experts-ratio": 0.541666667,  # (6 + 0.5) / 12
        "kt-cpuinfer": 32,
        "kt-threadpool-count": 2,
        "tensor-parallel-size": 2,
        "ep-size": 1,
        "mem-fraction-static": 0.874,
        "max-total-tokens": 5120,
        "max-running-requests": 8,
        "chunked-prefill-size": 2048,
        "cuda-graph-max-bs": 8,
        "cuda-graph-bs": [1, 2, 4, 8],
        "kv-cache-dtype": "bf16",
        "context-length": 5120,
    }


def test_the_ratio_has_nine_decimals_and_no_exponent() -> None:
    flags = server_flags(
        plan(), CONFIG, ratio=0.000006066, mem_fraction_static=0.9, model_path=None, kt_weight_path=None
    )
    assert "kt-gpu-experts-ratio: 0.000006066\n" in render_config(flags)
    assert "mem-fraction-static: 0.9\n" in render_config(flags)


def test_deferral_is_a_flag_of_a_plan_that_was_predicted_with_it(tmp_path: Path) -> None:
    runtime = {"scheduler": "sglang", "deferred_experts": 2, "skip_idle_cold": False}
    export_sglang_kt(plan(runtime=runtime), tmp_path / "with", config=CONFIG)
    assert flags_in(tmp_path / "with")["kt-max-deferred-experts-per-token"] == 2
    assert (
        "`--kt-max-deferred-experts-per-token`: it postpones" not in (tmp_path / "with/README.md").read_text()
    )
    export_sglang_kt(plan(), tmp_path / "without", config=CONFIG)
    assert "kt-max-deferred-experts-per-token" not in flags_in(tmp_path / "without")
    assert (
        "`--kt-max-deferred-experts-per-token`: it postpones" in (tmp_path / "without/README.md").read_text()
    )


def test_fp8_kv_is_named_as_the_runtime_names_it(tmp_path: Path) -> None:
    kv = plan().kv.model_dump() | {"dtype": "fp8"}
    export_sglang_kt(plan(kv=kv), tmp_path / "out", config=CONFIG)
    assert flags_in(tmp_path / "out")["kv-cache-dtype"] == "fp8_e4m3"


def test_the_largest_batch_is_captured_even_between_the_runtimes_steps() -> None:
    assert captured_batches(8) == (1, 2, 4, 8)
    assert captured_batches(5) == (1, 2, 4, 5)
    assert captured_batches(20) == (1, 2, 4, 8, 12, 16, 20)
    assert captured_batches(600)[-4:] == (512, 544, 576, 600)


def test_the_context_is_the_models_or_the_pools_whichever_is_shorter(tmp_path: Path) -> None:
    assert longest_context({"text_config": {"max_position_embeddings": 4096}}) == 4096
    assert longest_context({"seq_length": 2048, "max_position_embeddings": 4096}) == 2048
    export_sglang_kt(plan(), tmp_path / "a", config=CONFIG | {"max_position_embeddings": 1024})
    assert flags_in(tmp_path / "a")["context-length"] == 1024
    export_sglang_kt(plan(), tmp_path / "b", config=CONFIG | {"max_position_embeddings": None})
    assert "context-length" not in flags_in(tmp_path / "b")


def test_the_readme_names_revision_flags_and_counts(tmp_path: Path) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "sglang-kt 0.7.2" in readme
    for flag in flags_in(tmp_path / "out"):
        assert f"`--{flag}`" in readme
    assert "    " + "  ".join(f"{cell:>9}" for cell in ("1: 2", "2: 0", "3: 4")) in readme
    assert "@" not in readme
    assert "no expert on the GPU" in readme


def test_pinned_layers_stay_pinned_at_a_lower_ratio(tmp_path: Path) -> None:
    document = plan(hot={1: [2, 0], 2: [], 3: [1, 3, 0, 2]}, pinned={"3": "all", "2": "none"})
    export_sglang_kt(document, tmp_path / "out", config=CONFIG)
    counts = read_logical_count(tmp_path / "out" / "init_expert_location.pt")
    for number, sizes in ((6, [2, 0, 4]), (5, [1, 0, 4]), (4, [0, 0, 4]), (8, [4, 0, 4])):
        selected = select_hot(counts, kt_layout(CONFIG), (number + 0.5) / 12)
        assert selected[1:].sum(axis=1).tolist() == sizes
    assert "pinned layers stay as they are" in (tmp_path / "out" / "README.md").read_text()


def test_limits_of_layers_hold_at_another_ratio(tmp_path: Path) -> None:
    # At least 1 and at most 3 of 4 experts of each layer: a lower ratio leaves one each, a higher one stops at three.
    document = plan(hot={1: [2], 2: [1, 0], 3: [1, 3, 0]}, hot_per_layer={"min": 1, "max": 3})
    export_sglang_kt(document, tmp_path / "out", config=CONFIG)
    counts = read_logical_count(tmp_path / "out" / "init_expert_location.pt")
    for number, least, most in ((3, 1, 1), (4, 1, 3), (6, 1, 3), (8, 1, 3)):
        sizes = select_hot(counts, kt_layout(CONFIG), (number + 0.5) / 12)[1:].sum(axis=1)
        assert sizes.sum() == number
        assert sizes.min() >= least
        assert sizes.max() <= most
    assert "limits of every layer hold" in (tmp_path / "out" / "README.md").read_text()


def test_pinned_layers_are_exempt_from_the_limits_of_others(tmp_path: Path) -> None:
    document = plan(
        hot={1: [2], 2: [], 3: [1, 3, 0, 2]},
        pinned={"3": "all", "2": "none"},
        hot_per_layer={"min": 1, "max": 3},
    )
    export_sglang_kt(document, tmp_path / "out", config=CONFIG)
    counts = read_logical_count(tmp_path / "out" / "init_expert_location.pt")
    for number, sizes in ((5, [1, 0, 4]), (7, [3, 0, 4])):
        assert select_hot(counts, kt_layout(CONFIG), (number + 0.5) / 12)[1:].sum(axis=1).tolist() == sizes


@pytest.mark.parametrize("hot", [{}, {layer: [3, 1, 0, 2] for layer in (1, 2, 3)}])
def test_no_expert_and_every_expert_can_be_exported(tmp_path: Path, hot: dict[int, list[int]]) -> None:
    export_sglang_kt(plan(hot=hot), tmp_path / "out", config=CONFIG)
    assert flags_in(tmp_path / "out")["kt-gpu-experts-ratio"] == (1.0 if hot else 0.0)


def test_layers_that_only_the_runtime_holds_to_be_moe_are_left_out_and_said(tmp_path: Path) -> None:
    config = CONFIG | {"first_k_dense_replace": 0, "decoder_sparse_step": 2}
    document = placement({1: [0], 3: [2, 1]}, layers=[1, 3], experts=4)
    result = export_sglang_kt(document, tmp_path / "out", config=config)
    assert flags_in(tmp_path / "out")["kt-gpu-experts-ratio"] == 0.21875  # (3 + 0.5) / 16, not / 8
    assert "counts 4 MoE layers, the model has 2" in result.notes[0]


def test_a_config_that_is_not_fp8_is_noted(tmp_path: Path) -> None:
    result = export_sglang_kt(plan(), tmp_path / "out", config=CONFIG | {"quantization_config": None})
    assert any("block-FP8" in note for note in result.notes)


def test_an_export_again_replaces_its_files_and_leaves_others(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_sglang_kt(plan(), folder, config=CONFIG)
    (folder / "notes.txt").write_text("mine")
    before = (folder / "init_expert_location.pt").read_bytes()
    # A model that cannot be recorded: the earlier record.sh goes.
    config = CONFIG | {"architectures": ["OlmoeForCausalLM"]}
    export_sglang_kt(plan(hot={1: [3]}), folder, config=config)
    assert (folder / "init_expert_location.pt").read_bytes() != before
    assert {path.name for path in folder.iterdir()} == {*FILES, LIST, "notes.txt"} - {"record.sh"}


# --- what is refused --------------------------------------------------------------------------------------


def kv_with(**changes: Any) -> dict[str, Any]:
    return plan().kv.model_dump() | changes


@pytest.mark.parametrize(
    ("document", "config", "reason"),
    [
        (plan(cpu_method="torch"), CONFIG, "timed with torch's CPU kernel"),
        (plan(), CONFIG | {"num_experts": 8}, "4 layers of 8 experts"),
        (plan(), CONFIG | {"num_hidden_layers": 3}, "3 layers of 4 experts"),
        (plan(), CONFIG | {"hidden_size": 2880}, "hidden_size is 2880, which 128 does not divide"),
        (plan(), CONFIG | {"moe_intermediate_size": 704}, "moe_intermediate_size is 704"),
        (plan(), CONFIG | {"moe_intermediate_size": None, "intermediate_size": 2880}, "intermediate_size is"),
        (plan(), CONFIG | {"model_type": "glm5_next_text"}, "FP8 only"),
        (plan(kt=None), CONFIG, "CPU threads"),
        (plan(mem_fraction_static=1.01), CONFIG, "mem_fraction_static is 1.01"),
        (plan(mem_fraction_static=None), CONFIG, "does not say mem_fraction_static"),
        (plan(tp=2), CONFIG, "128 over tp 2 GPUs leaves 64, not whole FP8 blocks"),
        (plan(cpu_method="LLAMAFILE"), CONFIG, "not 2 or more whole blocks of 256"),
        (plan(kv=kv_with(cuda_graph_max_bs=4096)), CONFIG, "CUDA graph of 4,096 tokens"),
        (plan(), CONFIG | {"architectures": ["DeepseekForCausalLM"]}, "whose experts KT can split"),
        (plan(), CONFIG | {"first_k_dense_replace": 2}, "layer 1 would have 4 experts on the GPU, not 2"),
    ],
)
def test_what_the_runtime_cannot_run_is_refused_and_nothing_is_written(
    tmp_path: Path, document: PlacementDocument, config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        export_sglang_kt(document, tmp_path / "out", config=config)
    assert reason in caught.value.what
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_read_back_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_sglang_kt(plan(), tmp_path / "kept", config=CONFIG)
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    # A ratio that the runtime cuts to five of the six hot experts.
    monkeypatch.setattr(sglang_kt, "planned_ratio", lambda *_: 5.5 / 12)
    for folder in ("kept", "new"):
        with pytest.raises(BadInputError, match=r"would not run this plan: .*; 1 layer in all"):
            export_sglang_kt(plan(), tmp_path / folder, config=CONFIG)
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", ["missing/out", "file"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInputError, match=f"cannot write .*{place}"):
        export_sglang_kt(plan(), tmp_path / place, config=CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_given_memory_fraction_takes_the_place_of_the_plans(tmp_path: Path) -> None:
    export_sglang_kt(plan(mem_fraction_static=None), tmp_path / "out", config=CONFIG, mem_fraction_static=0.8)
    assert flags_in(tmp_path / "out")["mem-fraction-static"] == 0.8


# --- recording --------------------------------------------------------------------------------------------


def test_recording_keeps_tokens_where_the_runtime_can(tmp_path: Path) -> None:
    result = export_sglang_kt(plan(), tmp_path / "out", config=CONFIG, record=True)
    assert "record.sh" in result.files
    launch = (tmp_path / "out" / "launch.sh").read_text()
    assert "recorder=(--expert-distribution-recorder-mode per_token --record-kt-gpu" in launch
    assert "SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR" in launch


def test_recording_keeps_counts_where_top_k_is_too_large(tmp_path: Path) -> None:
    config = CONFIG | {"num_experts": 16, "num_experts_per_tok": 10}
    document = placement({1: [0]}, layers=[1, 2, 3], experts=16, top_k=10)
    export_sglang_kt(document, tmp_path / "out", config=config, record=True)
    launch = (tmp_path / "out" / "launch.sh").read_text()
    assert "--expert-distribution-recorder-mode stat" in launch
    assert "--expert-distribution-recorder-buffer-size -1" in launch


def test_a_model_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    config = CONFIG | {"model_type": "deepseek_v4"}
    with pytest.raises(BadInputError, match="cannot record DeepSeek-V4"):
        export_sglang_kt(plan(), tmp_path / "out", config=config, record=True)
    export_sglang_kt(plan(), tmp_path / "out", config=config)
