"""How long import and replay of a trace take, and how much memory, at growing sizes."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
import psutil

from placer.errors import BadInputError
from placer.profiler.replay import replay_decode
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.synth import synthesise
from placer.solvers.fresh_process import EndedWithoutAnswerError, run_fresh
from placer.solvers.peak_memory import PeakMemory

CONCURRENCY = 64
STEPS = 2000
_PRESET = "gpt-oss-20b"
_REQUESTS, _REQUEST_TOKENS = 64, 256
_LEAST_IDS, _MOST_IDS = 100_000, 10_000_000_000

P = ParamSpec("P")
R = TypeVar("R")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class TraceBenchRow:
    """One size: ``ids`` routed expert ids of ``tokens`` tokens, the seconds of each stage, and peak memory.

    Attributes
    ----------
    import_s, write_s, read_s, replay_s
        Dump to trace, trace to file, file to checked trace, and trace to 2,000 decode steps of 64 requests.
    ids_per_s
        Ids over the seconds of all stages.
    peak_bytes
        Highest resident memory of the process, interpreter and mapped files included (sampled).
    """

    ids: int
    tokens: int
    import_s: float
    write_s: float
    read_s: float
    replay_s: float
    ids_per_s: float
    peak_bytes: int


def bench_sizes(most_ids: int) -> tuple[int, ...]:
    """Sizes to run, in rising order: ``most_ids`` and its thirds and tenths down to a million.

    Raises
    ------
    BadInputError
        When ``most_ids`` is below 100,000 or above ten billion.
    """
    if not _LEAST_IDS <= most_ids <= _MOST_IDS:
        raise BadInputError(f"--ids is {most_ids}", f"give {_LEAST_IDS} to {_MOST_IDS}")
    sizes = [most_ids]
    while (smaller := most_ids // 10 ** (len(sizes) // 2) // (3 if len(sizes) % 2 else 1)) >= 1_000_000:
        sizes.append(smaller)
    return tuple(sorted(sizes))


def bench_trace(
    sizes: tuple[int, ...], progress: Progress = lambda _text, _share: None
) -> Iterator[TraceBenchRow]:
    """Generate, import, write, read and replay a trace of each size, each in a process of its own.

    The ids are synthetic (preset gpt-oss-20b), repeated to the size.
    """
    with tempfile.TemporaryDirectory(prefix="placer-trace-bench-") as folder:
        for number, ids in enumerate(sizes):
            progress(f"{ids:,} ids", number / len(sizes))
            path = Path(folder) / f"{ids}.npz"
            _fresh(_generate, ids, path)
            yield _fresh(_measure, path, Path(folder), KnownModel())
            path.unlink()


def bench_file(source: Path, model: KnownModel) -> TraceBenchRow:
    """Import ``source`` (see `import_trace`) of ``model``, write, read and replay it, in a process of its own.

    Raises
    ------
    BadInputError
        When the file cannot be imported, or holds no decode tokens.
    """
    with tempfile.TemporaryDirectory(prefix="placer-trace-bench-") as folder:
        return _fresh(_measure, source, Path(folder), model)


def _fresh(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What ``function`` returns in a process that has held no trace yet."""
    try:
        return run_fresh(function, *args, **kwargs)
    except EndedWithoutAnswerError as ended:
        raise BadInputError(
            f"the process that measures {ended}", "it was killed or crashed: check the free memory"
        ) from None


def _generate(ids: int, path: Path) -> None:
    """Write an npz of about ``ids`` ids to ``path``."""
    base = synthesise(_PRESET, requests=_REQUESTS, prompt_tokens=0, output_tokens=_REQUEST_TOKENS)
    _, L, K = base.topk_ids.shape
    T = max(1, ids // (L * K))
    topk = np.resize(base.topk_ids.astype(np.uint8), (T, L, K))
    np.savez(path, topk=topk, offsets=np.append(np.arange(0, T, _REQUEST_TOKENS), T))


def _measure(path: Path, folder: Path, model: KnownModel) -> TraceBenchRow:
    """Import, write (to ``folder``), read and replay the file at ``path``."""
    before = psutil.Process().memory_info().rss
    marks = [time.perf_counter()]
    with PeakMemory() as memory:
        trace = import_trace(path, **asdict(model))
        marks.append(time.perf_counter())
        file = folder / "trace.safetensors"
        write_trace(trace, file)
        marks.append(time.perf_counter())
        # The imported trace is let go before the file is mapped, as in a run of its own.
        del trace
        trace = read_trace(file)
        marks.append(time.perf_counter())
        replay_decode(trace, CONCURRENCY, STEPS, seed=0)
        marks.append(time.perf_counter())
    ids = trace.tokens * len(trace.header.layers) * trace.header.top_k
    file.unlink()
    seconds = np.diff(marks)
    return TraceBenchRow(
        ids=ids,
        tokens=trace.tokens,
        import_s=float(seconds[0]),
        write_s=float(seconds[1]),
        read_s=float(seconds[2]),
        replay_s=float(seconds[3]),
        ids_per_s=ids / float(seconds.sum()),
        peak_bytes=before + memory.peak_bytes,
    )
