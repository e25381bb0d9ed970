"""`placer.trace_record`: which experts each token takes, recorded."""

from collections.abc import Sequence
from pathlib import Path

from placer.api.checked import checked
from placer.api.number import at_least, check_seed
from placer.api.opened import Source, path_or_none
from placer.api.progress import Progress, silent
from placer.output import checked_output
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import read_prompts
from placer.profiler.trace.record import RecordRequest, record
from placer.profiler.trace.recording import Recording


@checked
def trace_record(
    text: Sequence[str],
    *,
    output: Source,
    model: Source | None = None,
    server: str | None = None,
    output_tokens: int = 64,
    temperature: float | None = None,
    seed: int = 0,
    requests: int | None = None,
    cut: int = 4096,
    resume: bool = False,
    concurrency: int = 8,
    timeout: float = 600.0,
    api_key: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    progress: Progress = silent,
) -> Recording:
    """Record the routing of ``text`` (each FILE or DOMAIN=FILE): through transformers here, or from ``server``.

    Whole requests are saved to ``output`` as they come, which is why there is always one; ``resume`` continues it.

    Raises
    ------
    BadInputError
        When there is nothing to record, nothing to record from, or ``output`` holds another recording.
    MissingComponentError
        When the checkpoint is to run here and transformers is not installed.
    RecordingInterrupted
        On Ctrl-C; finished requests are in ``output``.
    """
    at_least(0, output_tokens=output_tokens, temperature=temperature)
    at_least(1, requests=requests, cut=cut, concurrency=concurrency, timeout=timeout)
    check_seed(seed)
    path = Path(output)
    checked_output(path)
    prompts = read_prompts(list(text), cut_characters=cut, most_per_domain=requests)
    request = RecordRequest(
        model=path_or_none(model),
        server=server,
        settings=GenerationSettings(output_tokens, temperature, seed),
        resume=resume,
        concurrency=concurrency,
        timeout_s=timeout,
        api_key=api_key,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    return record(request, prompts, path, progress=progress)
