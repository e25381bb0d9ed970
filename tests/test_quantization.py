"""quantization_config: formats that placer sizes, and the module lists that leave layers unquantised."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from placer.errors import BadInputError
from placer.model.config import read_config
from placer.model.module_patterns import module_patterns
from placer.model.quantization import Quantization, quantization_of

Q_PROJ = "model.layers.1.self_attn.q_proj"
EXPERT = "model.layers.1.mlp.experts.7.up_proj"


def quantization(folder: Path, section: Any, **fields: Any) -> Quantization:
    (folder / "config.json").write_text(json.dumps({**fields, "quantization_config": section}))
    return quantization_of(read_config(folder / "config.json"))


def weights(**changes: Any) -> dict[str, Any]:
    return {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True} | changes


def compressed(*groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, **fields}


def test_no_quantization_is_the_plain_dtype(tmp_path: Path) -> None:
    for dtype, name in (("bfloat16", "bf16"), ("float16", "f16"), ("float32", "f32")):
        assert quantization(tmp_path, None, torch_dtype=dtype).format_of(Q_PROJ) == name
        assert quantization(tmp_path, None, dtype=dtype).format_of(Q_PROJ) == name


def test_block_fp8(tmp_path: Path) -> None:
    section = {"quant_method": "fp8", "weight_block_size": [64, 32], "modules_to_not_convert": ["q_proj"]}
    found = quantization(tmp_path, section)
    assert found.block == (64, 32)
    assert found.format_of(EXPERT) == "fp8_block"
    assert found.format_of(Q_PROJ) == "bf16"


def test_mxfp4_covers_experts_only(tmp_path: Path) -> None:
    found = quantization(tmp_path, {"quant_method": "mxfp4"})
    assert found.format_of(EXPERT) == "mxfp4"
    assert found.format_of(Q_PROJ) == "bf16"


def test_compressed_tensors(tmp_path: Path) -> None:
    channel = compressed({"targets": ["Linear"], "weights": weights()}, ignore=["re:.*self_attn.*"])
    assert quantization(tmp_path, channel).format_of(EXPERT) == "fp8_channel"
    assert quantization(tmp_path, channel).format_of(Q_PROJ) == "bf16"
    int4 = weights(num_bits=4, type="int", strategy="group", group_size=32)
    targeted = compressed({"targets": ["re:.*mlp\\.experts\\.\\d+\\.(gate|up|down)_proj$"], "weights": int4})
    assert quantization(tmp_path, targeted).format_of(EXPERT) == "int4_g32"
    assert quantization(tmp_path, targeted).format_of(Q_PROJ) == "bf16"


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({}, "quant_method"),
        ({"quant_method": ["fp8"]}, "quant_method"),
        ({"quant_method": "bitsandbytes", "bits": 4}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 4}, "group_size"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:.*": {}}}, "dynamic"),
        ({"quant_method": "modelopt", "quant_algo": "INT3"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
        ({"quant_method": "fp8"}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        (compressed(), "config_groups"),
        (compressed({"targets": ["Linear"]}), "weights"),
        (compressed({"targets": ["Linear"], "weights": weights(num_bits=4)}), "num_bits"),
        (
            compressed(
                {
                    "targets": ["Linear"],
                    "weights": weights(num_bits=4, type="int", strategy="group", group_size=0),
                }
            ),
            "group_size",
        ),
        (
            compressed(
                {"targets": ["Linear"], "weights": weights()},
                {
                    "targets": ["Linear"],
                    "weights": weights(num_bits=4, type="int", strategy="group", group_size=32),
                },
            ),
            "mixes",
        ),
        (compressed({"targets": [7], "weights": weights()}), "targets"),
    ],
)
def test_what_has_no_sizing_rule_is_named(tmp_path: Path, section: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError, match=named) as caught:
        quantization(tmp_path, section)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("entry", "module", "means"),
    [
        ("lm_head", "lm_head", True),
        ("gate", "model.layers.0.mlp.gate", True),
        ("gate", "model.layers.0.mlp.gate_proj", False),
        ("model.layers.1", "model.layers.1.mlp.gate", True),
        ("model.layers.1", "model.layers.10.mlp.gate", False),
        ("language_model.model.layers.1", "model.layers.1.mlp.gate", True),
        ("model.layers.*.self_attn", "model.layers.12.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "model.layers.12.mlp.gate", False),
        ("re:.*self_attn.*", Q_PROJ, True),
        ("re:self_attn", Q_PROJ, False),
        ("re:^model\\.layers\\.1\\.", Q_PROJ, True),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "model.layers.0.mlp.up_proj", True),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", EXPERT, False),
        ("re:.*mlp\\.gate$", "model.layers.0.mlp.gate_proj", False),
        ("re:language_model\\.model.*", Q_PROJ, True),
    ],
)
def test_module_patterns(entry: str, module: str, means: bool) -> None:
    assert module_patterns([entry]).match(module) is means


@pytest.mark.parametrize(
    "entry",
    [
        "re:(a+)+$",
        "re:[a-z]*",
        "re:(a|b",
        "re:a{9}",
        "re:" + ".*a" * 40,
        "re:" + "(a|b)" * 9,
        "re:" + "a" * 999,
    ],
)
def test_patterns_that_may_never_end_are_refused(entry: str) -> None:
    with pytest.raises(BadInputError, match="pattern"):
        module_patterns([entry])


def test_many_patterns_stay_quick() -> None:
    names = [f"model.layers.{layer}.mlp.gate" for layer in range(20_000)]
    started = time.perf_counter()
    patterns = module_patterns([*names, *["re:" + ".*a" * 16 + "b$"] * 100])
    assert not any(patterns.match("a" * 200) for _ in range(20))
    assert time.perf_counter() - started < 5.0
    with pytest.raises(BadInputError, match="wildcards"):
        module_patterns(["*a"] * 1000)
