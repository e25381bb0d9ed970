"""Plain npz files of expert ids or counts become traces."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_pickle import MakesFolder
from shared_data import SHARED_DATA, needs_shared_data

from placer.api.routing import routing
from placer.errors import BadInputError
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.importing import check_trace_matches, import_trace
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.npz import import_npz
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace

# Three tokens of two requests, two layers, top-2 of 5 experts.
TOPK = np.array([[[0, 1], [4, 2]], [[3, -1], [0, 1]], [[2, 4], [1, 3]]], dtype=np.int8)
OFFSETS = np.array([0, 2, 3])


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path.with_suffix(".npz")


def test_token_ids_become_decode_tokens_of_their_requests(tmp_path: Path) -> None:
    path = saved(tmp_path / "t", topk=TOPK, offsets=OFFSETS, domain=np.array(["law", "code"]))
    trace = import_trace(path)
    assert isinstance(trace, TokenTrace)
    assert trace.topk_ids.tolist() == [[[0, 1], [4, 2]], [[3, PADDING], [0, 1]], [[2, 4], [1, 3]]]
    assert trace.request.tolist() == [0, 0, 1]
    assert trace.position.tolist() == [0, 1, 0]
    assert trace.phase.tolist() == [Phase.DECODE] * 3
    assert trace.header.domains == ("code", "law")
    assert trace.domain is not None
    assert trace.domain.tolist() == [1, 1, 0]
    assert (trace.header.experts, trace.header.top_k, trace.header.layers) == (5, 2, (0, 1))
    assert any("phases" in note for note in trace.header.notes)
    assert any("highest id, 4" in note for note in trace.header.notes)


def test_ids_without_offsets_are_said_to_be_one_request(tmp_path: Path) -> None:
    ids = np.array([[[0, 1]], [[2, 3]]])
    trace = import_npz(saved(tmp_path / "t", topk=ids), KnownModel())
    assert any("one request" in note for note in trace.header.notes)
    trace = import_npz(saved(tmp_path / "t", topk=ids, offsets=[0, 1, 2]), KnownModel())
    assert not any("one request" in note for note in trace.header.notes)


def test_an_unknown_array_is_answered_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"neither 'topk' nor 'counts' \(found routes\)") as caught:
        import_npz(saved(tmp_path / "t", routes=np.zeros((2, 1, 2), dtype=int)), KnownModel())
    assert "offsets [requests + 1]" in caught.value.hint
    assert "tokens [windows]" in caught.value.hint


def test_the_model_fills_what_the_file_leaves_open(tmp_path: Path) -> None:
    path = saved(tmp_path / "t", topk=TOPK, offsets=OFFSETS)
    trace = import_trace(path, name="M", layers=(1, 2), experts=8, top_k=2)
    assert (trace.header.model, trace.header.layers, trace.header.experts) == ("M", (1, 2), 8)


def test_rows_of_dense_layers_are_dropped(tmp_path: Path) -> None:
    ids = np.full((2, 3, 1), -1)
    ids[:, 1:] = [[[0], [1]], [[1], [0]]]
    without_model = import_trace(saved(tmp_path / "t", topk=ids))
    assert without_model.header.layers == (1, 2)
    assert any("dense" in note for note in without_model.header.notes)
    assert import_trace(tmp_path / "t.npz", layers=[1, 2]).header.layers == (1, 2)
    with pytest.raises(BadInputError, match="layer 2, which has no experts"):
        import_trace(tmp_path / "t.npz", layers=[1])


def test_rows_of_zeros_are_dense_layers_too(tmp_path: Path) -> None:
    # What serving runtimes put in dense layers; no token chooses expert 0 twice.
    ids = np.zeros((2, 2, 2), dtype=int)
    ids[:, 1] = [[0, 1], [2, 0]]
    trace = import_trace(saved(tmp_path / "t", topk=ids))
    assert trace.header.layers == (1,)
    assert any("rows [0]" in note for note in trace.header.notes)
    assert any("one request" in note for note in trace.header.notes)
    np.save(tmp_path / "plain.npy", ids)
    plain = import_trace(tmp_path / "plain.npy")
    assert isinstance(plain, TokenTrace)
    assert plain.topk_ids.tolist() == [[[0, 1]], [[2, 0]]]


def test_counts_of_one_run_are_one_window(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", counts=np.array([[2, 2, 0], [2, 1, 1]]), tokens=2, layers=np.array([4, 6]))
    trace = import_trace(path)
    assert isinstance(trace, CountTrace)
    assert trace.counts.shape == (1, 2, 3)
    assert trace.window_tokens.tolist() == [2]
    assert trace.header.top_k == 2  # 4 selections of 2 tokens
    assert trace.header.layers == (4, 6)


def test_tokens_follow_from_counts_and_top_k(tmp_path: Path) -> None:
    trace = import_trace(saved(tmp_path / "c", counts=np.array([[[3, 1]], [[0, 2]]]), top_k=1))
    assert isinstance(trace, CountTrace)
    assert trace.window_tokens.tolist() == [4, 2]
    assert any("derived" in note for note in trace.header.notes)


def test_counts_alone_do_not_tell_top_k(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", counts=np.array([[3, 1]]))
    with pytest.raises(BadInputError, match="neither 'tokens' nor 'top_k'"):
        import_trace(path)
    assert import_trace(path, top_k=1).tokens == 4


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"other": TOPK}, "neither 'topk' nor 'counts'"),
        ({"topk": TOPK[0]}, "shape"),
        ({"topk": TOPK.astype(np.float32)}, "float32"),
        ({"topk": np.array([["x"]], dtype=object)}, "object"),
        ({"topk": np.full((1, 1, 1), -2)}, "expert -2"),
        ({"topk": np.full((1, 1, 1), 70000)}, "expert 70000"),
        ({"topk": np.full((1, 1, 2), 3)}, "chosen twice"),
        ({"topk": TOPK, "offsets": np.array([0, 2])}, "offsets"),
        ({"topk": TOPK, "offsets": np.array([0, 2, 2, 3])}, "offsets"),
        ({"topk": TOPK, "experts": 4}, "expert 4 of 4"),
        ({"topk": TOPK, "experts": 0}, "experts"),
        ({"topk": TOPK, "top_k": 3}, "top-k is 3"),
        ({"topk": TOPK, "offsets": OFFSETS, "domain": np.array(["a"])}, "domain"),
        ({"counts": np.array([[1, -1]]), "top_k": 1}, "negative"),
        ({"counts": np.array([[1.5, 1]]), "top_k": 1}, "float64"),
        ({"counts": np.array([[3, 1]]), "tokens": 3}, "no multiple"),
        ({"counts": np.array([[3, 1]]), "tokens": np.array([2, 2])}, "shape"),
        ({"counts": np.array([[2**63]], dtype=np.uint64), "top_k": 1}, "64 signed bits"),
        ({"counts": np.array([[1, 1], [1, 1]]), "top_k": 1, "layers": np.array([3, 2])}, "rising"),
    ],
)
def test_arrays_that_make_no_sense_are_refused(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        import_trace(saved(tmp_path / "t", **arrays))


def test_another_models_file_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", counts=np.array([[3, 1]]), top_k=1, layers=np.array([0]))
    for model in ({"top_k": 2}, {"experts": 4}, {"layers": (1,)}):
        with pytest.raises(BadInputError, match="the model"):
            import_trace(path, **model)  # type: ignore[arg-type]


def test_what_differs_between_trace_and_model_is_named(tmp_path: Path) -> None:
    trace = import_trace(saved(tmp_path / "c", counts=np.array([[3, 1]]), top_k=1))
    check_trace_matches(trace, layers=[0], experts=2, top_k=1, name="tiny")
    with pytest.raises(BadInputError, match=r"MoE layers 0-0 \(1\) against 0-1 \(2\); 2 experts against 8"):
        check_trace_matches(trace, layers=[0, 1], experts=8, top_k=1, name="other")
    with pytest.raises(BadInputError, match="top-1 against top-2"):
        check_trace_matches(trace, layers=[0], experts=2, top_k=2, name="other")


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = saved(tmp_path / "t", topk=np.array([MakesFolder(marker)], dtype=object))
    with pytest.raises(BadInputError, match="never loaded"):
        import_trace(path)
    assert not marker.exists()


def _member(shape: tuple[int, ...], payload: bytes) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_2_0(stream, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return stream.getvalue() + payload


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (_member((10**13,), b""), "claims"),
        (_member((2**62, 2**62), b""), "claims"),
        (_member((4,), bytes(31)), "not a readable npz"),
        (b"\x93NUMPY\x09\x09", "not a readable npz"),
        (b"", "not a readable npz"),
    ],
)
def test_an_array_is_never_allocated_by_its_claim(member: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("topk.npy", member)
    with pytest.raises(BadInputError, match=says):
        import_trace(path)


def test_a_small_file_does_not_inflate_to_a_large_array(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, topk=np.zeros((9 * 2**20, 1, 1), dtype=np.int64))
    assert path.stat().st_size < 2**17
    with pytest.raises(BadInputError, match="inflates"):
        import_trace(path)


@pytest.mark.parametrize("share", [0.01, 0.4, 0.99])
def test_a_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    path = saved(tmp_path / "t", topk=TOPK, offsets=OFFSETS)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(BadInputError, match=r"damaged zip archive|of no known format"):
        import_trace(path)
    with pytest.raises(BadInputError, match="not a readable npz"):
        import_trace(path, format="npz")


def test_unknown_formats_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file"):
        import_trace(tmp_path / "none.npz")
    with pytest.raises(BadInputError, match="format 'sheet'"):
        import_trace(saved(tmp_path / "t", topk=TOPK), format="sheet")


def test_many_domain_names_are_grouped_by_subject(tmp_path: Path) -> None:
    names = [f"odd_{number}/x" for number in range(31)]
    names += ["mmlu_test/college_mathematics", "mmlu_dev/high_school_mathematics", "gpqa_main/Optics"]
    path = saved(
        tmp_path / "t", topk=np.zeros((34, 1, 1), dtype=int), offsets=np.arange(35), domain=np.array(names)
    )
    grouped = import_npz(path, KnownModel(experts=2))
    assert len(grouped.header.domains) == 33
    assert {"mathematics", "science", "odd_0"} <= set(grouped.header.domains)
    assert import_npz(path, KnownModel(experts=2), group_domains=False).header.domains == tuple(sorted(names))


@needs_shared_data
def test_gpt_oss_tokens_are_read_whole() -> None:
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    assert isinstance(trace, TokenTrace)
    assert trace.topk_ids.shape == (127_201, 24, 4)
    assert int(trace.request[-1]) == 420
    assert trace.header.experts == 32
    assert {"mathematics", "law", "medicine", "science", "humanities"} <= set(trace.header.domains)


@needs_shared_data
def test_count_files_are_read_whole() -> None:
    qwen = import_trace(SHARED_DATA / "traces" / "qwen3_30b_a3b_counts.npz")
    assert isinstance(qwen, CountTrace)
    assert (qwen.counts.shape, qwen.tokens, qwen.header.top_k) == ((1, 48, 128), 75_773, 8)
    olmoe = import_trace(SHARED_DATA / "traces" / "olmoe_request_counts.npz")
    assert isinstance(olmoe, CountTrace)
    assert (olmoe.counts.shape, olmoe.tokens) == ((1024, 16, 64), 88_098)


def test_counts_that_miss_most_selections_are_noted(tmp_path: Path) -> None:
    """A thousand tokens of top 2 make 2,000 selections in a layer; 640 were counted."""
    path = saved(tmp_path / "c", counts=np.full((2, 64), 10), tokens=1000, top_k=2)
    trace = import_npz(path, KnownModel())
    assert any("640 of the 2,000 selections that 1,000 tokens make" in note for note in trace.header.notes)
    whole = import_npz(saved(tmp_path / "w", counts=np.full((2, 4), 5), tokens=10, top_k=2), KnownModel())
    assert not any("selections that" in note for note in whole.header.notes)


def test_commands_take_counts_that_miss_selections_with_the_warning_once(tmp_path: Path) -> None:
    """Whoever wrote the trace file."""
    trace = import_npz(saved(tmp_path / "c", counts=np.full((2, 4), 5), tokens=20, top_k=2), KnownModel())
    (warning,) = (note for note in trace.header.notes if note.startswith("warning: "))
    assert "20 of the 40 selections that 20 tokens make at top-2" in warning
    silent = replace(trace, header=replace(trace.header, notes=()))
    for number, one in enumerate((trace, silent)):
        write_trace(one, tmp_path / f"{number}.safetensors")
        assert routing(tmp_path / f"{number}.safetensors").header.notes.count(warning) == 1


def test_a_repeated_expert_is_a_fault_of_what_wrote_the_ids(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="expert 3 is chosen twice") as caught:
        check_trace(import_npz(saved(tmp_path / "t", topk=np.full((1, 1, 2), 3)), KnownModel()), "ids.npz")
    assert caught.value.hint.startswith("correct what wrote the ids, or record again")


@pytest.mark.parametrize("expert", [0, 3])
@pytest.mark.parametrize("layers", [None, (1, 2, 3, 4, 5)])
def test_one_expert_in_every_slot_is_a_repeated_expert_whichever_it_is(
    expert: int, layers: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """Ids [10, 5, 4] of one expert: no layer can be a dense one, so zeros are no filling either."""
    path = saved(tmp_path / "t", topk=np.full((10, 5, 4), expert))
    with pytest.raises(
        BadInputError, match=f"token 0, layer {layers[0] if layers else 0}: expert {expert} is"
    ):
        import_trace(path, layers=layers, experts=8)


def test_zeros_in_a_moe_layer_of_the_model_are_repeated_experts_and_in_a_dense_one_filling(
    tmp_path: Path,
) -> None:
    ids = np.zeros((2, 3, 2), dtype=int)
    ids[:, 1:] = [[[1, 2], [0, 1]], [[3, 0], [2, 3]]]
    path = saved(tmp_path / "t", topk=ids)
    assert import_trace(path, layers=(1, 2), experts=4).header.layers == (1, 2)
    with pytest.raises(BadInputError, match="token 0, layer 0: expert 0 is chosen twice"):
        import_trace(path, layers=(0, 1, 2), experts=4)


def test_counts_name_the_domains_that_they_do_not_keep_apart(tmp_path: Path) -> None:
    counts = np.full((2, 2, 4), 5)
    path = saved(tmp_path / "c", counts=counts, top_k=2, domain=np.array(["law", "code"]))
    header = import_npz(path, KnownModel()).header
    assert header.domains == ("code", "law")
    assert any("which domain a window is of" in note for note in header.notes)


def test_what_an_importer_read_is_not_called_a_dump(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", counts=np.array([[[9, 1]]]), tokens=5, top_k=2)
    with pytest.raises(BadInputError, match="window 0: 9 selections of one expert, 5 tokens") as caught:
        import_trace(path)
    assert caught.value.hint == "correct what wrote it, or record again"


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((2, 3, 2)), "the array holds values of type float64"),
        (np.zeros((2, 3), dtype=np.int64), r"the array has shape \(2, 3\)"),
    ],
)
def test_a_file_of_one_array_is_told_without_a_name(tmp_path: Path, array: Any, says: str) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(BadInputError, match=says) as caught:
        import_trace(tmp_path / "t.npy")
    assert "'" not in caught.value.what.replace(str(tmp_path), "")


def test_swapped_axes_are_told_the_order(tmp_path: Path) -> None:
    # Two layers of five tokens, saved as [layers, tokens, top-k]: the third of the five "layers" is not the model's.
    ids = np.tile([[0, 1]], (2, 5, 1)).reshape(2, 5, 2)
    with pytest.raises(BadInputError, match="layer 2, which has no experts in the model") as caught:
        import_trace(saved(tmp_path / "t", topk=ids), layers=[0, 1])
    assert "axes are [tokens, layers, top-k]" in caught.value.hint
