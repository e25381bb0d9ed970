"""Trace files: safetensors with the header's facts as metadata (schema ``placer.trace/1``)."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, Json, ValidationError
from safetensors import safe_open

from placer.errors import BadInputError
from placer.file_kind import WRITTEN_BY
from placer.input import checked_input
from placer.output import write_whole
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.mapped import mapped_arrays
from placer.profiler.trace.safetensors_file import StreamedTensor, write_safetensors
from placer.profiler.trace.trace import CountTrace, TokenTrace, Trace, TraceHeader

SCHEMA = "placer.trace/1"

_TOKEN_TYPES = {
    "topk_ids": "U16",
    "request": "I32",
    "position": "I32",
    "phase": "U8",
    "domain": "I16",
    "topk_weights": "F16",
}
_READER_PREFIX = "Error while deserializing header: "
_OPTIONAL = {"domain", "topk_weights"}
_COUNT_TYPES = {"counts": "I64", "tokens": "I64"}


class _Metadata(BaseModel):
    """The safetensors metadata of a trace file; every value is a string, lists are JSON."""

    schema_name: Annotated[str, Field(alias="schema")]
    model: str
    layers: Json[list[Annotated[int, Field(ge=0, lt=2**31)]]]
    experts: int
    top_k: int
    source: str
    domains: Json[tuple[str, ...]] = ()
    notes: Json[tuple[str, ...]] = ()

    def header(self) -> TraceHeader:
        return TraceHeader(
            model=self.model,
            layers=tuple(self.layers),
            experts=self.experts,
            top_k=self.top_k,
            source=self.source,
            domains=tuple(self.domains),
            notes=tuple(self.notes),
        )


def trace_metadata(header: TraceHeader) -> dict[str, str]:
    """The safetensors metadata of a trace file with this header."""
    return {
        "schema": SCHEMA,
        "model": _storable(header.model),
        "layers": json.dumps(header.layers),
        "experts": str(header.experts),
        "top_k": str(header.top_k),
        "source": _storable(header.source),
        "domains": json.dumps([_storable(name) for name in header.domains]),
        "notes": json.dumps([_storable(note) for note in header.notes]),
    }


def _storable(text: str) -> str:
    """``text`` as UTF-8 can hold it: file names may carry bytes, and JSON escapes, that are no characters."""
    return text.encode("utf-8", "replace").decode()


def write_trace(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path``, whole or not at all.

    Raises
    ------
    BadInputError
        When the trace is unsound (see `check_trace`) or the path cannot be written.
    """
    check_trace(trace, "the trace to write")
    metadata = trace_metadata(trace.header)
    tensors = {
        name: StreamedTensor(array.dtype, array.shape, [np.ascontiguousarray(array).data])
        for name, array in _arrays(trace).items()
    }
    write_whole(Path(path), lambda temporary: write_safetensors(temporary, tensors, metadata))


def _arrays(trace: Trace) -> dict[str, NDArray[Any]]:
    if isinstance(trace, CountTrace):
        return {"counts": trace.counts, "tokens": trace.window_tokens}
    arrays = {name: getattr(trace, name) for name in _TOKEN_TYPES}
    return {name: array for name, array in arrays.items() if array is not None}


def read_trace(path: Path) -> Trace:
    """Read and check a trace file; its arrays are mapped, not copied.

    Raises
    ------
    BadInputError
        When the file is missing, is no safetensors file, has another schema, or its content is unsound (see
        `check_trace`).
    """
    path = checked_input(path, what="trace", cure=WRITTEN_BY["trace"])
    try:
        # The reader checks the header against the file's size and maps it: nothing is allocated by a claim.
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            header = _header(metadata, path)
            found = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            types = _COUNT_TYPES if "counts" in found else _TOKEN_TYPES
            _check_types(found, types, path)
        arrays = mapped_arrays(path, [name for name in types if name in found])
    except BadInputError:
        raise
    except Exception as error:  # the reader is foreign code and raises its own kinds
        raise BadInputError(
            f"{path}: not a readable trace file ({_one_line(error).removeprefix(_READER_PREFIX)})",
            f"copy it again where it was cut short, or {WRITTEN_BY['trace']}",
        ) from None
    trace: Trace
    if types is _COUNT_TYPES:
        trace = CountTrace(header, counts=arrays["counts"], window_tokens=arrays["tokens"])
    else:
        trace = TokenTrace(header, **arrays)
    check_trace(trace, str(path))
    return trace


def _header(metadata: dict[str, str], path: Path) -> TraceHeader:
    found = metadata.get("schema", "")
    name, _, version = found.partition("/")
    if name != "placer.trace":
        raise BadInputError(
            f"{path}: not a trace file (its metadata holds no schema {SCHEMA!r})",
            WRITTEN_BY["trace"],
        )
    if version.split(".")[0] != "1":
        raise BadInputError(f"{path}: schema {found!r:.80}, this version reads {SCHEMA!r}", "update placer")
    try:
        return _Metadata.model_validate(metadata).header()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInputError(
            f"{path}: metadata field {field!r}: {first['msg']}", "import it again from the dump it came from"
        ) from None


def _check_types(found: dict[str, str], types: dict[str, str], path: Path) -> None:
    for name, kind in types.items():
        if name not in found and name not in _OPTIONAL:
            raise BadInputError(
                f"{path}: tensor {name!r} is missing", "import it again from the dump it came from"
            )
        if found.get(name, kind) != kind:
            raise BadInputError(
                f"{path}: tensor {name!r} is {found[name]}, expected {kind}",
                "import it again from the dump it came from",
            )


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
