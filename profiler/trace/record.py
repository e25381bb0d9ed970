"""`placer trace record`: prompts run through a checkpoint here or a server elsewhere, their routing in a trace."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from placer.errors import BadInputError
from placer.known_name import unknown_value
from placer.model.spec import read_model
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.recording import Recording
from placer.profiler.trace.routing_server import find_server
from placer.profiler.trace.server_recorder import record_from_server

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class RecordRequest:
    """What to record from.

    Attributes
    ----------
    model
        Checkpoint directory; with a server, config.json is enough, and None takes the server's own where it
        can be read from here.
    server
        URL of a running server; None runs the checkpoint here.
    settings
        How answers are generated.
    resume
        Whether to continue what an earlier run left.
    concurrency, timeout_s, api_key
        Requests sent to the server at a time, longest wait for one, and its key.
    device, dtype, trust_remote_code
        Where and in which precision the checkpoint runs here, and whether its own Python code may.
    """

    model: Path | None
    server: str | None = None
    settings: GenerationSettings = field(default_factory=GenerationSettings)
    resume: bool = False
    concurrency: int = 8
    timeout_s: float = 600.0
    api_key: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    trust_remote_code: bool = False


def record(
    request: RecordRequest,
    prompts: Sequence[Prompt],
    path: Path,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Recording:
    """Record the routing of ``prompts`` into ``path``.

    Raises
    ------
    BadInputError
        As `record_with_transformers` and `record_from_server`.
    MissingComponentError
        When the checkpoint is to run here and transformers is not installed.
    RecordingInterrupted
        On Ctrl-C; finished requests are in ``path``.
    """
    if not (math.isfinite(request.timeout_s) and request.timeout_s > 0 and request.concurrency > 0):
        raise BadInputError(
            f"{request.concurrency} requests at a time with a wait of {request.timeout_s} s",
            "give --concurrency and --timeout above 0",
        )
    if request.server is not None:
        server = find_server(request.server, timeout_s=request.timeout_s, api_key=request.api_key)
        directory = request.model or Path(server.model_path)
        if request.model is None and not directory.is_dir():
            raise BadInputError(
                f"the server's checkpoint {server.model_path} is not on this machine",
                "add --model DIR: a directory with its config.json is enough",
            )
        return record_from_server(
            server,
            read_model(directory),
            prompts,
            path,
            request.settings,
            concurrency=request.concurrency,
            resume=request.resume,
            progress=progress,
        )
    if request.model is None:
        raise BadInputError("nothing to record from", "give --model DIR, --server URL, or both")
    for value, known, flag in ((request.device, DEVICES, "--device"), (request.dtype, DTYPES, "--dtype")):
        if value not in known:
            raise unknown_value(flag, value, known)
    # Importing torch takes seconds, which a recording from a server need not wait for.
    from placer.profiler.trace.transformers_recorder import record_with_transformers  # noqa: PLC0415

    return record_with_transformers(
        read_model(request.model),
        request.model,
        prompts,
        path,
        request.settings,
        device=request.device,
        dtype=request.dtype,
        resume=request.resume,
        trust_remote_code=request.trust_remote_code,
        progress=progress,
    )
