"""Readers of traces: placer's own files, and every format that `placer trace import` takes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from placements import placement
from recordings import COUNTS, MODEL, SAMPLES, dump, per_token
from small_traces import token_trace

from fuzzing.archive_mutation import mutated_archive
from fuzzing.byte_mutation import Mutation, mutated_bytes
from fuzzing.header_mutation import mutated_npy, mutated_safetensors
from fuzzing.reader import Reader
from fuzzing.shown import show
from fuzzing.text_mutation import mutated_json_lines, mutated_text
from placer.answer.trace import trace_answer
from placer.exports.kt_applied import check_dump
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.info import trace_info
from placer.profiler.trace.trace import Trace

__all__ = ["TRACE_READERS"]


def _samples(*names: str) -> Callable[[Path], Sequence[bytes]]:
    return lambda folder: [SAMPLES[name](folder) for name in names]


def _imported(path: Path) -> Trace:
    """As `placer trace import` reads a file: told by content."""
    return import_trace(path, **MODEL)


def _only(format: str) -> Callable[[Path], Trace]:
    return lambda path: import_trace(path, format=format, **MODEL)


def _use_trace(trace: Trace) -> None:
    show(trace_answer(trace_info(trace)))


def _traces(folder: Path) -> Sequence[bytes]:
    ids = np.array([[[0, 1], [2, 3]], [[1, 2], [3, 0]], [[2, 0], [1, 3]], [[3, 1], [0, 2]]])
    rich = token_trace(
        ids,
        experts=4,
        request=[0, 0, 1, 1],
        phase=[0, 1, 0, 1],
        domain=[0, 0, 1, 1],
        domains=("code", "prose"),
    )
    write_trace(rich, folder / "rich")
    return [*_samples("trace tokens", "trace counts")(folder), (folder / "rich").read_bytes()]


def _dumps(_folder: Path) -> Sequence[bytes]:
    """The recorder's modes stat, stat_approx, per_pass and per_token."""
    counts = torch.from_numpy(COUNTS)
    identity = torch.arange(4).repeat(2, 1)
    per_pass = {
        "forward_pass_id": 0,
        "rank": 0,
        "gatherer_key": "primary",
        "global_physical_count": counts[0].int(),
    }
    return [
        dump({"logical_count": counts}),
        dump({"rank": 0, "logical_count": counts.int().repeat(3, 1, 1), "average_utilization_rate": None}),
        dump({"records": [per_pass, per_pass], "last_physical_to_logical_map": identity}),
        per_token(),
    ]


PLAN = placement({0: [1], 1: [0, 3]}, layers=[0, 1], experts=4)


def _masks(_folder: Path) -> Sequence[bytes]:
    mask = torch.from_numpy(PLAN.hot_mask())
    return [dump({"gpu_expert_masks": mask.expand(2, -1, -1).clone()})]


def _reader(name: str, seeds: Callable[[Path], Sequence[bytes]], mutate: Mutation, format: str) -> Reader:
    return Reader(name, seeds, mutate, _only(format), _use_trace)


TRACE_READERS = (
    Reader("trace", _traces, mutated_safetensors, read_trace, _use_trace),
    _reader("sglang", _dumps, mutated_archive, "sglang"),
    Reader("sglang-mask", _masks, mutated_archive, lambda path: check_dump(PLAN, path)),
    _reader("routed-experts", _samples("routed"), mutated_json_lines, "routed"),
    _reader("imatrix", _samples("imatrix"), mutated_bytes, "imatrix"),
    _reader("npz", _samples("npz ids", "npz counts"), mutated_archive, "npz"),
    _reader("npy", _samples("npy"), mutated_npy, "npy"),
    _reader("csv", _samples("csv"), mutated_text, "csv"),
    _reader("parquet", _samples("parquet"), mutated_bytes, "parquet"),
    Reader("any-recording", _samples(*SAMPLES), mutated_bytes, _imported, _use_trace),
)
