"""Traces from plain ``.npz`` files of expert ids per token, or of counts per layer and expert."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.domains import COUNTS_LOSE_DOMAINS
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.moe_layers import moe_layers
from placer.profiler.trace.npz_archive import array_names, read_arrays
from placer.profiler.trace.shortfall import noting_shortfall
from placer.profiler.trace.subjects import domain_names
from placer.profiler.trace.token_array import token_array_trace
from placer.profiler.trace.trace import PADDING, CountTrace, TokenTrace, TraceHeader

_IDS = ("topk", "topk_ids")
_COUNT_AXES = "[layers, experts] or [windows, layers, experts]"
KEYS = (
    "topk [tokens, layers, k] with offsets [requests + 1] and domain [requests], or counts [layers, experts] or "
    "[windows, layers, experts] with tokens [windows]; either with layers, experts, top_k"
)
"""The arrays that an .npz may hold, for help and errors."""
_INTEGERS = (*_IDS, "offsets", "counts", "tokens", "top_k", "layers", "experts")


def import_npz(path: Path, model: KnownModel, *, group_domains: bool = True) -> TokenTrace | CountTrace:
    """Read token ids or counts from ``path``.

    Token ids: ``topk`` integer [T, L, K] (-1 for an unused slot), ``offsets`` [R + 1] (request r is rows
    offsets[r]:offsets[r + 1]; without it all rows are one request), optional ``domain`` [R] text. All tokens
    are taken for decode tokens. Counts: ``counts`` integer [L, E] or [W, L, E] (W windows), optional
    ``tokens`` scalar or [W] (else derived from counts and top-k). Both: optional ``layers`` [L], ``top_k``,
    ``experts``; ``model`` fills what the file leaves open and must agree with what it says. Many different
    domain names are grouped (see `domain_names`) unless ``group_domains`` is False.

    Raises
    ------
    BadInputError
        When arrays are missing, of the wrong kind, or contradict each other or the model.
    """
    arrays = read_arrays(path, _INTEGERS, texts=("domain",))
    known = KnownModel(
        name=model.name or path.stem,
        layers=_agreed_layers(arrays.get("layers"), model.layers, path),
        experts=_agreed(_scalar(arrays, "experts", path), model.experts, "experts", path),
        top_k=_agreed(_scalar(arrays, "top_k", path), model.top_k, "top_k", path),
    )
    if "counts" in arrays:
        return _counts(arrays, known, path)
    for key in _IDS:
        if key in arrays:
            return token_array_trace(
                arrays[key],
                known,
                offsets=arrays.get("offsets"),
                domain=arrays.get("domain"),
                group_domains=group_domains,
                where=str(path),
                name=key,
            )
    raise BadInputError(
        f"{path}: holds neither 'topk' nor 'counts' (found {', '.join(array_names(path)) or 'nothing'})",
        f"save with numpy.savez: {KEYS}",
    )


def _counts(arrays: dict[str, NDArray[Any]], model: KnownModel, path: Path) -> CountTrace:
    counts = arrays["counts"]
    if counts.ndim not in (2, 3) or 0 in counts.shape:
        raise BadInputError(
            f"{path}: 'counts' has shape {counts.shape}",
            f"save it as {_COUNT_AXES}",
        )
    if counts.dtype.kind == "u" and counts.dtype.itemsize == 8 and counts.max() > np.iinfo(np.int64).max:
        raise BadInputError(f"{path}: 'counts' holds {counts.max()}", "counts must fit 64 signed bits")
    windows = counts.astype(np.int64).reshape(-1, *counts.shape[-2:])
    E = windows.shape[2]
    if model.experts is not None and model.experts != E:
        raise BadInputError(
            f"{path}: 'counts' holds {E} experts per layer, the model has {model.experts}",
            f"give the model that made this file; the array's axes are {_COUNT_AXES}",
        )
    moe = moe_layers(np.asarray(windows.any(axis=(0, 2))), model.layers, str(path), axes=_COUNT_AXES)
    windows = windows[:, moe.rows]
    selections = windows.sum(axis=2).max(axis=1)
    tokens = arrays.get("tokens")
    notes: tuple[str, ...] = ()
    if tokens is None:
        if model.top_k is None:
            raise BadInputError(
                f"{path}: neither 'tokens' nor 'top_k' is given",
                "save one of them, or give the model (--model)",
            )
        window_tokens = -(-selections // model.top_k)
        notes = ("tokens were derived from counts and top-k",)
    else:
        if tokens.size not in (1, len(windows)) or tokens.ndim > 1 or (tokens.size == 1 != len(windows)):
            raise BadInputError(
                f"{path}: 'tokens' has shape {tokens.shape} for {len(windows)} windows",
                "save one number per window",
            )
        window_tokens = tokens.astype(np.int64).reshape(-1)
    top_k = model.top_k or _top_k(selections, window_tokens, path)
    domains, domain_notes = _lost_domains(arrays.get("domain"))
    trace = CountTrace(
        header=TraceHeader(
            model=model.name or path.stem,
            layers=moe.layers,
            experts=E,
            top_k=top_k,
            source=f"{path.name}: counts per layer and expert",
            domains=domains,
            notes=(*notes, *moe.notes, *domain_notes),
        ),
        counts=windows,
        window_tokens=window_tokens,
    )
    return noting_shortfall(trace)


def _lost_domains(domain: NDArray[Any] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that a file of counts gives, and what to note of them: a count trace says of no window whose it is."""
    if domain is None:
        return (), ()
    grouped, notes = domain_names(np.unique(domain.astype(np.str_)).tolist())
    names = tuple(sorted(set(grouped)))
    return names, (*notes, COUNTS_LOSE_DOMAINS) if len(names) > 1 else ()


def _top_k(selections: NDArray[np.int64], window_tokens: NDArray[np.int64], path: Path) -> int:
    tokens, total = int(window_tokens.sum()), int(selections.sum())
    if tokens <= 0 or total <= 0 or total % tokens:
        raise BadInputError(
            f"{path}: {total} selections per layer are no multiple of {tokens} tokens, so top-k is not known",
            "save 'top_k', or give the model (--model)",
        )
    return total // tokens


def _agreed_layers(
    found: NDArray[Any] | None, given: Sequence[int] | None, path: Path
) -> Sequence[int] | None:
    if found is None:
        return given
    if found.ndim != 1 or found.dtype.kind not in "iu" or np.any(found[1:] <= found[:-1]):
        raise BadInputError(f"{path}: 'layers' must be rising layer indices", "save it as integers [layers]")
    layers = [int(layer) for layer in found]
    if given is not None and layers != [int(layer) for layer in given]:
        raise BadInputError(
            f"{path}: 'layers' differs from the model's MoE layers", "give the model that made this file"
        )
    return layers


def _agreed(found: int | None, given: int | None, what: str, path: Path) -> int | None:
    if found is not None and given is not None and found != given:
        raise BadInputError(
            f"{path}: {what!r} is {found}, the model has {given}", "give the model that made this file"
        )
    return given if found is None else found


def _scalar(arrays: dict[str, NDArray[Any]], key: str, path: Path) -> int | None:
    if key not in arrays:
        return None
    if arrays[key].size != 1:
        raise BadInputError(f"{path}: {key!r} has shape {arrays[key].shape}", "save one number")
    value = int(arrays[key].reshape(())[()])
    if not 1 <= value < PADDING:
        raise BadInputError(f"{path}: {key!r} is {value}", f"give a number from 1 to {PADDING - 1}")
    return value
