"""Records the routing of a running SGLang or vLLM server by sending it prompts."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.prompt import Prompt, prompts_digest
from placer.profiler.trace.recording import RecordedRequest, Recording, RecordingInterrupted, open_recording
from placer.profiler.trace.routed_response import parse_response
from placer.profiler.trace.routed_trace import routed_trace
from placer.profiler.trace.routing_server import RequestFailedError, RoutingServer
from placer.profiler.trace.trace import Phase, TraceHeader

_MOST_UNREACHABLE = 8
"""Requests in a row that the server does not react to before the recording stops."""
_WAIT_S = 0.5
"""How often the main thread looks up, so that an interrupt is honoured at once."""

_Answer = tuple[int, Mapping[str, Any] | RequestFailedError]


def record_from_server(
    server: RoutingServer,
    model: ModelSpec,
    prompts: Sequence[Prompt],
    path: Path,
    settings: GenerationSettings,
    *,
    concurrency: int = 8,
    resume: bool = False,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Recording:
    """Send every prompt to ``server``, ``concurrency`` at a time, and write the experts it ran to ``path``.

    A request that fails is counted and left out; ``resume`` tries it again. Whatever ends the run, the
    requests that were answered are in ``path``.

    Raises
    ------
    BadInputError
        When the server does not return routed experts or serves another model than ``model``, when it stops
        reacting, when every request fails, or when ``path`` cannot be used.
    """
    known = KnownModel(
        name=model.name,
        layers=model.moe_layers,
        hidden_layers=model.num_layers,
        experts=model.experts,
        top_k=model.top_k,
    )
    header = TraceHeader(
        model=model.name,
        layers=tuple(model.moe_layers),
        experts=model.experts,
        top_k=model.top_k,
        source=(
            f"{server.runtime} {server.version} routed experts; {settings}; {len(prompts)} prompts "
            f"sha256 {prompts_digest(prompts)[:12]}"
        ),
    )
    recording = open_recording(header, prompts, path, resume=resume)
    if recording.missing:
        _try(server, known)
    try:
        _collect(server, known, prompts, settings, recording, concurrency, progress)
    except KeyboardInterrupt:
        raise RecordingInterrupted(recording) from None
    finally:
        recording.save()
    if not len(recording):
        reason = max(recording.failures, key=recording.failures.__getitem__, default="no reason was given")
        raise BadInputError(f"{server.url}: every request failed: {reason}", "check the server and its model")
    return recording


def _try(server: RoutingServer, known: KnownModel) -> None:
    """One short request, so that a server that returns no experts, or of another model, is told at once."""
    try:
        answer = server.ask(Prompt("", token_ids=(1, 2, 3)), GenerationSettings(), 0)
    except RequestFailedError as error:
        raise BadInputError(
            f"{server.url}: {server.runtime} refuses a request of three tokens ({error.reason})",
            "check that the server is ready and answers completions",
        ) from None
    _recorded(answer, known, server.url)


def _collect(
    server: RoutingServer,
    known: KnownModel,
    prompts: Sequence[Prompt],
    settings: GenerationSettings,
    recording: Recording,
    concurrency: int,
    progress: Callable[[str, float], None],
) -> None:
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    missing = recording.missing
    for index in missing:
        todo.put(index)
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()

    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put((index, server.ask(prompts[index], settings, settings.seed + index)))
            except RequestFailedError as error:
                answers.put((index, error))

    # Daemons, so that an interrupt does not wait for answers: the server drops a request whose client is gone.
    for _ in range(min(concurrency, len(missing))):
        threading.Thread(target=work, daemon=True).start()
    try:
        _gather(server, known, answers, len(missing), recording, len(prompts), progress)
    finally:
        stopped.set()


def _gather(
    server: RoutingServer,
    known: KnownModel,
    answers: "queue.SimpleQueue[_Answer]",
    expected: int,
    recording: Recording,
    prompts: int,
    progress: Callable[[str, float], None],
) -> None:
    before = len(recording)
    unreachable = 0
    done = 0
    while done < expected:
        failed = sum(recording.failures.values())
        text = f"recording, {len(recording)} of {prompts} requests"
        progress(text + (f", {failed} failed" if failed else ""), (before + done) / prompts)
        try:
            index, answer = answers.get(timeout=_WAIT_S)
        except queue.Empty:
            continue
        done += 1
        if not isinstance(answer, RequestFailedError):
            unreachable = 0
            try:
                recording.add(index, _recorded(answer, known, server.url))
            except BadInputError as error:
                recording.fail(error.what)
            continue
        recording.fail(answer.reason)
        unreachable = unreachable + 1 if answer.unreachable else 0
        if unreachable >= _MOST_UNREACHABLE:
            raise BadInputError(
                f"{server.url} stopped reacting after {len(recording)} of {prompts} requests: {answer.reason}",
                "start the server again, then continue with --resume",
            )


def _recorded(answer: Mapping[str, Any], known: KnownModel, where: str) -> RecordedRequest:
    """Routing of the first choice of an answer, over the model's MoE layers."""
    response = parse_response(answer, known, where=where)[0]
    trace = routed_trace([response], known, source="", where=where)
    return RecordedRequest(
        ids=trace.topk_ids,
        position=trace.position,
        prompt_rows=int(np.count_nonzero(trace.phase == Phase.PREFILL)),
    )
