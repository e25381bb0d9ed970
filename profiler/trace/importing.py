"""Runtime dumps and plain arrays turned into traces, and the check that a trace belongs to a model."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.npz import import_npz
from placer.profiler.trace.sglang import import_sglang
from placer.profiler.trace.trace import Trace

IMPORTERS = {"npz": import_npz, "sglang": import_sglang}
"""Importers by the name that ``--format`` takes."""


def import_trace(
    path: Path,
    *,
    format: str = "auto",
    name: str | None = None,
    layers: Sequence[int] | None = None,
    experts: int | None = None,
    top_k: int | None = None,
) -> Trace:
    """Read ``path`` as a trace of a model with MoE ``layers`` (checkpoint indices), ``experts``, ``top_k``.

    What is None is taken from the file where it says so; the trace's notes tell what was assumed. ``format``
    is a key of `IMPORTERS`, or "auto" to tell by content.

    Raises
    ------
    BadInputError
        When the file is of no known format, is unsound (see `check_trace`), or belongs to another model.
    """
    path = Path(path)
    if format not in ("auto", *IMPORTERS):
        raise BadInputError(f"format {format!r} is not known", f"use one of: auto, {', '.join(IMPORTERS)}")
    checked_input(path, what="dump", cure="give a recorder dump (.pt) or an .npz file")
    found = _format(path) if format == "auto" else format
    trace = IMPORTERS[found](path, name=name, layers=layers, experts=experts, top_k=top_k)
    check_trace(trace, str(path))
    if layers is not None and experts is not None and top_k is not None:
        check_trace_matches(
            trace, layers=layers, experts=experts, top_k=top_k, name=name or "the model that was named"
        )
    return trace


def _format(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise BadInputError(
            f"{path}: neither a recorder dump nor an npz file ({error})",
            "import a dump of SGLang's expert-distribution recorder (.pt) or an .npz of ids or counts",
        ) from None
    if any(member.endswith(".npy") for member in members):
        return "npz"
    if any(member.endswith("data.pkl") for member in members):
        return "sglang"
    raise BadInputError(
        f"{path}: a zip archive without arrays or a dump",
        "import a dump of SGLang's expert-distribution recorder (.pt) or an .npz of ids or counts",
    )


def check_trace_matches(trace: Trace, *, layers: Sequence[int], experts: int, top_k: int, name: str) -> None:
    """Refuse a trace that another model made.

    Raises
    ------
    BadInputError
        Naming every difference between the trace's header and the model ``name``.
    """
    header = trace.header
    differences = []
    if header.layers != tuple(layers):
        differences.append(f"MoE layers {_span(header.layers)} against {_span(tuple(layers))}")
    if header.experts != experts:
        differences.append(f"{header.experts} experts against {experts}")
    if header.top_k != top_k:
        differences.append(f"top-{header.top_k} against top-{top_k}")
    if differences:
        raise BadInputError(
            f"the trace (of {header.model!r}) does not belong to {name}: {'; '.join(differences)}",
            "give a trace that was recorded from this model",
        )


def _span(layers: tuple[int, ...]) -> str:
    if not layers:
        return "none"
    contiguous = layers == tuple(range(layers[0], layers[-1] + 1))
    ends = f"{layers[0]}-{layers[-1]}" if contiguous else f"{layers[0]}…{layers[-1]}"
    return f"{ends} ({len(layers)})"
