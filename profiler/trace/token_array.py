"""Token traces from a plain array of expert ids per token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.moe_layers import moe_layers
from placer.profiler.trace.npy import array_name
from placer.profiler.trace.subjects import domain_names
from placer.profiler.trace.trace import PADDING, Phase, TokenTrace, TraceHeader

_AXES = "[tokens, layers, top-k]"


def token_array_trace(
    ids: NDArray[Any],
    model: KnownModel,
    *,
    offsets: NDArray[Any] | None = None,
    domain: NDArray[Any] | None = None,
    group_domains: bool = True,
    where: str,
    name: str,
) -> TokenTrace:
    """A trace of integer ``ids`` [T, L, K] (-1 for an unused slot), all taken for decode tokens.

    Request r is rows offsets[r]:offsets[r + 1] of ``offsets`` [R + 1]; without it all rows are one request.
    ``domain`` is text [R]. ``name`` is what the file calls the ids.

    Raises
    ------
    BadInputError
        When shapes or ids make no sense, or contradict the model.
    """
    if ids.ndim != 3 or 0 in ids.shape:
        raise BadInputError(f"{where}: {array_name(name)} has shape {ids.shape}", f"save it as {_AXES}")
    T, _, K = ids.shape
    if model.top_k is not None and model.top_k != K:
        raise BadInputError(
            f"{where}: {array_name(name)} holds {K} ids per token, the model's top-k is {model.top_k}",
            f"give the model that made this file; the array's axes are {_AXES}",
        )
    lowest, highest = int(ids.min()), int(ids.max())
    notes = ["the file does not say phases: all tokens were taken for decode tokens"]
    if ids.dtype == np.uint16 and highest == PADDING:
        highest = int(ids[ids != PADDING].max(initial=0))
    if lowest < -1 or highest >= PADDING:
        raise BadInputError(
            f"{where}: {array_name(name)} holds expert {lowest if lowest < -1 else highest}",
            "ids count from 0, with -1 for an unused slot",
        )
    if model.experts is None:
        notes.append(f"the number of experts was taken from the highest id, {highest}")
    # -1 becomes 65535, the padding id, by two's complement.
    topk_ids = ids.astype(np.uint16)
    moe = moe_layers(_routed_layers(topk_ids, model.layers), model.layers, where, axes=_AXES)
    if offsets is None:
        notes.append(
            "the file holds no 'offsets': all tokens were taken for one request, so nothing can be held out"
        )
    request, position = _requests(offsets, T, where)
    domains, names, domain_notes = _domains(domain, request, group_domains, where)
    return TokenTrace(
        header=TraceHeader(
            model=model.name or Path(where).stem,
            layers=moe.layers,
            experts=model.experts or highest + 1,
            top_k=K,
            source=f"{Path(where).name}: expert ids per token",
            domains=names,
            notes=(*notes, *moe.notes, *domain_notes),
        ),
        topk_ids=topk_ids if len(moe.rows) == ids.shape[1] else topk_ids[:, moe.rows],
        request=request,
        position=position,
        phase=np.full(T, Phase.DECODE, dtype=np.uint8),
        domain=domains,
    )


def _routed_layers(ids: NDArray[np.uint16], moe: Sequence[int] | None) -> NDArray[np.bool_]:
    """Layers where tokens are routed, bool [L]: runtimes fill dense layers with -1, or with zeros throughout.

    No token chooses expert 0 twice, so zeros throughout are a dense layer, where there can be one: not where all
    layers hold them or the model says that it is a MoE layer (``moe``). There they are repeated choices, an error.
    """
    _, L, K = ids.shape
    filled = np.array([bool(np.any(ids[:, at] != PADDING)) for at in range(L)])
    routed = filled & np.array([K == 1 or bool(np.any(ids[:, at])) for at in range(L)])
    if moe is None:
        return routed if routed.any() else filled
    if len(moe) == L:
        return filled
    return np.where(np.isin(np.arange(L), moe), filled, routed)


def _requests(
    offsets: NDArray[Any] | None, T: int, where: str
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    if offsets is None:
        offsets = np.array([0, T])
    rises = offsets.ndim == 1 and offsets.size > 1 and bool(np.all(offsets[1:] > offsets[:-1]))
    if not rises or offsets[0] != 0 or offsets[-1] != T:
        raise BadInputError(
            f"{where}: 'offsets' must rise from 0 to the {T} tokens", "save R + 1 row offsets"
        )
    starts = offsets.astype(np.int64)
    lengths = np.diff(starts)
    request = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    position = (np.arange(T) - np.repeat(starts[:-1], lengths)).astype(np.int32)
    return request, position


def _domains(
    domain: NDArray[Any] | None, request: NDArray[np.int32], group: bool, where: str
) -> tuple[NDArray[np.int16] | None, tuple[str, ...], tuple[str, ...]]:
    if domain is None:
        return None, (), ()
    requests = int(request[-1]) + 1
    if domain.dtype.kind != "U" or domain.shape != (requests,):
        raise BadInputError(
            f"{where}: 'domain' has shape {domain.shape} ({domain.dtype}) for {requests} requests",
            "save one text per request",
        )
    grouped, notes = domain_names(domain.tolist()) if group else (domain.tolist(), ())
    names, index = np.unique(np.asarray(grouped), return_inverse=True)
    if names.size > np.iinfo(np.int16).max:
        raise BadInputError(f"{where}: {names.size} domains", "group requests into fewer domains")
    return index.astype(np.int16)[request], tuple(names.tolist()), notes
