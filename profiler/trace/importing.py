"""One file of any known format turned into a trace, and the check that a trace belongs to a model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.known_name import unknown_value
from placer.model.spec import ModelSpec
from placer.profiler.trace.detection import detect_format
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.formats import FORMATS
from placer.profiler.trace.imatrix import import_imatrix
from placer.profiler.trace.integrity import AGAIN, check_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.npy_file import import_npy
from placer.profiler.trace.npz import import_npz
from placer.profiler.trace.routed_file import import_routed
from placer.profiler.trace.sglang import import_sglang
from placer.profiler.trace.split import tokens_where
from placer.profiler.trace.trace import CountTrace, Phase, Trace

_IMPORTERS: dict[str, Callable[[Path, KnownModel], Trace]] = {
    "sglang": import_sglang,
    "routed": import_routed,
    "imatrix": import_imatrix,
    "npz": import_npz,
    "npy": import_npy,
    "trace": lambda path, _model: read_trace(path),
}
_TABLES = ("csv", "parquet")
"""Formats that can tell phases apart although they hold counts."""


def import_trace(
    path: Path,
    *,
    format: str = "auto",
    name: str | None = None,
    layers: Sequence[int] | None = None,
    hidden_layers: int | None = None,
    experts: int | None = None,
    top_k: int | None = None,
    phase: Phase | None = None,
) -> Trace:
    """Read ``path`` as a trace of a model with MoE ``layers`` (checkpoint indices), ``experts``, ``top_k``.

    What is None is taken from the file where it says so; the trace's notes tell what was assumed. ``format``
    is a key of `FORMATS`, or "auto" to tell by content. ``phase`` keeps the tokens of one phase.

    Raises
    ------
    BadInputError
        When the file is of no known format, is unsound (see `check_trace`), or belongs to another model.
    MissingComponentError
        When the format needs a package that is not installed.
    """
    model = KnownModel(name, layers, hidden_layers, experts, top_k)
    return import_known(path, model, format=format, phase=phase)


def import_known(path: Path, model: KnownModel, *, format: str = "auto", phase: Phase | None = None) -> Trace:
    """`import_trace` of a `KnownModel`."""
    path = Path(path)
    if format not in ("auto", *FORMATS):
        raise unknown_value("format", format, ("auto", *FORMATS))
    checked_input(
        path, what="recording", cure="give a file of a format that placer trace import --help names"
    )
    found = detect_format(path) if format == "auto" else format
    try:
        if found in _TABLES:
            trace: Trace = _import_table(found, path, model, phase)
        else:
            trace = _one_phase(_IMPORTERS[found](path, model), phase, str(path))
        check_trace(trace, str(path))
    except BadInputError as error:
        if error.hint != AGAIN or found == "trace":
            raise
        raise BadInputError(error.what, "correct what wrote it, or record again") from None
    except MemoryError:
        raise BadInputError(
            f"{path}: it takes more memory than this machine has free", "split it, or use a larger machine"
        ) from None
    if model.layers is not None and model.experts is not None and model.top_k is not None:
        check_trace_matches(
            trace,
            layers=model.layers,
            experts=model.experts,
            top_k=model.top_k,
            name=model.name or "the model that was named",
        )
    return trace


def _import_table(format: str, path: Path, model: KnownModel, phase: Phase | None) -> CountTrace:
    # pandas takes half a second to import, and only tables need it.
    from placer.profiler.trace.csv_file import import_csv  # noqa: PLC0415
    from placer.profiler.trace.parquet_file import import_parquet  # noqa: PLC0415

    return (import_csv if format == "csv" else import_parquet)(path, model, phase)


def _one_phase(trace: Trace, phase: Phase | None, where: str) -> Trace:
    if phase is None:
        return trace
    if isinstance(trace, CountTrace):
        raise BadInputError(
            f"{where}: its counts do not tell phases apart, so --phase {phase.name.lower()} cannot be kept",
            "leave it out, or record tokens",
        )
    kept = trace.phase == phase
    if not kept.any():
        raise BadInputError(f"{where}: it holds no {phase.name.lower()} tokens", "leave --phase out")
    dropped = int((~kept).sum())
    notes = (
        *trace.header.notes,
        *([f"{dropped} tokens of the other phase were left out"] if dropped else []),
    )
    return tokens_where(replace(trace, header=replace(trace.header, notes=notes)), kept)


def check_trace_of(trace: Trace, model: ModelSpec) -> None:
    """`check_trace_matches` with the layers, experts, top-k and name of ``model``."""
    check_trace_matches(
        trace, layers=model.moe_layers, experts=model.experts, top_k=model.top_k, name=model.name
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
