"""The GPU campaign: what it says up front, which models it takes, and that nothing is written without a GPU."""

import json
from pathlib import Path

import pytest
import torch
from family_configs import DEEPSEEK_V4_FLASH
from tiny_model import TINY_CONFIG, tiny_model

from placer.errors import BadInputError
from placer.examples.gpu_campaign import components, jobs, main, models_in
from placer.model.spec import read_model


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_what_is_missing_and_ends_with_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model(tmp_path / "tiny")
    assert main(["--model", str(tmp_path / "tiny"), "--tp", "1", "2", "-o", str(tmp_path / "out")]) == 4
    said = capsys.readouterr().err
    for part in ("CUDA device: missing", "kernel sglang: missing", "kernel torch: missing",
                 "sums over 2 GPUs: missing (0 of 2 GPUs are here)", "error: no GPU is present"):  # fmt: skip
        assert part in said
    assert not (tmp_path / "out").exists()


def test_components_name_every_kernel_once() -> None:
    names = [each.name for each in components([1, 4])]
    assert names[:6] == [
        "CUDA device",
        *(f"kernel {k}" for k in ("sglang", "vllm", "deep_gemm", "triton", "torch")),
    ]
    assert "sums over 4 GPUs" in names
    assert len(set(names)) == len(names)


def test_models_that_no_kernel_serves_are_left_out_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "v4.json").write_text(json.dumps(DEEPSEEK_V4_FLASH))
    chosen, left_out = jobs([tiny_model(tmp_path / "tiny"), read_model(tmp_path / "v4.json")], [1, 2, 3])
    # An expert width of 128 cannot be cut, and three GPUs do not divide four heads.
    assert [(model.name, tp) for model, tp in chosen] == [("tiny", 1)]
    assert [reason.split(":")[0] for reason in left_out] == ["tiny at tp 2", "tiny at tp 3", "v4"]
    assert "mxfp4_f32" in left_out[-1]


def test_a_folder_of_configs_gives_all_of_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps(TINY_CONFIG))
    assert [model.name for model in models_in([tmp_path])] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no model is given"):
        models_in([tmp_path / "empty"])
