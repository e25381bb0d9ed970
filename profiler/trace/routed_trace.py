"""A token trace made of the routed experts that came back with a server's answers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.moe_layers import moe_layers
from placer.profiler.trace.routed_response import RoutedResponse
from placer.profiler.trace.trace import PADDING, Phase, TokenTrace, TraceHeader
from placer.units import counted


def routed_trace(
    responses: Sequence[RoutedResponse],
    model: KnownModel,
    *,
    source: str,
    where: str,
    domains: Sequence[str | None] | None = None,
    notes: Sequence[str] = (),
) -> TokenTrace:
    """The tokens of ``responses``, one request each, in their order.

    Prompt rows are prefill tokens, generated ones decode tokens. ``domains`` names one per response, None
    where it is not known. The runtimes' buffers start as zeros: rows of dense layers are dropped, and so are
    tokens that read zero in every layer, which the runtime did not capture; notes say how many.

    Raises
    ------
    BadInputError
        When there are no tokens, or responses differ in shape from each other or from the model.
    """
    shapes = {response.ids.shape[1:] for response in responses}
    if len(shapes) > 1:
        (L, K), (other_L, other_K) = sorted(shapes)[:2]
        raise BadInputError(
            f"{where}: answers of {L} layers, top-{K}, and of {other_L} layers, top-{other_K}",
            "import the answers of one model at a time",
        )
    if not shapes:
        raise BadInputError(f"{where}: no answer holds routed experts", "send requests to the server first")
    ids = np.concatenate([response.ids for response in responses])
    lengths = [len(response.ids) for response in responses]
    request = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    position = np.concatenate(
        [one.first_position + np.arange(len(one.ids), dtype=np.int32) for one in responses]
    ).astype(np.int32)
    phase = np.concatenate([_phases(one) for one in responses])
    domain, names = _domains(domains, request)
    K = ids.shape[2]
    chosen = np.asarray(ids.any(axis=(0, 2)))
    if K == 1 and model.layers is not None and len(chosen) > max(model.layers, default=-1):
        # With one expert per token, zeros may be expert 0.
        chosen[list(model.layers)] = True
    moe = moe_layers(chosen, model.layers, where)
    ids = ids[:, moe.rows]
    found: list[str] = []
    if K > 1:
        captured = np.asarray(ids.any(axis=(1, 2)))
        if not captured.any():
            raise BadInputError(f"{where}: no token was captured", "send requests to the server again")
        missed = int((~captured).sum())
        if missed:
            found.append(
                f"{missed} tokens that the runtime did not capture (zeros in every layer) were dropped"
            )
            ids, request, position, phase = (part[captured] for part in (ids, request, position, phase))
            domain = None if domain is None else domain[captured]
    experts = model.experts
    if experts is None:
        experts = int(ids[ids != PADDING].max(initial=0)) + 1
        found.append(f"the number of experts was taken from the highest id, {experts - 1}")
    behind = sum(one.first_position > 0 for one in responses)
    if behind:
        found.append(
            f"{counted(behind, 'request')} from after position 0 on: a prefix was left out of the answer"
        )
    return TokenTrace(
        header=TraceHeader(
            model=model.name or Path(where).stem,
            layers=moe.layers,
            experts=experts,
            top_k=K if model.top_k is None else model.top_k,
            source=source,
            domains=names,
            notes=(*notes, *found, *moe.notes),
        ),
        topk_ids=np.ascontiguousarray(ids),
        request=request,
        position=position,
        phase=phase,
        domain=domain,
    )


def _phases(response: RoutedResponse) -> NDArray[np.uint8]:
    phase = np.full(len(response.ids), Phase.DECODE, dtype=np.uint8)
    phase[: response.prompt_rows] = Phase.PREFILL
    return phase


def _domains(
    domains: Sequence[str | None] | None, request: NDArray[np.int32]
) -> tuple[NDArray[np.int16] | None, tuple[str, ...]]:
    """Domain int16 [T] and its names; None when no response has one."""
    names = tuple(sorted({name for name in domains or () if name is not None}))
    if not names:
        return None, ()
    if len(names) > np.iinfo(np.int16).max:
        raise BadInputError(f"{len(names)} domains", "group requests into fewer domains")
    index = {name: number for number, name in enumerate(names)}
    of_request = np.array([-1 if one is None else index[one] for one in domains or ()], dtype=np.int16)
    return of_request[request], names
