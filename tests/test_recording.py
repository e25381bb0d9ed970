"""A recording keeps whole requests by prompt, saves them, and continues only what is its own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.recording import RecordedRequest, Recording, RecordingInterrupted, open_recording
from placer.profiler.trace.trace import TokenTrace, TraceHeader

HEADER = TraceHeader("tiny", (1, 3), experts=4, top_k=2, source="a test; 3 prompts sha256 abc")
PROMPTS = [Prompt("code", text="a"), Prompt("prose", text="b"), Prompt("code", text="c")]


def request(tokens: int, prompt_rows: int, first: int = 0) -> RecordedRequest:
    ids = np.tile(np.array([[0, 1], [2, 3]], dtype=np.uint16), (tokens, 1, 1))
    return RecordedRequest(ids, np.arange(first, first + tokens, dtype=np.int32), prompt_rows)


def test_requests_stand_in_the_order_of_their_prompts_whenever_they_came(tmp_path: Path) -> None:
    recording = Recording(HEADER, PROMPTS, tmp_path / "t.safetensors")
    recording.add(2, request(tokens=2, prompt_rows=2))
    recording.add(0, request(tokens=3, prompt_rows=1))
    trace = recording.trace()
    assert trace.request.tolist() == [0, 0, 0, 2, 2]
    assert trace.position.tolist() == [0, 1, 2, 0, 1]
    assert trace.phase.tolist() == [0, 1, 1, 0, 0]
    assert trace.header.domains == ("code", "prose")
    assert trace.domain is not None
    assert trace.domain.tolist() == [0] * 5
    assert recording.missing == [1]
    assert trace.header.notes == ("stopped early: 2 of 3 requests are recorded",)


def test_a_later_run_continues_and_the_whole_equals_one_run(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    first = open_recording(HEADER, PROMPTS, path, resume=True)
    first.add(1, request(tokens=4, prompt_rows=2))
    first.save()
    second = open_recording(HEADER, PROMPTS, path, resume=True)
    assert second.missing == [0, 2]
    for index in second.missing:
        second.add(index, request(tokens=3, prompt_rows=3, first=1))
    second.save()
    found = read_trace(path)
    assert isinstance(found, TokenTrace)
    assert found.request.tolist() == [0] * 3 + [1] * 4 + [2] * 3
    assert found.phase.tolist() == [0] * 3 + [0, 0, 1, 1] + [0] * 3
    assert found.header.notes == ("2 tokens before others of their request have no routing",)


@pytest.mark.parametrize(
    "change", [{"source": "a test; 3 prompts sha256 def"}, {"experts": 5}, {"layers": (1, 2)}, {"model": "x"}]
)
def test_another_recording_is_never_continued(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "t.safetensors"
    first = open_recording(HEADER, PROMPTS, path, resume=False)
    first.add(0, request(tokens=1, prompt_rows=1))
    first.save()
    before = path.read_bytes()
    with pytest.raises(BadInputError, match="is another recording"):
        open_recording(replace(HEADER, **change), PROMPTS, path, resume=True)  # type: ignore[arg-type]
    assert path.read_bytes() == before


def test_failures_are_counted_by_reason_and_tried_again_later(tmp_path: Path) -> None:
    recording = open_recording(HEADER, PROMPTS, tmp_path / "t.safetensors", resume=False)
    recording.add(0, request(tokens=1, prompt_rows=1))
    recording.fail("HTTP 400: too long")
    recording.fail("HTTP 400: too long")
    recording.save()
    assert recording.trace().header.notes == ("2 of 3 requests failed: 2 × HTTP 400: too long",)
    assert open_recording(HEADER, PROMPTS, recording.path, resume=True).missing == [1, 2]


def test_unsound_routing_is_refused_before_it_can_spoil_the_file(tmp_path: Path) -> None:
    recording = open_recording(HEADER, PROMPTS, tmp_path / "t.safetensors", resume=False)
    bad = request(tokens=1, prompt_rows=1)
    bad.ids[0, 1, 1] = 4
    with pytest.raises(BadInputError, match="the routing of request 2: token 0, layer 3: expert 4 of 4"):
        recording.add(2, bad)
    assert len(recording) == 0


def test_an_interruption_says_what_is_kept(tmp_path: Path) -> None:
    recording = Recording(HEADER, PROMPTS, tmp_path / "t.safetensors")
    assert str(RecordingInterrupted(recording)) == "no request was finished, so nothing is kept"
    recording.add(0, request(tokens=3, prompt_rows=1))
    assert "1 of 3 requests, 3 tokens; continue with --resume" in str(RecordingInterrupted(recording))
    recording.save()
    assert read_trace(recording.path).tokens == 3


def test_a_recording_is_not_replaced_in_passing(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    first = open_recording(HEADER, PROMPTS, path, resume=False)
    first.add(1, request(tokens=4, prompt_rows=2))
    first.save()
    with pytest.raises(BadInputError, match="is there already") as caught:
        open_recording(HEADER, PROMPTS, path, resume=False)
    assert "--resume" in caught.value.hint
    assert open_recording(HEADER, PROMPTS, path, resume=True).missing == [0, 2]
