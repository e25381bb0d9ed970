"""The export to llama.cpp: the override names exactly the cold layers' expert weights."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import gguf
import numpy as np
import pytest
from layerwise import layerwise

from placer.errors import BadInputError
from placer.exports.gguf_experts import expert_layer_bytes
from placer.exports.llama_cpp import export_llama_cpp, first_cold, llama_flags, override


def applies(value: str, name: str) -> bool:
    """The runtime's rule: the pattern is searched for in the tensor's name."""
    return re.search(value.rpartition("=")[0], name) is not None


def gguf_file(path: Path, layers: dict[int, int]) -> Path:
    """A GGUF model with experts of ``layers``: float32 rows of so many values in each of three tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    for layer, width in layers.items():
        for part in ("up", "down", "gate"):
            writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", np.zeros((8, width), dtype=np.float32))
        writer.add_tensor(f"blk.{layer}.attn_q.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_override_hits_the_cold_layers_experts_and_nothing_else() -> None:
    value = override((1, 12))
    for layer in (1, 12):
        for part in ("up", "down", "gate", "gate_up"):
            assert applies(value, f"blk.{layer}.ffn_{part}_exps.weight")
    for name in (
        "blk.2.ffn_up_exps.weight",
        "blk.11.ffn_up_exps.weight",
        "blk.112.ffn_up_exps.weight",
        "blk.1.ffn_up_shexp.weight",
        "blk.1.ffn_up.weight",
        "blk.1.ffn_gate_inp.weight",
        "blk.1.ffn_up_exps.bias",
        "blk.1.attn_q.weight",
    ):
        assert not applies(value, name)
    # A comma would start another override.
    assert "," not in value


def test_layers_are_chosen_by_the_plans_bytes_without_a_file(tmp_path: Path) -> None:
    result = export_llama_cpp(layerwise(room=170), tmp_path / "out")
    text = (tmp_path / "out" / "launch.sh").read_text()
    assert r"blk\.(1|3)\.ffn_(up|down|gate|gate_up)_exps\.weight=CPU" in text
    assert "--ctx-size 5120 --parallel 8 --batch-size 2048 --ubatch-size 2048" in text
    assert "--threads 32" in text
    subprocess.run(["bash", "-n", str(tmp_path / "out" / "launch.sh")], check=True)
    assert result.launch_line.startswith("MODEL_PATH=FILE.gguf ")
    assert export_llama_cpp(
        layerwise(room=170), Path(os.path.relpath(tmp_path / "out"))
    ).launch_line.startswith("MODEL_PATH=FILE.gguf ./")


def test_layers_are_chosen_by_the_files_own_bytes(tmp_path: Path) -> None:
    # 3 tensors of 8 rows of float32: 96 bytes a value. Layer 2 takes 192, the others 96.
    path = gguf_file(tmp_path / "model.gguf", {1: 1, 2: 2, 3: 1, 4: 1})
    assert expert_layer_bytes(path, layerwise(room=170).model) == [96, 192, 96, 96]
    result = export_llama_cpp(layerwise(room=200), tmp_path / "out", model_path=str(path))
    # 200 bytes: layers 3 and 4 save 10 ms, layer 2 alone 8.
    assert "Layers on the GPU: 3, 4." in (tmp_path / "out" / "README.md").read_text()
    assert not any("no GGUF file" in note for note in result.notes)


def test_a_split_file_is_read_whole(tmp_path: Path) -> None:
    gguf_file(tmp_path / "m-00001-of-00002.gguf", {1: 1, 2: 1})
    first = tmp_path / "m-00001-of-00002.gguf"
    with pytest.raises(BadInputError, match=r"m-00002-of-00002\.gguf is missing"):
        expert_layer_bytes(first, layerwise(room=170).model)
    gguf_file(tmp_path / "m-00002-of-00002.gguf", {3: 1, 4: 1})
    assert expert_layer_bytes(first, layerwise(room=170).model) == [96] * 4


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 40])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(BadInputError, match="not a readable GGUF file"):
        expert_layer_bytes(tmp_path / "model.gguf", layerwise(room=170).model)


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "model.gguf", {1: 1, 2: 1, 3: 1})
    with pytest.raises(BadInputError, match="layer 4 is missing"):
        export_llama_cpp(layerwise(room=170), tmp_path / "out", model_path=str(path))
    assert not (tmp_path / "out").exists()


def test_the_short_form_is_named_where_it_says_the_same() -> None:
    plan = layerwise(room=170)
    assert first_cold(plan, (1, 2)) == 3
    assert first_cold(plan, (1, 3)) is None
    assert first_cold(plan, ()) is None


def test_every_note_has_its_cause(tmp_path: Path) -> None:
    def notes(room: int = 170, **changes: object) -> str:
        return "\n".join(export_llama_cpp(layerwise(room=room, **changes), tmp_path / "out").notes)

    plain = notes()
    assert "all experts of a layer in one tensor" in plain
    assert "no GGUF file was read" in plain
    assert "predicted decode step 21.0 ms against 20.0 ms of the plan, 1.0 ms slower" in plain
    assert "-fit off" in plain
    assert "q8_0" not in plain
    assert "every layer fits" in notes(room=320)
    assert "no layer's experts fit" in notes(room=79)
    assert "q8_0 takes 8.5 bits" in notes(kv={"dtype": "fp8"})
    assert "--n-cpu-moe 3 says the same" in notes(whole_layers={"all_cold_ms": [2.0, 2.0, 9.0, 9.0]})
    assert "not stated" in notes(predicted={"per_layer_ms": None})


def test_fp8_kv_becomes_q8() -> None:
    flags = shlex.join(llama_flags(layerwise(room=170, kv={"dtype": "fp8"}), (1,)))
    assert "--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on" in flags


def test_a_plan_for_several_gpus_is_refused(tmp_path: Path) -> None:
    plan = layerwise(room=170).model_copy(update={"tp": 2})
    with pytest.raises(BadInputError, match="2 GPUs"):
        export_llama_cpp(plan, tmp_path / "out")
