"""A checkpoint with random weights: what it holds is what its sizes say."""

from pathlib import Path

import pytest

from placer.examples.random_moe import RandomMoe, write_random_moe
from placer.model.spec import read_model

SIZES = RandomMoe(256, 64, experts=4, top_k=2, layers=2, heads=4, kv_heads=2)


def test_a_checkpoint_is_read_as_the_model_of_its_sizes(tmp_path: Path) -> None:
    write_random_moe(tmp_path / "moe", SIZES)
    model = read_model(tmp_path / "moe")
    assert (model.experts, model.top_k, model.expert_intermediate_size) == (4, 2, 64)
    assert model.moe_layers == (0, 1)
    assert model.provenance["sizes"] == "safetensors headers"
    # Three matrices of 256 x 64 for each of four experts, in two layers.
    assert model.routed_parameters == 2 * 4 * 3 * 256 * 64
    # Two rows of keys and of values, 64 wide, in bfloat16, in each of two layers.
    assert model.kv_bytes_per_token_per_gpu(1, "bf16") == 2 * 2 * 64 * 2 * 2


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        write_random_moe(tmp_path, SIZES)
