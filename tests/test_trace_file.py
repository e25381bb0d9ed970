"""Trace files: what is written is what is read, and nothing unsound is either."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from small_traces import count_trace, count_traces, token_trace, token_traces

from placer.errors import BadInputError
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.trace import PADDING, CountTrace, TokenTrace, Trace

METADATA = {
    "schema": "placer.trace/1",
    "model": "tiny",
    "layers": "[3, 4]",
    "experts": "4",
    "top_k": "2",
    "source": "written by hand",
    "domains": "[]",
    "notes": "[]",
}
ARRAYS = {
    "topk_ids": np.array([[[0, 1], [2, 3]], [[1, PADDING], [3, 0]]], dtype=np.uint16),
    "request": np.array([7, 7], dtype=np.int32),
    "position": np.array([5, 6], dtype=np.int32),
    "phase": np.array([0, 1], dtype=np.uint8),
}


def assert_same(one: Trace, other: Trace) -> None:
    assert type(one) is type(other)
    assert one.header == other.header
    names = ("counts", "window_tokens")
    if isinstance(one, TokenTrace):
        names = ("topk_ids", "request", "position", "phase", "domain", "topk_weights")
    for name in names:
        first, second = getattr(one, name), getattr(other, name)
        if first is None:
            assert second is None
        else:
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)


@settings(max_examples=40, deadline=None)
@given(trace=st.one_of(token_traces(padding=True), count_traces()))
def test_a_trace_comes_back_as_it_was_written(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.safetensors"
    write_trace(trace, path)
    assert_same(read_trace(path), trace)


def test_the_bytes_depend_on_the_content_alone(tmp_path: Path) -> None:
    trace = token_trace([[[0, 1]]], experts=2)
    for name in ("one", "other"):
        write_trace(trace, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_weights_notes_and_any_text_come_back_too(tmp_path: Path) -> None:
    trace = token_trace([[[0, 1]]], experts=2)
    trace = replace(
        trace,
        header=replace(trace.header, model='"quoted" \u2603', notes=("first", "second\nline")),
        topk_weights=np.array([[[0.75, 0.25]]], dtype=np.float16),
    )
    write_trace(trace, tmp_path / "t")
    assert_same(read_trace(tmp_path / "t"), trace)


def test_layers_keep_their_checkpoint_indices(tmp_path: Path) -> None:
    save_file(ARRAYS, tmp_path / "t", metadata=METADATA)
    trace = read_trace(tmp_path / "t")
    assert isinstance(trace, TokenTrace)
    assert trace.header.layers == (3, 4)
    assert trace.tokens == 2


def test_tensors_and_keys_that_are_not_known_are_left_alone(tmp_path: Path) -> None:
    save_file(
        {**ARRAYS, "extra": np.zeros(3, dtype=np.float32)},
        tmp_path / "t",
        metadata={**METADATA, "schema": "placer.trace/1.2", "extra": "more"},
    )
    assert read_trace(tmp_path / "t").tokens == 2


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"topk_ids": ARRAYS["topk_ids"].astype(np.int16)}, "topk_ids"),
        ({"topk_ids": ARRAYS["topk_ids"][:, :1]}, "shape"),
        ({"topk_ids": np.array([[[0, 1], [2, 4]], [[1, 2], [3, 0]]], dtype=np.uint16)}, "expert 4 of 4"),
        ({"topk_ids": np.array([[[0, 1], [2, 2]], [[1, 2], [3, 0]]], dtype=np.uint16)}, "chosen twice"),
        ({"topk_ids": np.full((2, 2, 2), PADDING, dtype=np.uint16)}, "no token is routed in layers 3, 4"),
        ({"topk_ids": np.zeros((0, 2, 2), dtype=np.uint16)}, "no tokens"),
        ({"request": np.array([7], dtype=np.int32)}, "request has shape"),
        ({"request": np.array([7, 7], dtype=np.int64)}, "request"),
        ({"request": np.array([-2, -2], dtype=np.int32)}, "request -2 is negative"),
        ({"position": np.array([6, 6], dtype=np.int32)}, "do not rise"),
        ({"position": np.array([-1, 6], dtype=np.int32)}, "negative"),
        ({"phase": np.array([0, 2], dtype=np.uint8)}, "phase is 2"),
        ({"domain": np.array([0, 0], dtype=np.int16)}, "domain"),
        ({"topk_weights": np.full((2, 2, 2), np.nan, dtype=np.float16)}, "not finite"),
    ],
)
def test_an_unsound_token_trace_is_refused(changed: dict[str, object], says: str, tmp_path: Path) -> None:
    save_file({**ARRAYS, **changed}, tmp_path / "t", metadata=METADATA)
    with pytest.raises(BadInputError, match=says):
        read_trace(tmp_path / "t")


def test_tokens_of_a_request_must_lie_together(tmp_path: Path) -> None:
    trace = token_trace([[[0]], [[1]], [[0]]], experts=2, request=[0, 1, 0])
    with pytest.raises(BadInputError, match="request 0 are not contiguous"):
        write_trace(trace, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_request_has_one_domain(tmp_path: Path) -> None:
    trace = token_trace([[[0]], [[1]]], experts=2, domain=[0, 1], domains=("a", "b"))
    with pytest.raises(BadInputError, match="changes its domain"):
        write_trace(trace, tmp_path / "t")


@pytest.mark.parametrize("missing", sorted(ARRAYS))
def test_every_array_of_the_contract_is_needed(missing: str, tmp_path: Path) -> None:
    save_file(
        {name: array for name, array in ARRAYS.items() if name != missing}, tmp_path / "t", metadata=METADATA
    )
    with pytest.raises(BadInputError, match=missing):
        read_trace(tmp_path / "t")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"schema": "placer.trace/2"}, "placer.trace/2"),
        ({"schema": "another/1"}, "not a trace file"),
        ({"layers": "[4, 3]"}, "rising"),
        ({"layers": "[3]"}, "shape"),
        ({"layers": "[3, -4]"}, "layers"),
        ({"layers": "three"}, "layers"),
        ({"layers": "[" * 100_000}, "layers"),
        ({"experts": "many"}, "experts"),
        ({"experts": "99999999999999999999"}, "experts"),
        ({"experts": "3"}, "expert 3 of 3"),
        ({"top_k": "5"}, "top_k"),
        ({"domains": "{}"}, "domains"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    changed: dict[str, str], says: str, tmp_path: Path
) -> None:
    save_file(ARRAYS, tmp_path / "t", metadata={**METADATA, **changed})
    with pytest.raises(BadInputError, match=says):
        read_trace(tmp_path / "t")


@pytest.mark.parametrize(
    ("counts", "tokens", "says"),
    [
        ([[[2, -1, 1]]], [1], "negative"),
        ([[[3, 0, 1]]], [2], "selections of one expert"),
        ([[[2, 2, 2]]], [2], "6 selections"),
        ([[[2, 2, 0]]], [-2], "tokens"),
        ([[[2, 2, 0]]], [2**62], "tokens"),
        ([[[0, 0, 0]]], [2], "no token is routed"),
        ([[[2, 2, 0]]], [2, 2], "tokens has shape"),
    ],
)
def test_an_unsound_count_trace_is_refused(
    counts: list[object], tokens: list[int], says: str, tmp_path: Path
) -> None:
    trace = count_trace(counts, top_k=2, tokens=tokens)
    save_file(
        {"counts": trace.counts, "tokens": trace.window_tokens},
        tmp_path / "t",
        metadata={**METADATA, "layers": "[0]", "experts": "3"},
    )
    with pytest.raises(BadInputError, match=says):
        read_trace(tmp_path / "t")


def _truncated(whole: bytes) -> bytes:
    return whole[: len(whole) - 5]


def _huge_header(whole: bytes) -> bytes:
    return (2**62).to_bytes(8, "little") + whole[8:]


def _huge_shape(_whole: bytes) -> bytes:
    header = json.dumps(
        {
            "__metadata__": METADATA,
            "topk_ids": {"dtype": "U16", "shape": [2**40, 2, 2], "data_offsets": [0, 2**43]},
        }
    ).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize("damage", [_truncated, _huge_header, _huge_shape])
def test_a_damaged_file_is_refused_in_words(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "t"
    save_file(ARRAYS, path, metadata=METADATA)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadInputError, match="not a readable trace file"):
        read_trace(path)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=64), at=st.integers(0, 400), seed=st.integers(0, 9))
def test_no_bytes_bring_a_traceback(
    data: bytes, at: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "t"
    if seed:
        save_file(ARRAYS, path, metadata=METADATA)
        whole = path.read_bytes()
        data = whole[:at] + data + whole[at + len(data) :]
    path.write_bytes(data)
    # Any other exception would fail the test.
    with contextlib.suppress(BadInputError):
        assert isinstance(read_trace(path), TokenTrace | CountTrace)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file") as caught:
        read_trace(tmp_path / "none")
    assert "placer trace import" in caught.value.hint
