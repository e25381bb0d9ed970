"""quantization_config: formats that placer sizes, and the module lists that leave layers unquantised."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.model.config import read_config
from placer.model.formats import expert_bytes, packed_format
from placer.model.module import StoredTensor
from placer.model.module_patterns import module_patterns
from placer.model.quantization import Quantization, quantization_of
from placer.model.storage import matrix_entries, stored_bytes, tensor_parameters

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


def test_formats_of_modules(tmp_path: Path) -> None:
    def found(section: Any, **fields: Any) -> tuple[str, str]:
        read = quantization(tmp_path, section, **fields)
        return read.format_of(EXPERT), read.format_of(Q_PROJ)

    for method in ("gptq", "awq"):
        section = {"quant_method": method, "bits": 4, "group_size": 128}
        assert found(section) == (f"{method}4_g128", f"{method}4_g128")
        assert found({**section, "group_size": -1})[0] == f"{method}4_channel"
        assert found({**section, "modules_to_not_convert": ["self_attn"]})[1] == "bf16"
    skipping = {"quant_method": "gptq", "bits": 8, "group_size": 32, "dynamic": {"-:.*self_attn.*": {}}}
    assert found(skipping) == ("gptq8_g32", "bf16")
    # modelopt, in config.json or as hf_quant_config.json has it.
    nvfp4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.1.self_attn*"]}
    assert found(nvfp4) == ("nvfp4", "bf16")
    assert found({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})[0] == "fp8_tensor"
    mixed = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            "model.layers.1.mlp.experts": {"quant_algo": "NVFP4"},
            "model.layers.1.self_attn.q_proj": {"quant_algo": "MXFP8"},
        },
    }
    assert found(mixed) == ("nvfp4", "mxfp8")
    assert quantization(tmp_path, mixed).format_of("model.layers.2.mlp.experts.0.up_proj") == "bf16"
    # Groups of compressed-tensors with formats of their own.
    int4 = weights(num_bits=4, type="int", strategy="group", group_size=128)
    both = compressed(
        {"targets": ["re:.*experts.*"], "weights": int4},
        {"targets": ["re:.*self_attn.*"], "weights": weights()},
    )
    assert found(both) == ("int4_g128", "fp8_channel")
    # DeepSeek-V4: FP8, with experts in four bits.
    assert found({"quant_method": "fp8", "weight_block_size": [128, 128]}, expert_dtype="fp4") == (
        "mxfp4",
        "fp8_block",
    )
    assert found({"quant_method": "mxfp8"}) == ("mxfp8", "mxfp8")


@pytest.mark.parametrize(
    ("form", "expert"),
    [
        # One expert of H 256, I 128: three matrices of 32,768 weights.
        ("fp8_tensor", 3 * (32768 + 8)),
        ("mxfp8", 3 * (32768 + 1024)),
        ("nvfp4", 3 * (16384 + 2048 + 8)),
        ("int4_g128", 3 * (16384 + 2 * 256 + 8)),
        ("int8_channel", 3 * (32768 + 8) + 2 * (128 + 128 + 256)),
        # GPTQ: packed zeros and float16 scales per group of 128 inputs, and the group of every input.
        ("gptq4_g128", 3 * (16384 + 256 * 2 + 128) + 4 * (256 + 256 + 128)),
        ("awq4_g128", 3 * (16384 + 256 * 2 + 128)),
    ],
)
def test_bytes_of_an_expert_by_hand(form: str, expert: int) -> None:
    assert expert_bytes(form, H=256, width=128) == expert


@pytest.mark.parametrize(
    "form",
    [
        *("fp8_block", "fp8_channel", "fp8_tensor", "mxfp8", "mxfp4", "nvfp4", "int4_g32", "int8_g64"),
        *("int4_channel", "gptq4_g128", "gptq8_channel", "awq4_g64"),
    ],
)
@given(N=st.integers(1, 64).map(lambda n: 32 * n), K=st.integers(1, 64).map(lambda k: 32 * k))
def test_the_tensors_of_a_matrix_add_up_to_its_bytes(form: str, N: int, K: int) -> None:
    # Gate, up and down of an expert of width N for a hidden state of width K.
    stored = 2 * stored_bytes(matrix_entries(form, N, K)) + stored_bytes(matrix_entries(form, K, N))
    assert stored == expert_bytes(form, H=K, width=N)
    bits = packed_format(form).bits if form[:3] in ("int", "gpt", "awq") else 4
    tensors = [StoredTensor(f"x.{name}", dtype, shape) for name, dtype, shape in matrix_entries(form, N, K)]
    assert sum(tensor_parameters(tensor, bits) for tensor in tensors) == N * K


@pytest.mark.parametrize("name", ["int3_g32", "gptq4", "awq4_g0", "int4_g", "nf4"])
def test_formats_that_do_not_exist(name: str) -> None:
    with pytest.raises(BadInputError, match="unknown expert format"):
        expert_bytes(name, H=256, width=128)


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
        ("model.layers.1*", "model.layers.12.mlp.gate", True),
        ("model.layers.1.*", "model.layers.12.mlp.gate", False),
        ("model.language_model.layers.1.self_attn*", Q_PROJ, True),
        ("layers.1.mlp.experts", EXPERT, True),
        ("*.self_attn.*", Q_PROJ, True),
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
    started = time.process_time()
    patterns = module_patterns([*names, *["re:" + ".*a" * 16 + "b$"] * 100])
    assert not any(patterns.match("a" * 200) for _ in range(20))
    assert time.process_time() - started < 5.0
    with pytest.raises(BadInputError, match="wildcards"):
        module_patterns(["*a"] * 1000)
