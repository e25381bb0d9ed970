"""Dumps of SGLang's expert-distribution recorder become traces; nothing in them is run."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_pickle import MakesFolder
from shared_data import SHARED_DATA, needs_shared_data

from placer.errors import BadInputError
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.request_tracking import ForwardPass, RequestTracker
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace

FIXTURES = SHARED_DATA / "runtime_fixtures"
IDENTITY = torch.arange(4).repeat(2, 1)  # two hidden layers of four experts


def dumped(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def record(
    ids: list[list[int]], positions: list[int], mode: int, lengths: list[int] | None = None
) -> dict[str, Any]:
    """A per_token record; hidden layer 0 is dense, ``ids`` are those of layer 1, eight slots wide."""
    padded = [row + [-1] * (8 - len(row)) for row in ids]
    dense = [[-1] * 8 for _ in ids]
    return {
        "forward_pass_id": 0,
        "gatherer_key": "primary",
        "positions": positions,
        "extend_seq_lens": lengths,
        "forward_mode": mode,
        "topk_ids_of_layer": torch.tensor([dense, padded], dtype=torch.int32),
        "global_physical_count": torch.zeros((2, 4), dtype=torch.int32),
    }


def per_token(*records: dict[str, Any], logical: torch.Tensor = IDENTITY) -> dict[str, Any]:
    return {"records": list(records), "last_physical_to_logical_map": logical}


def test_prompts_and_outputs_become_requests(tmp_path: Path) -> None:
    dump = per_token(
        record([[0, 1], [1, 2], [3, 0]], [0, 1, 0], 1, [2, 1]),  # prompts of 2 and 1 tokens
        record([[2, 3], [1, 0]], [2, 1], 2),  # one output token each
        record([[0, 2]], [3], 2),  # the second request has finished
    )
    trace = import_trace(dumped(tmp_path / "d.pt", dump))
    assert isinstance(trace, TokenTrace)
    assert trace.header.layers == (1,)
    assert (trace.header.experts, trace.header.top_k) == (4, 2)
    assert trace.request.tolist() == [0, 0, 0, 0, 1, 1]
    assert trace.position.tolist() == [0, 1, 2, 3, 0, 1]
    assert trace.phase.tolist() == [0, 0, 1, 1, 0, 1]
    assert trace.topk_ids[:, 0].tolist() == [[0, 1], [1, 2], [2, 3], [0, 2], [3, 0], [1, 0]]
    assert any("best effort" in note for note in trace.header.notes)


def test_physical_ids_are_mapped_to_logical_ones(tmp_path: Path) -> None:
    # Layer 1 holds expert 0 twice (physical 0 and 3) and the others in reverse.
    logical = torch.tensor([[0, 1, 2, 3, 0], [0, 3, 2, 0, 1]])
    dump = per_token(record([[0, 1], [3, 4]], [0, 1], 1, [2]), logical=logical)
    trace = import_trace(dumped(tmp_path / "d.pt", dump))
    assert isinstance(trace, TokenTrace)
    assert trace.topk_ids[:, 0].tolist() == [[0, 3], [0, 1]]


def test_physical_counts_are_mapped_and_replicas_add_up(tmp_path: Path) -> None:
    logical = torch.tensor([[0, 1, 2, 3, 0], [0, 3, 2, 0, 1]])
    counted = {
        "gatherer_key": "primary",
        "global_physical_count": torch.tensor([[0, 0, 0, 0, 0], [1, 2, 0, 3, 4]], dtype=torch.int32),
    }
    dump = {"records": [counted], "last_physical_to_logical_map": logical}
    trace = import_trace(dumped(tmp_path / "d.pt", dump), top_k=2)
    assert isinstance(trace, CountTrace)
    assert trace.counts.tolist() == [[[4, 4, 0, 2]]]
    assert trace.window_tokens.tolist() == [5]


def test_padding_rows_of_a_graph_batch_are_not_tokens(tmp_path: Path) -> None:
    beyond = per_token(record([[0, 1], [2, 3], [], []], [0, 0], 1, [1, 1]))
    assert import_trace(dumped(tmp_path / "beyond.pt", beyond)).tokens == 2
    inside = per_token(record([[0, 1], []], [0, 1], 1, [2]))
    trace = import_trace(dumped(tmp_path / "inside.pt", inside))
    assert trace.tokens == 1
    assert any("1 padding tokens" in note for note in trace.header.notes)


def test_unused_slots_come_last(tmp_path: Path) -> None:
    dump = per_token(record([[-1, 2], [3, 1]], [0, 1], 1, [2]))
    trace = import_trace(dumped(tmp_path / "d.pt", dump))
    assert isinstance(trace, TokenTrace)
    assert trace.topk_ids[:, 0].tolist() == [[2, PADDING], [3, 1]]


def test_speculative_passes_are_left_out_and_said_so(tmp_path: Path) -> None:
    dump = per_token(record([[0, 1]], [0], 1, [1]), record([[2, 3]], [1], 5))
    trace = import_trace(dumped(tmp_path / "d.pt", dump))
    assert trace.tokens == 1
    assert any("1 passes of other modes" in note for note in trace.header.notes)


def test_counts_of_all_ranks_are_divided_by_their_number(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    counts = np.bincount(random.integers(0, 64, 1000), minlength=64).reshape(1, 1, 64)
    once = import_trace(dumped(tmp_path / "1.pt", {"logical_count": torch.tensor(counts)}), top_k=1)
    four = import_trace(dumped(tmp_path / "4.pt", {"logical_count": torch.tensor(4 * counts)}), top_k=1)
    assert once.tokens == four.tokens == 1000
    assert any("multiple of 4" in note for note in four.header.notes)


def test_unused_rows_of_the_buffer_are_no_windows(tmp_path: Path) -> None:
    counts = torch.zeros((16, 1, 4), dtype=torch.int32)
    counts[3, 0, :2] = 1
    trace = import_trace(dumped(tmp_path / "d.pt", {"logical_count": counts}), top_k=1)
    assert isinstance(trace, CountTrace)
    assert trace.counts.tolist() == [[[1, 1, 0, 0]]]
    assert any("not requests" in note for note in trace.header.notes)


def test_a_full_buffer_may_have_lost_passes(tmp_path: Path) -> None:
    counts = torch.ones((3, 1, 4), dtype=torch.int32)
    full = import_trace(dumped(tmp_path / "full.pt", {"logical_count": counts}), top_k=2)
    assert any("buffer is used" in note for note in full.header.notes)
    counts[2] = 0
    partly = import_trace(dumped(tmp_path / "partly.pt", {"logical_count": counts}), top_k=2)
    assert not any("buffer" in note for note in partly.header.notes)


def test_the_dump_of_mode_stat_approx_is_that_of_stat(tmp_path: Path) -> None:
    content = {
        "rank": 0,
        "logical_count": torch.ones((1, 1, 4), dtype=torch.int32),
        "average_utilization_rate_over_window": 0.5,
    }
    assert import_trace(dumped(tmp_path / "d.pt", content), top_k=2).tokens == 2


@pytest.mark.parametrize(
    "counts", [torch.arange(64).reshape(1, 2, 32) + 1, (torch.arange(64).reshape(1, 2, 32) % 3 > 0).int()]
)
def test_a_placement_is_no_recording(counts: torch.Tensor, tmp_path: Path) -> None:
    path = dumped(tmp_path / "init_expert_location.pt", {"logical_count": counts})
    with pytest.raises(BadInputError, match="an expert placement"):
        import_trace(path, top_k=4)


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("kt_placement_01_48x128_uneven.pt", {"top_k": 8}),
        ("kt_placement_rank_61x256_dense3.pt", {"top_k": 8}),
    ],
)
def test_real_placements_are_no_recordings(name: str, model: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=r"an expert placement|negative"):
        import_trace(FIXTURES / name, **model)


def test_counts_need_top_k(tmp_path: Path) -> None:
    dump = dumped(tmp_path / "d.pt", {"logical_count": torch.ones((1, 1, 4), dtype=torch.int32)})
    with pytest.raises(BadInputError, match="top-k is not known"):
        import_trace(dump)


def tracked(*passes: tuple[list[int], list[int] | None]) -> list[int]:
    """Requests of the tokens of passes (positions, prompt lengths or None)."""
    tracker = RequestTracker()
    for positions, lengths in passes:
        prompt = None if lengths is None else np.array(lengths)
        tracker.add(ForwardPass(np.array(positions), prompt), "pass")
    return tracker.requests().request.tolist()


def test_a_long_prompt_is_continued_chunk_by_chunk() -> None:
    assert tracked(([0, 1], [2]), ([2, 3], [2]), ([4], None)) == [0, 0, 0, 0, 0]


def test_a_prompt_behind_a_cached_prefix_is_a_request_of_its_own() -> None:
    assert tracked(([5, 6], [2]), ([7], None)) == [0, 0, 0]


def test_the_newest_request_takes_a_position_that_two_could_take() -> None:
    # Request 0 has finished at position 2 when request 1 arrives and decodes at the same position.
    assert tracked(([0, 1], [2]), ([0, 1], [2]), ([2], None)) == [0, 0, 1, 1, 1]


def test_running_requests_keep_their_order_in_the_batch() -> None:
    assert tracked(([0, 0], [1, 1]), ([1, 1], None), ([2, 2], None)) == [0, 1, 0, 1, 0, 1]


def test_a_recording_that_starts_midway_opens_requests() -> None:
    first, second = requests = tracked(([9, 4], None), ([10, 5], None), ([11, 6], None))[:2]
    assert first != second
    assert tracked(([9, 4], None), ([10, 5], None), ([11, 6], None)) == requests * 3


def test_a_mixed_pass_holds_prompts_and_output_tokens() -> None:
    tracker = RequestTracker()
    tracker.add(ForwardPass(np.array([0, 1]), np.array([2])), "prefill")
    tracker.add(ForwardPass(np.array([2]), None), "decode")
    tracker.add(ForwardPass(np.array([0, 1, 3]), np.array([2, 1]), mixed=True), "mixed")
    requests = tracker.requests()
    assert requests.request.tolist() == [0, 0, 0, 1, 1, 0]
    assert requests.phase.tolist() == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([1, 2], "list, not a dictionary"),
        ({"other": 1}, "neither"),
        ({"records": [], "last_physical_to_logical_map": IDENTITY}, "no forward pass"),
        ({"records": [{}], "last_physical_to_logical_map": IDENTITY}, "global_physical_count"),
        ({"records": [{}]}, "last_physical_to_logical_map"),
        ({"records": 3, "last_physical_to_logical_map": IDENTITY}, "records"),
        ({"logical_count": "many"}, "logical_count"),
        ({"logical_count": torch.ones((2, 2))}, "logical_count"),
        ({"logical_count": torch.full((1, 1, 4), 0.5)}, "logical_count"),
        ({"logical_count": torch.tensor([[[1, -1, 1, 1]]])}, "negative"),
        ({"logical_count": torch.zeros((1, 1, 4), dtype=torch.int32)}, "no layer holds a selection"),
        ({"logical_count": torch.ones(1, dtype=torch.int32).expand(10**6, 10**3, 10**3)}, "logical_count"),
        (per_token(record([[0, 9]], [0], 1, [1])), "outside 4 physical"),
        (per_token(record([[0, 1]], [0, 1], 1, [2])), "for 2 tokens"),
        (per_token(record([[0, 1], [1, 2]], [0, 1], 1, [1])), "extend_seq_lens sums to 1"),
        (per_token(record([[0, 1], [1, 2]], [0, 5], 1, [2])), "do not follow"),
        (per_token(record([[0, 1]], [-1], 2)), "negative"),
        (per_token({**record([[0, 1]], [0], 2), "positions": ["x"]}), "positions"),
        (per_token(record([[1, 1]], [0], 2)), "chosen twice"),
        (
            per_token(record([[0, 1]], [0], 2), logical=torch.tensor([[0, 1, 2, 3], [0, 1, 2, -3]])),
            "map names",
        ),
    ],
)
def test_what_is_not_a_sound_dump_is_refused(content: object, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        import_trace(dumped(tmp_path / "d.pt", content), top_k=2)


def test_a_dump_of_another_model_is_refused(tmp_path: Path) -> None:
    path = dumped(tmp_path / "d.pt", per_token(record([[0, 1]], [0], 2)))
    assert import_trace(path, layers=[1], experts=4, top_k=2).header.layers == (1,)
    for model in ({"top_k": 1}, {"experts": 3}, {"layers": [0]}, {"layers": [1, 2, 3]}):
        with pytest.raises(BadInputError, match="model"):
            import_trace(path, **model)  # type: ignore[arg-type]


def test_code_in_a_pickle_never_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = dumped(tmp_path / "d.pt", {"logical_count": MakesFolder(marker)})
    with pytest.raises(BadInputError, match="plain data"):
        import_trace(path, top_k=2)
    assert not marker.exists()


def test_a_packed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    whole = dumped(tmp_path / "d.pt", {"logical_count": torch.zeros((1, 1000, 1000), dtype=torch.int32)})
    packed = tmp_path / "packed.pt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(BadInputError, match="packed to less"):
        import_trace(packed, top_k=2)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_dump_is_refused(share: float, tmp_path: Path) -> None:
    path = dumped(tmp_path / "d.pt", {"logical_count": torch.ones((1, 1, 4), dtype=torch.int32)})
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    for form in ("auto", "sglang"):
        with pytest.raises(BadInputError):
            import_trace(path, format=form, top_k=2)


def fixture(mode: str, **model: Any) -> CountTrace | TokenTrace:
    return import_trace(FIXTURES / f"sglangkt072_{mode}__expert_distribution_recorder.pt", **model)


@needs_shared_data
def test_all_modes_of_the_real_recorder_agree() -> None:
    tokens = fixture("per_token")
    assert (tokens.header.layers, tokens.header.experts, tokens.header.top_k) == ((1, 2, 3, 4, 5), 16, 4)
    expected = selection_counts(tokens)
    assert expected.sum() == 5 * 4 * tokens.tokens == 620
    for mode in ("stat_inf", "stat_circ16", "stat_gpumask", "per_pass"):
        counted = fixture(mode, top_k=4)
        assert isinstance(counted, CountTrace)
        np.testing.assert_array_equal(selection_counts(counted), expected)
        assert counted.window_tokens.tolist() == [12, 2, 2, 2, 2, 9, 1, 1]
        assert counted.header.layers == (1, 2, 3, 4, 5)


@needs_shared_data
def test_the_real_recorders_requests_are_rebuilt() -> None:
    trace = fixture("per_token", layers=(1, 2, 3, 4, 5), experts=16, top_k=4)
    assert isinstance(trace, TokenTrace)
    prompts = [int(((trace.request == one) & (trace.phase == Phase.PREFILL)).sum()) for one in range(3)]
    outputs = [int(((trace.request == one) & (trace.phase == Phase.DECODE)).sum()) for one in range(3)]
    assert (prompts, outputs) == ([5, 7, 9], [4, 4, 2])


@needs_shared_data
def test_a_placement_mask_is_no_trace() -> None:
    with pytest.raises(BadInputError, match="neither 'logical_count' nor 'records'"):
        import_trace(FIXTURES / "sglangkt072_stat_gpumask__gpu_expert_distribution.pt", top_k=4)
