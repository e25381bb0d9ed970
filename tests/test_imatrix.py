"""Expert counts of llama.cpp's importance matrices become count traces."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placer.errors import BadInputError, MissingComponentError
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.trace import CountTrace

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")

# Layer 0 is dense; 4 tokens of top-2 in the others.
COUNTS = {1: [4, 3, 1, 0], 2: [1, 1, 2, 4]}


def imatrix(
    path: Path,
    counts: dict[int, Any],
    *,
    chunks: int | None = 2,
    kinds: tuple[str, ...] = ("gate", "up", "down"),
) -> Path:
    """What llama-imatrix saves: chunks of two tokens, sums of squares and counts of every matrix."""
    writer = gguf.GGUFWriter(path, arch="")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["a.txt"])
    if chunks is not None:
        writer.add_uint32("imatrix.chunk_count", chunks)
        writer.add_uint32("imatrix.chunk_size", 2)
    writer.add_tensor("blk.0.ffn_down.weight.counts", np.array([[4]], dtype=np.float32))
    for layer, values in counts.items():
        for kind in kinds:
            name = f"blk.{layer}.ffn_{kind}_exps.weight"
            writer.add_tensor(f"{name}.in_sum2", np.ones((len(values), 8), dtype=np.float32))
            writer.add_tensor(f"{name}.counts", np.array([values], dtype=np.float32).reshape(-1, 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_counts_of_every_layer_are_read(tmp_path: Path) -> None:
    trace = import_trace(imatrix(tmp_path / "m", COUNTS))
    assert isinstance(trace, CountTrace)
    assert trace.header.layers == (1, 2)
    assert trace.counts.tolist() == [[COUNTS[1], COUNTS[2]]]
    assert (trace.header.top_k, trace.tokens) == (2, 4)
    assert any("prompts" in note for note in trace.header.notes)
    assert any("top-2 was derived from 4 tokens" in note for note in trace.header.notes)


def test_the_model_is_believed_and_checked(tmp_path: Path) -> None:
    path = imatrix(tmp_path / "m", COUNTS, chunks=None)
    assert import_trace(path, layers=(1, 2), experts=4, top_k=2).tokens == 4
    for model, says in (
        ({}, "top-k is not known"),
        ({"top_k": 2, "experts": 8}, "4 experts per layer, the model has 8"),
        ({"top_k": 2, "layers": (1,)}, "layer 2, which has no experts"),
    ):
        with pytest.raises(BadInputError, match=says):
            import_trace(path, **model)  # type: ignore[arg-type]


def test_fused_and_differing_matrices_are_read_and_said_so(tmp_path: Path) -> None:
    assert import_trace(imatrix(tmp_path / "m", COUNTS, kinds=("gate_up",))).tokens == 4
    path = imatrix(tmp_path / "n", COUNTS)
    whole = path.read_bytes()
    first = np.array(COUNTS[1], dtype=np.float32).tobytes()
    path.write_bytes(whole.replace(first, np.array([4, 2, 2, 0], dtype=np.float32).tobytes(), 1))
    assert any("layers [1] saw different" in note for note in import_trace(path).header.notes)


@pytest.mark.parametrize("values", [[1, -1, 1, 1], [1, 0.5, 1, 1], [1, np.nan, 1, 1], [1, np.inf, 1, 1]])
def test_what_is_no_count_is_refused(values: list[float], tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="does not hold counts"):
        import_trace(imatrix(tmp_path / "m", {0: values}), top_k=1)


def test_a_model_file_is_no_importance_matrix(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="without expert counts"):
        import_trace(imatrix(tmp_path / "m", {}), top_k=1)


def _header(tensors: int, fields: int, rest: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, tensors, fields) + rest


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"GGUF",
        _header(0, 2**63, b""),
        _header(2**63, 0, b""),
        # An array of 2^60 bytes, of which the file holds none.
        _header(0, 1, _text(b"a") + struct.pack("<IIQ", 9, 0, 2**60)),
        # Arrays inside arrays, a thousand deep.
        _header(0, 1, _text(b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 2000),
        _header(0, 1, struct.pack("<Q", 2**63) + b"a"),
        _header(0, 1, _text(b"\xff\x00") + struct.pack("<II", 4, 1)),
        _header(
            1, 0, _text(b"blk.0.ffn_down_exps.weight.counts") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0)
        ),
        _header(1, 0, _text(b"blk.0.ffn_down_exps.weight.counts") + struct.pack("<IQIQ", 1, 4, 0, 2**63)),
        _header(1, 0, _text(b"x") + struct.pack("<IQIQ", 1, 4, 999, 0)),
    ],
)
def test_absurd_metadata_is_refused_at_once(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(BadInputError, match="not a readable GGUF"):
        import_trace(tmp_path / "m", top_k=1)


def test_more_metadata_than_any_matrix_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placer.profiler.trace.imatrix._MOST_PARTS", 20)
    with pytest.raises(BadInputError, match="claims more than it holds"):
        import_trace(imatrix(tmp_path / "m", COUNTS))


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_truncated_matrix_is_refused(share: float, tmp_path: Path) -> None:
    path = imatrix(tmp_path / "m", COUNTS)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(BadInputError, match="not a readable GGUF"):
        import_trace(path)


def test_without_gguf_it_is_a_missing_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = imatrix(tmp_path / "m", COUNTS)
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(MissingComponentError, match="gguf package") as caught:
        import_trace(path)
    assert "pip install gguf" in caught.value.hint
