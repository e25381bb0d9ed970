"""Plans of every kind through the mask code of the unmodified sglang-kt 0.7.2 and kt-kernel 0.7.2 wheels."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from placements import FP8, placement
from sglang_kt_source import REPOSITORY, hf_config, mask_functions, runtime_mask, source
from shared_data import SHARED_DATA, needs_shared_data

from placer.exports.kt_applied import check_log
from placer.exports.kt_architectures import SPLIT_ARCHITECTURES, UNRECORDED_ARCHITECTURES
from placer.exports.kt_arguments import planned_arguments
from placer.exports.kt_expert_limits import BLOCK
from placer.exports.kt_ranking import cut_ratio, ranked_counts
from placer.exports.kt_requirements import expert_width
from placer.exports.kt_selection import kt_layout
from placer.exports.sglang_kt import export_sglang_kt
from placer.model.config import Config
from placer.model.counts import read_counts
from placer.model.families import family_of

pytestmark = pytest.mark.runtime

RATIOS = 10_000
MODELS = sorted((SHARED_DATA / "model_configs").glob("*.json"))


# --- what the runtime can load ----------------------------------------------------------------------------


@cache
def model_files() -> tuple[str, ...]:
    """The text of every file of sglang/srt/models."""
    folder = source("srt/models/registry.py").parent
    return tuple(file.read_text(encoding="utf-8-sig") for file in sorted(folder.glob("*.py")))


@cache
def models() -> dict[str, tuple[str, str]]:
    """Classes of sglang/srt/models: the bases and the text of each, up to the next line that is not indented."""
    pattern = re.compile(r"^class (\w+)(?:\(([^)]*)\))?:\n((?:[ \t].*\n|[ \t)]*\n)*)", re.MULTILINE)
    return {name: (bases, body) for text in model_files() for name, bases, body in pattern.findall(text)}


@cache
def registered() -> frozenset[str]:
    """Architectures that the runtime registers (EntryClass of each file)."""
    pattern = re.compile(r"^EntryClass = (\[[^\]]*\]|\w+)", re.MULTILINE)
    return frozenset(
        name
        for text in model_files()
        for entry in pattern.findall(text)
        for name in re.findall(r"\w+", entry)
    )


def with_bases(name: str) -> Iterator[str]:
    if name in models():
        yield name
        for base in re.findall(r"\w+", models()[name][0]):
            yield from with_bases(base)


def test_every_architecture_that_is_exported_is_registered() -> None:
    assert registered() >= SPLIT_ARCHITECTURES


def test_kt_is_brought_in_by_one_model_file_that_may_fail_to_import() -> None:
    """What launch.sh refuses (SGLANG_DISABLED_MODEL_ARCHS) and what preflight imports."""
    text = source("srt/models/deepseek_v4.py").read_text(encoding="utf-8")
    assert '_try_side_effect("sglang.srt.layers.moe.kt_ep_wrapper")' in text
    assert "SGLANG_DISABLED_MODEL_ARCHS" in source("srt/models/registry.py").read_text(encoding="utf-8")
    registry = source("srt/layers/moe/quant_method_registry.py").read_text(encoding="utf-8")
    assert "_QUANT_WRAPPERS: List[" in registry
    wrapper = source("srt/layers/moe/kt_ep_wrapper.py").read_text(encoding="utf-8")
    assert '"kt_ep", _kt_ep_predicate' in wrapper
    assert "KTRANSFORMERS_AVAILABLE = True" in wrapper


def test_architectures_that_cannot_be_recorded_lack_what_the_recorder_needs() -> None:
    for name in SPLIT_ARCHITECTURES:
        located = any(
            "get_model_config_for_expert_location" in models()[each][1] for each in with_bases(name)
        )
        if name in ("DeepseekV4ForCausalLM", "Step3VLForConditionalGeneration"):
            file = "deepseek_v4" if name.startswith("Deepseek") else "step3_vl"
            text = source(f"srt/models/{file}.py").read_text(encoding="utf-8")
            assert "with_current_layer(" not in text
            assert name in UNRECORDED_ARCHITECTURES
        else:
            assert (name in UNRECORDED_ARCHITECTURES) is not located, name


def test_activations_are_clamped_for_no_method_that_is_exported() -> None:
    from typing import Optional

    from sglang_kt_source import definitions

    clamps = definitions(
        "srt/layers/moe/kt_ep_wrapper.py", {"_kt_supports_swiglu_parameters"}, {"Optional": Optional}
    )["_kt_supports_swiglu_parameters"]
    for method in ("RAWINT4", "AMXINT4", "AMXINT8", "LLAMAFILE"):
        assert not clamps(method, False)
    assert clamps("MXFP4", False)


# --- plans of every published model -----------------------------------------------------------------------


def uneven(layers: tuple[int, ...], experts: int, seed: int) -> dict[int, list[int]]:
    """Hot experts in any number per layer; every third layer has none or all."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, experts + 1, len(layers))
    sizes[::3] = random.choice([0, experts], len(sizes[::3]))
    return {
        layer: random.permutation(experts)[:size].tolist() for layer, size in zip(layers, sizes, strict=True)
    }


@needs_shared_data
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_runtime_runs_any_plan_of_every_published_model(tmp_path: Path, path: Path) -> None:
    config = json.loads(path.read_text()) | {"quantization_config": FP8}
    assert config["architectures"][0] in registered()
    reader = Config(path, "", config)
    layers = read_counts(reader, family_of(reader)).moe_layers
    layout = kt_layout(config)
    text = config.get("text_config", config)
    # What no expert kernel runs, and what asks a placement for pools that this one has not: their export needs more
    # than a mask, so the counts that it would write are written alone.
    narrow = expert_width(text)[1] % BLOCK or text["hidden_size"] % BLOCK
    pooled = text.get("compress_ratios") or text.get("linear_num_value_heads")
    experts, everything = layout.experts, {layer: list(range(layout.experts)) for layer in layers}
    # All experts of the first layer, one of the last, none between.
    edges = {layer: [layer % experts] if place == 0 else [] for place, layer in enumerate(reversed(layers))}
    edges[layers[0]] = list(range(experts))
    for number, hot in enumerate(
        (uneven(layers, experts, 1), uneven(layers, experts, 2), edges, {}, everything)
    ):
        document = placement(hot, layers=layers, experts=experts, top_k=reader.count("num_experts_per_tok"))
        folder = tmp_path / str(number)
        if narrow or pooled:
            folder.mkdir()
            counts = ranked_counts(hot, layers, layout).astype(np.int32)
            torch.save({"logical_count": torch.from_numpy(counts)[None]}, folder / "init_expert_location.pt")
            ratio = float(f"{cut_ratio(document.hot_total, layout.total_experts):.9f}")
        else:
            export_sglang_kt(document, folder, config=config)
            flags = yaml.safe_load((folder / "config.yaml").read_text())
            ratio = float(str(flags["kt-gpu-experts-ratio"]))
        mask = runtime_mask(config, folder / "init_expert_location.pt", kt_gpu_experts_ratio=ratio).numpy()
        assert np.array_equal(mask[list(layers)], document.hot_mask()), (path.stem, number)
        dense = sorted(set(range(layout.num_layers)) - set(layout.moe_layers))
        assert mask[dense].all()
        phantom = sorted(set(layout.moe_layers) - set(layers))
        assert not mask[phantom].any()


READ_CONFIGS = """
import json, sys
from transformers import AutoConfig
read = {}
for path in sys.argv[1:]:
    document = json.load(open(path))
    try:
        config = type(AutoConfig.for_model(document["model_type"])).from_dict(document)
    except ValueError:
        continue  # classes that the runtime or the checkpoint brings itself
    text = getattr(config, "text_config", None) or config
    names = ("num_hidden_layers", "num_local_experts", "num_experts", "n_routed_experts",
             "first_k_dense_replace", "moe_layer_freq", "num_hash_layers")
    read[path] = {name: getattr(text, name) for name in names if hasattr(text, name)}
print(json.dumps(read))
"""


@needs_shared_data
def test_the_runtimes_config_classes_say_what_config_json_is_read_to_say() -> None:
    """The runtime reads attributes of a class, whose defaults and other names config.json does not show."""
    root = Path(os.environ.get("PLACER_TRANSFORMERS_KT") or REPOSITORY / ".runtimes" / "transformers-kt")
    if not (root / "transformers").is_dir():
        pytest.skip("needs transformers-kt 5.6.0: make test-runtimes, or PLACER_TRANSFORMERS_KT=<its folder>")
    done = subprocess.run(
        [sys.executable, "-c", READ_CONFIGS, *map(str, MODELS)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    read = json.loads(done.stdout.splitlines()[-1])
    assert len(read) >= 24
    for path, attributes in read.items():
        assert kt_layout(attributes) == kt_layout(json.loads(Path(path).read_text())), path


def test_ten_thousand_ratios_select_exactly_what_was_asked(tmp_path: Path) -> None:
    """For random layers, experts and numbers of hot experts, none and all among them."""
    functions = mask_functions()
    random = np.random.default_rng(7)
    done = 0
    while done < RATIOS:
        num_layers, experts = int(2 ** random.uniform(0, 6.5)), int(2 ** random.uniform(0, 9))
        total = num_layers * experts
        order = random.permutation(total)
        counts = torch.empty(total, dtype=torch.int32)
        counts[torch.from_numpy(order)] = torch.arange(total, 0, -1, dtype=torch.int32)
        torch.save({"logical_count": counts.reshape(1, num_layers, experts)}, tmp_path / "counts.pt")
        arguments = SimpleNamespace(
            get_hf_config=lambda L=num_layers, E=experts: hf_config(
                {"num_hidden_layers": L, "num_experts": E}
            ),
            init_expert_location=str(tmp_path / "counts.pt"),
            kt_num_gpu_experts=None,
            kt_expert_placement_strategy="frequency",
        )
        for hot in {0, total, *random.integers(0, total + 1, 98).tolist()}:
            functions["_KT_GPU_EXPERTS_MASKS"] = None
            arguments.kt_gpu_experts_ratio = float(f"{cut_ratio(hot, total):.9f}")
            mask = functions["_init_kt_gpu_experts_masks"](arguments).numpy().reshape(-1)
            assert int(mask.sum()) == hot, (num_layers, experts, hot)
            assert mask[order[:hot]].all()
            done += 1


# --- what the server says ---------------------------------------------------------------------------------


def test_the_log_lines_that_are_read_are_the_runtimes() -> None:
    lines = {
        "srt/layers/moe/kt_ep_wrapper.py": [
            '"KT GPU experts: layer %d (MoE) has %d GPU experts"',
            "\"Generated KT GPU experts masks using '%s' strategy: ",
            '"Could not determine num_layers or num_experts from model config."',
            '"Either kt_num_gpu_experts or kt_gpu_experts_ratio is required but not set."',
            '"Using frequency-based strategy WITHOUT activation frequency data "',
        ],
        "srt/managers/scheduler.py": [
            'f"max_total_num_tokens={self.max_total_num_tokens}, "',
            'f"max_running_requests={self.max_running_requests}, "',
        ],
        "srt/model_executor/model_runner.py": [
            'f"Load weight end. "',
            'f"mem usage={self.weight_load_mem_usage:.2f} GB."',
        ],
        "srt/model_executor/model_runner_kv_cache_mixin.py": [
            'f"max_total_tokens={max_total_tokens_configured} is larger than the profiled value "',
            'f"Memory pool end. "',
        ],
        "srt/mem_cache/memory_pool.py": [
            'f"KV Cache is allocated. #tokens: {num_tokens}, K size: {k_size_GB:.2f} GB, V size: {v_size_GB:.2f} GB"',
            'f"KV Cache is allocated. #tokens: {num_tokens}, KV size: {kv_size_GB:.2f} GB"',
            "GB = 1024 * 1024 * 1024",
            'f"Mamba Cache is allocated. "',
            'f"max_mamba_cache_size: {size}, "',
        ],
        "srt/entrypoints/engine.py": ['logger.info(f"{server_args=}")'],
        "srt/models/deepseek_v4.py": ['"DSV4 side-effect import failed: %s -> %s. "'],
        "srt/models/registry.py": [
            'f"In import_model_classes: Ignore import error when loading {name}: {e}"'
        ],
        "srt/utils/common.py": ['f"[%(asctime)s{maybe_ms}{prefix}] %(message)s"'],
    }
    for path, texts in lines.items():
        file = source(path).read_text(encoding="utf-8")
        for text in texts:
            assert text in file, (path, text)


def test_the_log_of_the_runtimes_own_mask_code_agrees_with_the_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "num_hidden_layers": 6,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "hidden_size": 256,
        "moe_intermediate_size": 128,
        "quantization_config": FP8,
    }
    hot = uneven((1, 2, 3, 4, 5), 16, 3)
    document = placement(hot, layers=range(1, 6), experts=16)
    export_sglang_kt(document, tmp_path / "out", config=config)
    flags = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())
    with caplog.at_level("INFO", logger="sglang-kt"):
        runtime_mask(
            config,
            tmp_path / "out" / "init_expert_location.pt",
            kt_gpu_experts_ratio=float(str(flags["kt-gpu-experts-ratio"])),
        )
    said = [f"[2026-11-29 12:00:00 TP0] {record.getMessage()}" for record in caplog.records]
    said.append(
        "[x TP0] max_total_num_tokens=5120, chunked_prefill_size=2048, max_running_requests=8, context_len=1"
    )
    (tmp_path / "server.log").write_text("\n".join(said))
    assert check_log(document, tmp_path / "server.log").same
    fewer = hot | {5: hot[5][:-1] if hot[5] else [0]}
    other = placement(fewer, layers=range(1, 6), experts=16)
    assert not check_log(other, tmp_path / "server.log").same


def test_the_arguments_that_a_server_prints_are_those_that_are_compared() -> None:
    args = source("srt/server_args.py").read_text(encoding="utf-8")
    names = planned_arguments(placement({1: [0]}, layers=[1], experts=4))
    assert len(names) >= 20
    for name in names:
        assert re.search(rf"^    {name}: ", args, re.MULTILINE), name
