"""Parallelism: which sizes go together, and which cut what cannot be cut."""

import json
from pathlib import Path

import pytest
from family_configs import DEEPSEEK_V3, FP8
from hypothesis import given
from hypothesis import strategies as st
from test_model import MINIMAX_M2, QWEN3_30B, QWEN3_CODER_480B

from placer.errors import BadInputError
from placer.model.spec import ModelSpec, read_model
from placer.parallelism import Parallelism


def read(folder: Path, config: dict[str, object]) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(config))
    return read_model(folder)


def test_groups_are_formed_among_the_tp_gpus() -> None:
    parallel = Parallelism(8, ep=4, pp=2, dp=8)
    assert (parallel.gpus, parallel.expert_tp, parallel.attention_tp) == (16, 2, 1)
    for wrong in ({"tp": 0}, {"tp": 4, "ep": 3}, {"tp": 4, "dp": 8}, {"pp": 0}):
        with pytest.raises(BadInputError):
            Parallelism(**wrong)


def test_a_rest_of_layers_goes_to_the_last_stages() -> None:
    assert Parallelism(pp=3).stage_layers(61) == (range(20), range(20, 40), range(40, 61))
    assert Parallelism(pp=3).stage_layers(62) == (range(20), range(20, 41), range(41, 62))
    assert Parallelism().stage_layers(4) == (range(4),)


@given(layers=st.integers(1, 200), pp=st.integers(1, 16))
def test_stages_cover_every_layer_once(layers: int, pp: int) -> None:
    stages = Parallelism(pp=pp).stage_layers(layers)
    assert [layer for stage in stages for layer in stage] == list(range(layers))
    assert max(map(len, stages)) - min(map(len, stages)) <= 1


def test_expert_parallelism_keeps_fp8_blocks_whole(tmp_path: Path) -> None:
    # 2,560 / 8 = 320, 768 / 4 = 192, 1,536 / 8 = 192: none is a multiple of 128.
    for config, tp in (
        (QWEN3_CODER_480B, 8),
        ({**QWEN3_30B, "quantization_config": FP8}, 4),
        (MINIMAX_M2, 8),
    ):
        model = read(tmp_path, config)
        assert Parallelism(tp).problem(model) is not None
        assert Parallelism(tp, ep=tp).problem(model) is None
    with pytest.raises(BadInputError, match="not whole FP8 blocks"):
        Parallelism(8).check(read(tmp_path, QWEN3_CODER_480B))


def test_shared_experts_and_dense_layers_stay_cut_by_tp(tmp_path: Path) -> None:
    deepseek = read(tmp_path, DEEPSEEK_V3)
    assert Parallelism(16, ep=16).problem(deepseek) is None
    # 2,048 / 32 = 64.
    problem = Parallelism(32, ep=32).problem(deepseek)
    assert problem is not None
    assert "shared experts" in problem


def test_experts_and_layers_must_go_round(tmp_path: Path) -> None:
    coder = read(tmp_path, QWEN3_CODER_480B)
    assert "160 experts" in (Parallelism(3, ep=3).problem(coder) or "")
    assert "without a layer" in (Parallelism(pp=63).problem(coder) or "")
