"""Traces from plain ``.npz`` files of expert ids per token, or of counts per layer and expert."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.moe_layers import moe_layers
from placer.profiler.trace.npz_archive import read_arrays
from placer.profiler.trace.subjects import domain_names
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace, TraceHeader

_IDS = ("topk", "topk_ids")
KEYS = (
    "topk [tokens, layers, k] with offsets [requests + 1] and domain [requests], or counts [layers, experts] or "
    "[windows, layers, experts] with tokens [windows]; either with layers, experts, top_k"
)
"""The arrays that an .npz may hold, for help and errors."""
_INTEGERS = (*_IDS, "offsets", "counts", "tokens", "top_k", "layers", "experts")


def import_npz(
    path: Path,
    *,
    name: str | None = None,
    layers: Sequence[int] | None = None,
    experts: int | None = None,
    top_k: int | None = None,
    group_domains: bool = True,
) -> TokenTrace | CountTrace:
    """Read token ids or counts from ``path``.

    Token ids: ``topk`` integer [T, L, K] (-1 for an unused slot), ``offsets`` [R + 1] (request r is rows
    offsets[r]:offsets[r + 1]; without it all rows are one request), optional ``domain`` [R] text. All tokens
    are taken for decode tokens. Counts: ``counts`` integer [L, E] or [W, L, E] (W windows), optional
    ``tokens`` scalar or [W] (else derived from counts and top-k). Both: optional ``layers`` [L], ``top_k``,
    ``experts``; arguments fill what the file leaves open and must agree with what it says. Many different
    domain names are grouped (see `domain_names`) unless ``group_domains`` is False.

    Raises
    ------
    BadInputError
        When arrays are missing, of the wrong kind, or contradict each other or the arguments.
    """
    arrays = read_arrays(path, _INTEGERS, texts=("domain",))
    found_layers = arrays.get("layers")
    given = _Given(
        name=name or path.stem,
        layers=_agreed_layers(found_layers, layers, path),
        experts=_agreed(_scalar(arrays, "experts", path), experts, "experts", path),
        top_k=_agreed(_scalar(arrays, "top_k", path), top_k, "top_k", path),
    )
    if "counts" in arrays:
        return _counts(arrays, given, path)
    for key in _IDS:
        if key in arrays:
            return _tokens(arrays, arrays[key], given, group_domains, path)
    raise BadInputError(
        f"{path}: holds neither 'topk' nor 'counts' (found {', '.join(sorted(arrays)) or 'nothing known'})",
        f"save with numpy.savez: {KEYS}",
    )


@dataclass(frozen=True)
class _Given:
    """What file and caller say together of the model."""

    name: str
    layers: Sequence[int] | None
    experts: int | None
    top_k: int | None


def _tokens(
    arrays: dict[str, NDArray[Any]], ids: NDArray[Any], given: _Given, group_domains: bool, path: Path
) -> TokenTrace:
    if ids.ndim != 3 or 0 in ids.shape:
        raise BadInputError(f"{path}: 'topk' has shape {ids.shape}", "save it as [tokens, layers, top-k]")
    T, _, K = ids.shape
    if given.top_k is not None and given.top_k != K:
        raise BadInputError(
            f"{path}: 'topk' holds {K} ids per token, the model's top-k is {given.top_k}",
            "give the model that made this file",
        )
    lowest, highest = int(ids.min()), int(ids.max())
    notes = ["the file does not say phases: all tokens were taken for decode tokens"]
    if ids.dtype == np.uint16 and highest == PADDING:
        highest = int(ids[ids != PADDING].max(initial=0))
    if lowest < -1 or highest >= PADDING:
        raise BadInputError(
            f"{path}: 'topk' holds expert {lowest if lowest < -1 else highest}",
            "ids count from 0, with -1 for an unused slot",
        )
    if given.experts is None:
        notes.append(f"the number of experts was taken from the highest id, {highest}")
    # -1 becomes 65535, the padding id, by two's complement.
    topk_ids = ids.astype(np.uint16)
    moe = moe_layers(np.asarray((topk_ids != PADDING).any(axis=(0, 2))), given.layers, str(path))
    if "offsets" not in arrays:
        notes.append(
            "the file holds no 'offsets': all tokens were taken for one request, so nothing can be held out"
        )
    request, position = _requests(arrays.get("offsets"), T, path)
    domain, names, domain_notes = _domains(arrays.get("domain"), request, group_domains, path)
    return TokenTrace(
        header=TraceHeader(
            model=given.name,
            layers=moe.layers,
            experts=given.experts or highest + 1,
            top_k=K,
            source=f"{path.name}: expert ids per token",
            domains=names,
            notes=(*notes, *moe.notes, *domain_notes),
        ),
        topk_ids=topk_ids if len(moe.rows) == ids.shape[1] else topk_ids[:, moe.rows],
        request=request,
        position=position,
        phase=np.full(T, Phase.DECODE, dtype=np.uint8),
        domain=domain,
    )


def _requests(
    offsets: NDArray[Any] | None, T: int, path: Path
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    if offsets is None:
        offsets = np.array([0, T])
    rises = offsets.ndim == 1 and offsets.size > 1 and bool(np.all(offsets[1:] > offsets[:-1]))
    if not rises or offsets[0] != 0 or offsets[-1] != T:
        raise BadInputError(f"{path}: 'offsets' must rise from 0 to the {T} tokens", "save R + 1 row offsets")
    starts = offsets.astype(np.int64)
    lengths = np.diff(starts)
    request = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    position = (np.arange(T) - np.repeat(starts[:-1], lengths)).astype(np.int32)
    return request, position


def _domains(
    domain: NDArray[Any] | None, request: NDArray[np.int32], group: bool, path: Path
) -> tuple[NDArray[np.int16] | None, tuple[str, ...], tuple[str, ...]]:
    if domain is None:
        return None, (), ()
    requests = int(request[-1]) + 1
    if domain.dtype.kind != "U" or domain.shape != (requests,):
        raise BadInputError(
            f"{path}: 'domain' has shape {domain.shape} ({domain.dtype}) for {requests} requests",
            "save one text per request",
        )
    grouped, notes = domain_names(domain.tolist()) if group else (domain.tolist(), ())
    names, index = np.unique(np.asarray(grouped), return_inverse=True)
    if names.size > np.iinfo(np.int16).max:
        raise BadInputError(f"{path}: {names.size} domains", "group requests into fewer domains")
    return index.astype(np.int16)[request], tuple(names.tolist()), notes


def _counts(arrays: dict[str, NDArray[Any]], given: _Given, path: Path) -> CountTrace:
    counts = arrays["counts"]
    if counts.ndim not in (2, 3) or 0 in counts.shape:
        raise BadInputError(
            f"{path}: 'counts' has shape {counts.shape}",
            "save it as [layers, experts] or [windows, layers, experts]",
        )
    if counts.dtype.kind == "u" and counts.dtype.itemsize == 8 and counts.max() > np.iinfo(np.int64).max:
        raise BadInputError(f"{path}: 'counts' holds {counts.max()}", "counts must fit 64 signed bits")
    windows = counts.astype(np.int64).reshape(-1, *counts.shape[-2:])
    E = windows.shape[2]
    if given.experts is not None and given.experts != E:
        raise BadInputError(
            f"{path}: 'counts' holds {E} experts per layer, the model has {given.experts}",
            "give the model that made this file",
        )
    moe = moe_layers(np.asarray(windows.any(axis=(0, 2))), given.layers, str(path))
    windows = windows[:, moe.rows]
    selections = windows.sum(axis=2).max(axis=1)
    tokens = arrays.get("tokens")
    notes: tuple[str, ...] = ()
    if tokens is None:
        if given.top_k is None:
            raise BadInputError(
                f"{path}: neither 'tokens' nor 'top_k' is given",
                "save one of them, or give the model (--model)",
            )
        window_tokens = -(-selections // given.top_k)
        notes = ("tokens were derived from counts and top-k",)
    else:
        if tokens.size not in (1, len(windows)) or tokens.ndim > 1 or (tokens.size == 1 != len(windows)):
            raise BadInputError(
                f"{path}: 'tokens' has shape {tokens.shape} for {len(windows)} windows",
                "save one number per window",
            )
        window_tokens = tokens.astype(np.int64).reshape(-1)
    return CountTrace(
        header=TraceHeader(
            model=given.name,
            layers=moe.layers,
            experts=E,
            top_k=given.top_k or _top_k(selections, window_tokens, path),
            source=f"{path.name}: counts per layer and expert",
            notes=(*notes, *moe.notes),
        ),
        counts=windows,
        window_tokens=window_tokens,
    )


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
