"""`placer.trace_synth`: a trace that no model made."""

from pathlib import Path

from placer.api.checked import checked
from placer.api.number import check_seed
from placer.api.opened import Source
from placer.api.routing import known_model
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.output import checked_output
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.synth import synthesise
from placer.profiler.trace.trace import TokenTrace
from placer.profiler.trace.zipf import zipf_trace


@checked
def trace_synth(
    preset: str | None = None,
    *,
    zipf: float | None = None,
    model: ModelSpec | Source | None = None,
    requests: int = 64,
    prompt_tokens: int = 128,
    output_tokens: int = 256,
    domains: int | None = None,
    seed: int = 0,
    output: Source | None = None,
) -> TokenTrace:
    """A trace with the measured statistics of a known model (``preset``), or by Zipf's law; its header says so.

    Raises
    ------
    BadInputError
        When not exactly one of ``preset`` and ``zipf`` is given, or a number makes no trace.
    """
    check_seed(seed)
    if output is not None:
        checked_output(Path(output))
    lengths = {"requests": requests, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
    if (preset is None) == (zipf is None):
        raise BadInputError(
            "a trace is made from a preset or by Zipf's law", "give --preset or --zipf, not both"
        )
    if preset is not None:
        if model is not None:
            raise BadInputError("a preset has its own shape", "leave --model out, or use --zipf")
        trace = synthesise(preset, domains=domains, seed=seed, **lengths)
    else:
        if model is None or domains is not None:
            raise BadInputError(
                "--zipf takes the shape of a model, and has no domains", "give --model DIR alone"
            )
        trace = zipf_trace(known_model(model), zipf or 0.0, seed=seed, **lengths)
    if output is not None:
        write_trace(trace, Path(output))
    return trace
