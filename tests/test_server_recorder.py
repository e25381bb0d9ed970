"""Recording from a server: what it is, what goes wrong with it, and that nothing recorded is lost."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from fake_server import FakeServer, routed, serving
from shared_data import SHARED_DATA, needs_shared_data
from tiny_model import tiny_model

from placer.errors import BadInputError
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.record import RecordRequest, record
from placer.profiler.trace.recording import RecordingInterrupted
from placer.profiler.trace.routing_server import find_server
from placer.profiler.trace.trace import Phase, TokenTrace

PROMPTS = [
    Prompt(name, token_ids=tuple(range(first, first + length)))
    for name, first, length in (("code", 10, 5), ("prose", 20, 3), ("code", 30, 4), ("prose", 40, 6))
]
SETTINGS = GenerationSettings(new_tokens=3, temperature=0.5, seed=7)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny_model(tmp_path / "model")
    return tmp_path / "model"


def request(model: Path, server: FakeServer, **changes: object) -> RecordRequest:
    return RecordRequest(model, server=server.url, settings=SETTINGS, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("runtime", ["SGLang", "vLLM"])
def test_every_request_is_recorded_with_its_phases_and_domain(
    runtime: str, model: Path, tmp_path: Path
) -> None:
    with serving(FakeServer(runtime)) as server:
        trace = record(request(model, server, concurrency=3), PROMPTS, tmp_path / "t.safetensors").trace()
    for index, prompt in enumerate(PROMPTS):
        rows = trace.request == index
        assert prompt.token_ids is not None
        last = prompt.token_ids[-1]
        # Of three new tokens the last is not fed back, so it has no routing.
        assert np.array_equal(trace.topk_ids[rows], routed([*prompt.token_ids, last + 1, last + 2]))
        assert trace.phase[rows].tolist() == [Phase.PREFILL] * len(prompt.token_ids) + [Phase.DECODE] * 2
        assert trace.domain is not None
        assert {trace.header.domains[at] for at in trace.domain[rows]} == {prompt.domain}
    assert trace.header.source.startswith(f"{runtime} ")
    assert trace.header.notes == ()


def test_temperature_seed_and_the_wish_for_experts_reach_the_server(model: Path, tmp_path: Path) -> None:
    with serving(FakeServer("SGLang")) as server:
        record(request(model, server, concurrency=1), PROMPTS[:2], tmp_path / "s.safetensors")
    _trial, first, second = server.bodies
    assert first["sampling_params"] == {"max_new_tokens": 3, "sampling_seed": 7, "temperature": 0.5}
    assert second["sampling_params"]["sampling_seed"] == 8
    assert first["return_routed_experts"] is True
    with serving(FakeServer("vLLM")) as server:
        record(request(model, server, concurrency=1), PROMPTS[:1], tmp_path / "v.safetensors")
    body = server.bodies[1]
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"]) == ("tiny", 3, 0.5, 7)
    assert body["return_token_ids"] is True


@pytest.mark.parametrize(
    ("runtime", "told"), [("SGLang", "runs without routed experts"), ("vLLM", "no routed_experts")]
)
def test_a_server_without_the_switch_is_told_before_any_prompt_is_sent(
    runtime: str, told: str, model: Path, tmp_path: Path
) -> None:
    with (
        serving(FakeServer(runtime, switched_on=False)) as server,
        pytest.raises(BadInputError, match=told) as caught,
    ):
        record(request(model, server), PROMPTS, tmp_path / "t.safetensors")
    assert "--enable-return-routed-experts" in caught.value.hint
    assert len(server.bodies) <= 1
    assert not (tmp_path / "t.safetensors").exists()


def test_requests_that_fail_are_counted_and_a_resumed_run_tries_them_again(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.safetensors"
    broken = {
        20: (400, b'{"error": {"message": "This model\'s maximum context length is 2 tokens"}}'),
        30: (500, b"<html>"),
        40: (200, b"not JSON"),
    }
    with serving(FakeServer("vLLM", broken=broken)) as server:
        recording = record(request(model, server), PROMPTS, path)
        assert recording.failures == {
            "HTTP 400: This model's maximum context length is 2 tokens": 1,
            "HTTP 500: Internal Server Error": 1,
            "the answer is not JSON": 1,
        }
        assert read_trace(path).header.notes[0].startswith("3 of 4 requests failed: 1 × HTTP 400")
        server.broken = {}
        whole = record(request(model, server, resume=True), PROMPTS, path).trace()
    assert np.unique(whole.request).tolist() == [0, 1, 2, 3]
    assert whole.header.notes == ()
    assert read_trace(path).header == whole.header


def test_when_every_request_fails_nothing_is_written(model: Path, tmp_path: Path) -> None:
    broken = {prompt.token_ids[0]: (503, b"{}") for prompt in PROMPTS if prompt.token_ids}
    with (
        serving(FakeServer("vLLM", broken=broken)) as server,
        pytest.raises(BadInputError, match="every request failed: HTTP 503: Service Unavailable"),
    ):
        record(request(model, server), PROMPTS, tmp_path / "t.safetensors")
    assert not (tmp_path / "t.safetensors").exists()


def test_a_server_that_goes_away_stops_the_recording_and_loses_nothing(model: Path, tmp_path: Path) -> None:
    many = [Prompt("code", token_ids=(at, at + 1)) for at in range(10, 40)]
    path = tmp_path / "t.safetensors"
    gone = dict.fromkeys(range(20, 40), (0, b""))
    with serving(FakeServer("vLLM", broken=gone)) as server:
        with pytest.raises(BadInputError, match="stopped reacting after 10 of 30 requests") as caught:
            record(request(model, server, concurrency=1), many, path)
        assert "--resume" in caught.value.hint
        assert read_trace(path).tokens == 10 * 4
        server.broken = {}
        assert record(request(model, server, resume=True), many, path).missing == []


def test_an_interruption_does_not_wait_for_answers_and_keeps_those_that_came(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.safetensors"
    blocked = threading.Event()
    answered = threading.Semaphore(3)  # the trial request and two prompts

    def before() -> None:
        if not answered.acquire(blocking=False):
            blocked.wait(30)

    def interrupt(text: str, _share: float) -> None:
        if "2 of 4" in text:
            raise KeyboardInterrupt

    with serving(FakeServer("vLLM", before=before)) as server:
        try:
            with pytest.raises(RecordingInterrupted, match="2 of 4 requests"):
                record(request(model, server, concurrency=2), PROMPTS, path, progress=interrupt)
            kept = read_trace(path)
            assert isinstance(kept, TokenTrace)
            assert np.unique(kept.request).size == 2
        finally:
            blocked.set()


def test_a_late_answer_counts_as_failed(model: Path, tmp_path: Path) -> None:
    blocked = threading.Event()
    trial = threading.Semaphore(1)

    def before() -> None:
        if not trial.acquire(blocking=False):
            blocked.wait(30)

    with serving(FakeServer("vLLM", before=before)) as server:
        try:
            with pytest.raises(BadInputError, match="every request failed: no answer within 1 s"):
                record(request(model, server, timeout_s=1.0), PROMPTS, tmp_path / "t.safetensors")
        finally:
            blocked.set()


def test_addresses_that_are_no_server_are_told_apart(tmp_path: Path) -> None:
    for url in ("ftp://host", "http://", "http://host:port", ""):
        with pytest.raises(BadInputError, match="is no address"):
            find_server(url, timeout_s=1)
    with pytest.raises(BadInputError, match="refused"):
        find_server("127.0.0.1:9", timeout_s=1)
    with (
        serving(FakeServer("something else")) as server,
        pytest.raises(BadInputError, match="neither SGLang nor vLLM"),
    ):
        find_server(server.url, timeout_s=1)


def test_a_key_is_sent_and_its_lack_is_told(model: Path, tmp_path: Path) -> None:
    with serving(FakeServer("vLLM", key="secret")) as server:
        assert find_server(f"{server.url}/v1/", timeout_s=1, api_key="secret").version == "0.33.0"
        with pytest.raises(BadInputError, match="HTTP 401: Unauthorized") as caught:
            find_server(server.url, timeout_s=1)
        assert "--api-key-env" in caught.value.hint
        assert "secret" not in repr(find_server(server.url, timeout_s=1, api_key="secret"))


def test_without_a_checkpoint_here_the_server_s_own_must_be_readable(tmp_path: Path) -> None:
    with serving(FakeServer("SGLang")) as server:
        bare = RecordRequest(None, server=server.url)
        with pytest.raises(BadInputError, match=r"/nowhere/tiny is not on this machine") as caught:
            record(bare, PROMPTS, tmp_path / "t.safetensors")
    assert "--model DIR" in caught.value.hint


def test_a_server_of_another_model_is_refused_before_any_prompt_is_sent(model: Path, tmp_path: Path) -> None:
    tiny_model(model, num_hidden_layers=3)
    with serving(FakeServer("vLLM")) as server, pytest.raises(BadInputError):
        record(request(model, server), PROMPTS, tmp_path / "t.safetensors")
    assert len(server.bodies) == 1


@needs_shared_data
@pytest.mark.parametrize(
    ("runtime", "file"),
    [
        ("SGLang", "sglang_meta_info_routed_experts.json"),
        ("vLLM", "vllm033_routed_experts_choice.json"),
    ],
)
def test_answers_of_the_real_servers_are_recorded(
    runtime: str, file: str, model: Path, tmp_path: Path
) -> None:
    """The runtimes' own encoders wrote these: 12 prompt and 9 new tokens, layer 0 of 6 dense, 16 experts, top-4."""
    fixture = json.loads((SHARED_DATA / "runtime_fixtures" / file).read_text())
    tiny_model(model, num_hidden_layers=6, mlp_only_layers=[0], num_experts=16, num_experts_per_tok=4)
    replay = FakeServer(runtime)
    replay.answer = lambda _body: fixture  # type: ignore[method-assign]
    with serving(replay) as server:
        trace = record(request(model, server), PROMPTS[:2], tmp_path / "t.safetensors").trace()
    assert trace.header.layers == (1, 2, 3, 4, 5)
    assert trace.topk_ids.shape == (2 * 20, 5, 4)
    assert trace.phase[:20].tolist() == [Phase.PREFILL] * 12 + [Phase.DECODE] * 8
    assert trace.topk_ids.max() < 16
