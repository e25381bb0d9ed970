# ruff: noqa: E402  (what is watched must be loaded first)
"""The process that reads a campaign's inputs where coverage says what to change next, by `atheris`.

Changes are those of the plain campaign; what reaches code that no input reached before is changed further.
"""

import os
import sys
import time
from pathlib import Path
from random import Random

import atheris

_WATCHED = (
    *(
        "placer.document",
        "placer.input",
        "placer.arrivals",
        "placer.runtime",
        "placer.model",
        "placer.contradiction",
    ),
    *(
        "placer.placement",
        "placer.exports.kt_server_log",
        "placer.exports.kt_applied",
        "placer.exports.vllm_log",
    ),
    *("placer.profiler.trace", "placer.profiler.benchmark_file", "placer.profiler.serving_benchmark"),
    *("placer.profiler.kt_timing_log", "placer.profiler.profile", "placer.profiler.timing.kept_event"),
    "placer.solvers.bench.instance_file",
)
"""Where readers are; to watch the whole package takes long to prepare."""

with atheris.instrument_imports(include=[*_WATCHED], enable_loader_override=False):
    from fuzzing.readers import READERS

from fuzzing.corpus import seeds
from fuzzing.failures import keep
from fuzzing.tally import Tally
from fuzzing.trial import trial
from fuzzing.worker import REPORT_EVERY, USED_EVERY, limit_memory, report

_LONGEST_BYTES = 1 << 16


def main(name: str, folder: Path, seed: int, start: int, stop: int) -> None:
    """As `fuzzing.worker`; the inputs depend on what was covered, so that ``start`` and ``stop`` only count them."""
    reader, files, corpus = READERS[name], folder / "files", folder / "corpus"
    for each in (files, corpus):
        each.mkdir(exist_ok=True)
    reader.prepare(files)
    beside = {path.name for path in files.iterdir()} | {reader.file}
    samples = seeds(reader)
    for number, sample in enumerate(samples):
        (corpus / f"seed-{number}").write_bytes(sample)
    limit_memory()
    path, tally, started = files / reader.file, Tally(), time.perf_counter()

    def read(data: bytes) -> None:
        if tally.add(trial(reader, path, data, use=tally.inputs % USED_EVERY == 0)):
            keep(name, data)
        ended = tally.inputs == stop - start
        if tally.inputs % REPORT_EVERY == 0 or ended:
            tally.seconds = time.perf_counter() - started
            tally.left_behind = sorted({path.name for path in files.iterdir()} - beside)
            report(folder / "tally.json", tally)
        if ended:
            # The fuzzer itself ends by killing the process, with a report of its own.
            os._exit(0)

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        return reader.mutated(data, samples, Random(number))[:longest]

    options = [
        f"-seed={seed + start + 1}",
        "-runs=-1",
        f"-max_len={_LONGEST_BYTES}",
        "-timeout=0",
        "-verbosity=0",
    ]
    atheris.Setup(["fuzzing", *options, str(corpus)], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
