"""A benchmark file: the runs in what SGLang's or vLLM's benchmark client wrote."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from placer.document import read_documents
from placer.errors import BadInputError
from placer.input import checked_input
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.sglang_benchmark import SGLANG_MARKS, SglangResult, is_sglang_result
from placer.profiler.vllm_benchmark import VLLM_MARKS, VllmResult, is_vllm_result

_CURE = "give what 'sglang.bench_serving --output-file' or 'vllm bench serve --save-result' wrote"
_NOT_GENERATING = ("embed", "pooling", "rerank")
"""Parts of the names of backends whose answers are no text."""
_CHOSEN_METRICS = frozenset({"mean_ttft_ms", "mean_tpot_ms"})
"""What vLLM's client leaves out unless --percentile-metrics names it."""
_MEANINGS = {
    "mean_tpot_ms": " (TPOT, the time from a token to the next)",
    "mean_ttft_ms": " (TTFT, the time to the first token)",
    "median_itl_ms": " (the median time from a token to the next)",
}
_CURES = {
    # A client may time the end of an answer that comes in one piece before its first token.
    "mean_tpot_ms": "run the benchmark again with streamed answers (without --disable-stream); where they were "
    "streamed, the file was changed",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


@dataclass(frozen=True)
class BenchmarkFile:
    """The runs in one file, in its order, and the hash of all of its bytes."""

    path: Path
    sha256: str
    runs: tuple[ServingBenchmark, ...]


def read_benchmark_file(path: Path) -> BenchmarkFile:
    """The runs in the file at ``path``: one JSON object, or one on every line, as clients append them.

    Raises
    ------
    BadInputError
        When the file is no such result; a figure is missing, negative or no number; or when a run's requests were
        sent is not known.
    """
    checked_input(path, what="benchmark", cure=_CURE)
    documents = read_documents(path, what="benchmark", cure=_CURE, infinity=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    several = len(documents) > 1
    runs = tuple(
        _run(document, f"benchmark {path}" + (f", run {number}" if several else ""))
        for number, document in enumerate(documents, 1)
    )
    return BenchmarkFile(path, digest, runs)


def distinct_runs(files: Sequence[BenchmarkFile]) -> tuple[tuple[BenchmarkFile, ...], tuple[str, ...]]:
    """The files with each run once, and a sentence for every run that repeats one before it.

    Runs are the same when everything that was measured is: two real runs differ in their microseconds. A file
    without a run of its own is left out.
    """
    seen: list[tuple[ServingBenchmark, str]] = []
    kept, repeated = [], []
    for file in files:
        runs = []
        for number, run in enumerate(file.runs, 1):
            name = file.path.name + (f", run {number}" if len(file.runs) > 1 else "")
            first = next((earlier for known, earlier in seen if known == run), None)
            if first is None:
                seen.append((run, name))
                runs.append(run)
            else:
                repeated.append(f"{name} repeats a run that was given before ({first}) and is counted once")
        if runs:
            kept.append(replace(file, runs=tuple(runs)))
    return tuple(kept), tuple(repeated)


def _run(document: dict[str, Any], name: str) -> ServingBenchmark:
    backend = str(document.get("backend") or document.get("endpoint_type"))
    if any(kind in backend for kind in _NOT_GENERATING):
        raise BadInputError(
            f"{name} is of {backend}: no token was generated, so no decode step was measured",
            "give a benchmark of completions or chat",
        )
    try:
        if is_vllm_result(document):
            return VllmResult.model_validate(document).run(name)
        if is_sglang_result(document):
            return SglangResult.model_validate(document).run(name)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        missing = [str(fault["loc"][0]) for fault in faults if fault["type"] == "missing"]
        if missing:
            chosen = "run it again with --percentile-metrics ttft,tpot,itl"
            cure = chosen if _CHOSEN_METRICS.issuperset(missing) and is_vllm_result(document) else _CURE
            raise BadInputError(f"{name} lacks {', '.join(missing)}", cure) from None
        first = faults[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] in _BOUNDS:
            limit, words = _BOUNDS[first["type"]]
            bound = f"{words} {first['ctx'][limit]:,.10g}"
            raise _out_of_bounds(name, field, first["input"], bound) from None
        raise BadInputError(f"{name}: field {field}: {first['msg']}", _CURE) from None
    marks = " or ".join(", ".join(sorted(each)) for each in (SGLANG_MARKS, VLLM_MARKS))
    raise BadInputError(f"{name} was written by no client that is known here: it lacks {marks}", _CURE)


def _out_of_bounds(name: str, field: str, held: object, bound: str) -> BadInputError:
    """That ``field`` holds a number which is not ``bound``, as "at least 0"."""
    number = f"{held:,.10g}" if isinstance(held, int | float) else repr(held)
    what = f"{name}: field {field}{_MEANINGS.get(field, '')} is {number}, which is not {bound}"
    if bound.startswith(("below", "at most")):
        return BadInputError(
            what, "run a benchmark of fewer and shorter requests, or give the file as the client wrote it"
        )
    return BadInputError(what, _CURES.get(field, "run the benchmark again: the file was changed"))
