"""Our export and our mirrors of sglang-kt 0.7.2 against its own code."""

import logging
import re
import sys
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import family_configs
import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placements import FP8, placement
from planned import planned
from sglang_kt_source import (
    config_merger,
    definitions,
    mask_functions,
    runtime_mask,
    server_args_module,
    server_parser,
    source,
)
from test_remedy import model_of

from placer.baselines import BASELINES
from placer.errors import BadInputError
from placer.exports.flag import command_line
from placer.exports.kt_drafting import DRAFTING_ARCHITECTURES
from placer.exports.kt_flags import (
    LEFT_UNSET,
    longest_context,
    recording_flags,
    render_config,
    server_flags,
)
from placer.exports.kt_ranking import cut_ratio, ranked_counts
from placer.exports.kt_selection import kt_layout, select_hot
from placer.exports.sglang_kt import export_sglang_kt
from placer.profiler.serving.graph_batch import captured_batches
from placer.readiness.check import Verdict
from placer.readiness.cpu_weights import conversion
from placer.readiness.versions import check_versions, installed
from placer.speculation import MTP_SPECULATION
from placer.window_pool import RUNTIME_DEFAULT_RATIO

pytestmark = pytest.mark.runtime

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "hidden_size": 7168,
    "moe_intermediate_size": 2048,
    "max_position_embeddings": 163840,
    "quantization_config": FP8,
}


def random_hot(layers: list[int], experts: int, most: int, seed: int) -> dict[int, list[int]]:
    random = np.random.default_rng(seed)
    return {layer: random.permutation(experts)[: random.integers(0, most + 1)].tolist() for layer in layers}


def ratio_in(folder: Path) -> float:
    return float(str(yaml.safe_load((folder / "config.yaml").read_text())["kt-gpu-experts-ratio"]))


# --- the placement ----------------------------------------------------------------------------------------


def test_the_runtime_makes_the_plan_of_the_exported_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hot = random_hot(list(range(3, 61)), 256, 256, seed=1) | {5: [], 7: list(range(256))}
    document = placement(hot, layers=range(3, 61), experts=256, top_k=8)
    export_sglang_kt(document, tmp_path / "out", config=DEEPSEEK)
    with caplog.at_level(logging.INFO, logger="sglang-kt"):
        mask = runtime_mask(
            DEEPSEEK,
            tmp_path / "out" / "init_expert_location.pt",
            kt_gpu_experts_ratio=ratio_in(tmp_path / "out"),
        )
    assert np.array_equal(mask.numpy()[3:], document.hot_mask())
    assert mask[:3].all()
    # The log lines that the README tells users to compare are the runtime's.
    logged = dict(re.findall(r"KT GPU experts: layer (\d+) \(MoE\) has (\d+) GPU experts", caplog.text))
    readme = (tmp_path / "out" / "README.md").read_text()
    assert logged == dict(
        re.findall(r"(\d+): (\d+)(?=\s)", readme.partition("N and M:")[2].partition("##")[0])
    )


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    num_layers = draw(st.integers(1, 8))
    config: dict[str, Any] = {
        "num_hidden_layers": num_layers,
        draw(st.sampled_from(["num_local_experts", "num_experts", "n_routed_experts"])): draw(
            st.integers(1, 9)
        ),
    }
    optional = {
        "first_k_dense_replace": st.one_of(st.none(), st.integers(0, num_layers)),
        "moe_layer_freq": st.one_of(
            st.integers(1, 3), st.lists(st.integers(0, 1), min_size=num_layers, max_size=num_layers)
        ),
        "num_hash_layers": st.one_of(st.none(), st.integers(0, 4)),
        "decoder_sparse_step": st.integers(1, 3),
        "mlp_only_layers": st.just([0]),
    }
    for name, values in optional.items():
        if draw(st.booleans()):
            config[name] = draw(values)
    return {"num_hidden_layers": 99, "text_config": config} if draw(st.booleans()) else config


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(configs(), st.data())
def test_our_selection_rule_is_the_runtimes(
    tmp_path: Path, config: dict[str, Any], data: st.DataObject
) -> None:
    layout = kt_layout(config)
    every = layout.num_layers * layout.experts
    distinct = torch.tensor(data.draw(st.permutations(range(every))))
    counts = distinct.reshape(1, layout.num_layers, layout.experts) - data.draw(st.integers(0, 3))
    ratio = data.draw(st.integers(0, 10**9)) / 10**9
    torch.save({"logical_count": counts}, tmp_path / "counts.pt")
    theirs = runtime_mask(config, tmp_path / "counts.pt", kt_gpu_experts_ratio=ratio)
    assert np.array_equal(select_hot(counts, layout, ratio), theirs.numpy())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(configs(), st.integers(0, 2**32 - 1), st.data())
def test_the_runtime_selects_any_plan_exactly(
    tmp_path: Path, config: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    layout = kt_layout(config)
    layers = [layer for layer in layout.moe_layers if data.draw(st.booleans())]
    hot = random_hot(layers, layout.experts, layout.experts, seed)
    counts = ranked_counts(hot, layers, layout).astype(np.int32)
    torch.save({"logical_count": torch.from_numpy(counts)[None]}, tmp_path / "counts.pt")
    ratio = float(f"{cut_ratio(sum(map(len, hot.values())), layout.total_experts):.9f}")
    theirs = runtime_mask(config, tmp_path / "counts.pt", kt_gpu_experts_ratio=ratio)
    assert {layer: np.flatnonzero(theirs[layer]).tolist() for layer in layers} == {
        layer: sorted(ids) for layer, ids in hot.items()
    }


def test_the_runtime_takes_a_share_of_every_layer_at_a_lower_ratio(tmp_path: Path) -> None:
    hot = random_hot(list(range(3, 61)), 256, 120, seed=2)
    document = placement(hot, layers=range(3, 61), experts=256, top_k=8)
    export_sglang_kt(document, tmp_path / "out", config=DEEPSEEK)
    lower = ratio_in(tmp_path / "out") / 2
    mask = runtime_mask(
        DEEPSEEK, tmp_path / "out" / "init_expert_location.pt", kt_gpu_experts_ratio=lower
    ).numpy()
    for layer, ids in hot.items():
        kept = int(mask[layer].sum())
        assert sorted(ids[:kept]) == np.flatnonzero(mask[layer]).tolist()
        assert abs(kept - len(ids) / 2) <= 1


@pytest.mark.parametrize("hot_total", [0, 1, 47, 48, 700, 6143, 6144])
def test_our_baselines_are_the_runtimes_strategies(hot_total: int) -> None:
    functions = mask_functions()
    random = np.random.default_rng(3)
    share = random.permutation(48 * 128).reshape(48, 128)
    theirs = {
        "uniform": functions["generate_uniform_masks"](48, 128, hot_total, 0, 1),
        "front_loading": functions["generate_front_loading_masks"](48, 128, hot_total, 0, 1),
        "random": functions["generate_random_masks"](48, 128, hot_total, 0, 1),
        "frequency": functions["generate_gpu_experts_masks"](torch.from_numpy(share).float(), hot_total),
    }
    for name, mask in theirs.items():
        assert np.array_equal(BASELINES[name](share, hot_total), mask.numpy()), name


@pytest.mark.parametrize(("first_moe", "every"), [(3, 1), (0, 2), (1, 2)])
def test_our_baselines_are_the_runtimes_beside_dense_layers(first_moe: int, every: int) -> None:
    functions = mask_functions()
    moe = [layer for layer in range(10) if layer >= first_moe and layer % every == 0]
    for name, hot_total in product(("uniform", "front_loading", "random"), (0, 1, 13, 8 * len(moe))):
        mask = functions[f"generate_{name}_masks"](10, 8, hot_total, first_moe, every).numpy()
        assert np.array_equal(BASELINES[name](np.zeros((len(moe), 8)), hot_total), mask[moe]), name


def test_the_second_reader_of_the_file_leaves_experts_where_they_are(tmp_path: Path) -> None:
    """At start-up the same file also reaches the expert-parallel balancer: it must stay out of it."""
    called: list[str] = []
    metadata = SimpleNamespace(
        init_trivial=lambda *_: called.append("trivial"),
        init_by_mapping=lambda *_, **__: called.append("mapping"),
        init_by_eplb=lambda *_, **__: called.append("eplb"),
    )
    functions = definitions(
        "srt/eplb/expert_location.py",
        {"compute_initial_expert_location_metadata", "_should_use_trivial_mapping_for_kt"},
        {"torch": torch, "logger": logging.getLogger("sglang-kt"), "ExpertLocationMetadata": metadata},
    )
    document = placement({3: [1]}, layers=range(3, 61), experts=256, top_k=8)
    export_sglang_kt(document, tmp_path / "out", config=DEEPSEEK)
    arguments = SimpleNamespace(
        init_expert_location=str(tmp_path / "out" / "init_expert_location.pt"), kt_weight_path="/weights"
    )
    functions["compute_initial_expert_location_metadata"](arguments, None, 0)
    assert called == ["trivial"]


# --- the flags --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> ModuleType:
    return server_args_module()


@pytest.mark.parametrize("record", [False, True])
def test_the_runtime_parses_every_flag_to_the_plans_value(
    tmp_path: Path, server: ModuleType, record: bool
) -> None:
    document = placement({3: [1, 2]}, layers=range(3, 61), experts=256, top_k=8, cpu_method="AMXINT4", tp=4)
    folder = tmp_path / "out"
    export_sglang_kt(
        document, folder, config=DEEPSEEK, model_path="/m: fp8", kt_weight_path="/w", record=record
    )
    parser = server_parser(server)
    # What launch.sh passes, and a flag of the user's behind it.
    arguments = [
        *("--config", str(folder / "config.yaml"), "--model-path", "/m: fp8", "--kt-weight-path", "/w"),
        *("--init-expert-location", str(folder / "init_expert_location.pt"), "--port", "30001"),
        *(command_line(recording_flags(8)).split() if record else ()),
    ]
    parsed = vars(parser.parse_args(config_merger(parser)(arguments)))
    assert {name: parsed[name] for name in EXPECTED} == EXPECTED
    assert parsed["init_expert_location"] == str(folder / "init_expert_location.pt")
    assert parsed["expert_distribution_recorder_mode"] == ("per_token" if record else None)
    assert parsed["record_kt_gpu_expert_distribution"] is record
    for flag in LEFT_UNSET:
        assert parsed[flag.replace("-", "_")] in (None, False, 0, "none"), flag


EXPECTED = {
    "model_path": "/m: fp8",
    "port": 30001,
    "kt_weight_path": "/w",
    "kt_method": "AMXINT4",
    "kt_expert_placement_strategy": "frequency",
    "kt_gpu_experts_ratio": 0.000168373,  # 2.5 / 14848
    "kt_cpuinfer": 32,
    "kt_threadpool_count": 2,
    "tensor_parallel_size": 4,
    "expert_parallel_size": 1,
    "mem_fraction_static": 0.874,
    "max_total_tokens": 5120,
    "max_running_requests": 8,
    "chunked_prefill_size": 2048,
    "cuda_graph_max_bs": 8,
    "cuda_graph_bs": [1, 2, 4, 8],
    "kv_cache_dtype": "bf16",
    "context_length": 5120,
}


def test_every_flag_that_is_named_exists(tmp_path: Path, server: ModuleType) -> None:
    known = set(server_parser(server)._option_string_actions)
    config = DEEPSEEK | {"num_experts_per_tok": 10}
    document = placement({3: [1]}, layers=range(3, 61), experts=256, top_k=10)
    export_sglang_kt(document, tmp_path / "out", config=config, record=True)
    flags = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())
    texts = [(tmp_path / "out" / name).read_text() for name in ("README.md", "launch.sh", "record.sh")]
    in_texts = {flag for text in texts for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)}
    ours = {"--check-log", "--check-dump", "--benchmark", "--min-hot"}
    assert {f"--{flag}" for flag in flags} | in_texts <= known | ours | {"--config"}
    assert {f"--{flag}" for flag in LEFT_UNSET} <= known


def test_every_flag_of_the_benchmark_is_the_clients(tmp_path: Path) -> None:
    export_sglang_kt(
        placement({3: [1]}, layers=range(3, 61), experts=256, top_k=8), tmp_path / "out", config=DEEPSEEK
    )
    text = (tmp_path / "out" / "benchmark.sh").read_text()
    words = text[text.index("measure() {") : text.index('|| refuse "the client')]
    client = source("bench_serving.py").read_text(encoding="utf-8")
    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", words)):
        assert f'"{flag}"' in client, flag
    for name in ("random-ids", "custom", "openai", "sharegpt"):
        assert f'"{name}",' in client
    # What the summary reads.
    for name in re.findall(r'^    "([a-z0-9_]+)": "', text, re.MULTILINE):
        assert f'"{name}": metrics.{name},' in client, name
    assert '"completed": metrics.completed,' in client


def test_the_conversion_that_is_advised_is_kt_kernels() -> None:
    experts_base = pytest.importorskip("kt_kernel.experts_base", reason="needs kt-kernel 0.7.2")
    command = Path(experts_base.__file__).parent / "cli" / "commands" / "quant.py"
    text = command.read_text(encoding="utf-8")
    document = placement({}, layers=[1], experts=4, cpu_method="AMXINT4")
    advice = conversion(document, "/weights", "/model")
    for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", advice.partition("`")[2].partition("`")[0]):
        assert f'"{flag}"' in text, flag
    assert 'INT4 = "int4"' in text
    assert 'INT8 = "int8"' in text
    assert 'kt_kernel_path / "scripts" / "convert_cpu_weights.py"' in text
    assert not (command.parents[2].parent / "scripts" / "convert_cpu_weights.py").exists()


def test_the_installed_runtime_has_the_rule_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    root = source("srt/server_args.py").parents[2]
    monkeypatch.setenv("PYTHONPATH", str(root))
    here = installed(sys.executable)
    found = {check.name: check for check in check_versions(here)}
    assert found["sglang-kt"].verdict is Verdict.OK
    assert found["kt-kernel"].verdict is Verdict.OK
    assert found["selection rule"].verdict is Verdict.OK
    # Its other dependencies are not here, and nothing hides that.
    assert found["KT wrapper"].verdict is Verdict.FAIL
    assert "No module named" in found["KT wrapper"].found


@pytest.mark.parametrize("largest", [1, 3, 5, 8, 20, 100, 256, 264, 300, 512, 600])
def test_captured_batches_are_the_runtimes_steps_and_the_largest(server: ModuleType, largest: int) -> None:
    arguments = SimpleNamespace(
        cuda_graph_max_bs=largest, disable_cuda_graph_padding=False, speculative_algorithm=None
    )
    theirs = server.ServerArgs._generate_cuda_graph_batch_sizes(arguments)
    assert list(captured_batches(largest)) == sorted({*theirs, largest})


def test_the_context_limit_is_never_above_the_runtimes() -> None:
    runtime = definitions(
        "srt/utils/hf_transformers_utils.py", {"CONTEXT_LENGTH_KEYS", "get_context_length"}, {}
    )["get_context_length"]
    for config in (
        {"max_position_embeddings": 4096},
        {"max_position_embeddings": 4096, "rope_scaling": {"factor": 4, "rope_type": "yarn"}},
        {"seq_length": 8192, "max_position_embeddings": 4096},
        {"seq_length": 2048, "max_position_embeddings": 4096},
    ):
        ours = longest_context(config)
        assert ours is not None
        assert ours <= runtime(SimpleNamespace(**config))


def test_recorder_addresses_and_folder_are_the_runtimes(tmp_path: Path) -> None:
    document = placement({3: [1]}, layers=range(3, 61), experts=256, top_k=8)
    export_sglang_kt(document, tmp_path / "out", config=DEEPSEEK, record=True)
    http = source("srt/entrypoints/http_server.py").read_text(encoding="utf-8")
    for word in ("start", "stop", "dump"):
        assert f'"/{word}_expert_distribution_record", methods=["GET", "POST"]' in http
    variable = "SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR"
    assert f'{variable} = EnvStr("/tmp")' in source("srt/environ.py").read_text(encoding="utf-8")
    assert f"export {variable}=" in (tmp_path / "out" / "launch.sh").read_text()
    recorder = source("srt/eplb/expert_distribution.py").read_text(encoding="utf-8")
    assert "_TOP_K_NUM = 8" in recorder


def test_the_cpu_methods_that_are_exported_are_the_runtimes() -> None:
    experts = pytest.importorskip("kt_kernel.experts", reason="needs kt-kernel 0.7.2")
    assert {"RAWINT4", "AMXINT4", "AMXINT8", "LLAMAFILE"} <= experts.INFERENCE_METHODS
    assert "torch" not in experts.INFERENCE_METHODS


def test_what_we_refuse_stops_the_runtime(tmp_path: Path) -> None:
    torch.save({"logical_count": torch.ones(1, 4, 2)}, tmp_path / "counts.pt")
    for frequency in (0, None):
        config = {"num_hidden_layers": 4, "num_experts": 2, "moe_layer_freq": frequency}
        with pytest.raises(BadInputError):
            kt_layout(config)
        with pytest.raises((ZeroDivisionError, TypeError)):
            runtime_mask(config, tmp_path / "counts.pt", kt_gpu_experts_ratio=0.5)


def test_the_runtime_makes_a_draft_of_the_architectures_that_are_exported() -> None:
    config_class = definitions(
        "srt/configs/model_config.py", {"ModelConfig"}, {"ModelImpl": SimpleNamespace(AUTO="auto")}
    )["ModelConfig"]
    loader = source("srt/utils/hf_transformers_utils.py").read_text(encoding="utf-8")
    for architecture in DRAFTING_ARCHITECTURES:
        # The runtime loads DeepSeek-V3.2 as DeepSeek-V3.
        read = architecture.replace("V32", "V3")
        assert f'"{read}"' in loader or read == architecture
        model = SimpleNamespace(is_draft_model=True, hf_config=SimpleNamespace(architectures=[read]))
        config_class._config_draft_model(model)
        assert model.hf_config.architectures[0] != read
        model = SimpleNamespace(is_draft_model=False, hf_config=SimpleNamespace(architectures=[read]))
        config_class._config_draft_model(model)
        assert model.hf_config.architectures[0] == read


@pytest.mark.parametrize("name", ["MIMO_V2_FLASH", "QWEN3_NEXT_80B", "DEEPSEEK_V4_FLASH"])
def test_the_runtime_parses_the_flags_of_every_pool(tmp_path: Path, server: ModuleType, name: str) -> None:
    config = getattr(family_configs, name)
    drafting = name == "QWEN3_NEXT_80B"
    document = planned(model_of(tmp_path, config), speculative=drafting)
    flags = server_flags(
        document, config, ratio=0.5, mem_fraction_static=0.5, model_path="/m", kt_weight_path="/w"
    )
    (tmp_path / "config.yaml").write_text(render_config(flags))
    parser = server_parser(server)
    merged = config_merger(parser)(["--config", str(tmp_path / "config.yaml")])
    parsed = vars(parser.parse_args(merged))
    for flag in flags:
        if flag.name.startswith(("swa", "max-mamba", "speculative", "page", "max-total")):
            assert parsed[flag.name.replace("-", "_")] == flag.value, flag.name
    assert server.ServerArgs.swa_full_tokens_ratio == RUNTIME_DEFAULT_RATIO
    default = server.auto_choose_speculative_params(
        SimpleNamespace(
            get_model_config=lambda: SimpleNamespace(hf_config=SimpleNamespace(architectures=["Any"])),
            speculative_algorithm="EAGLE",
        )
    )
    assert default == (MTP_SPECULATION.steps, MTP_SPECULATION.branches, MTP_SPECULATION.draft_tokens)
