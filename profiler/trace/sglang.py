"""Traces from SGLang's expert-distribution recorder: its stat, per_pass and per_token dumps."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.moe_layers import moe_layers
from placer.profiler.trace.recorder_dump import integer_list, integers, load_dump
from placer.profiler.trace.request_tracking import ForwardPass, RequestTracker
from placer.profiler.trace.trace import PADDING, CountTrace, TokenTrace, TraceHeader

# sglang/srt/model_executor/forward_batch_info.py, ForwardMode
_EXTEND, _DECODE, _MIXED, _IDLE = 1, 2, 3, 4

_PASSES_NOTE = "windows are forward passes, not requests: a split by window is not a split by request"
_BUFFER_NOTE = (
    "every place of the recorder's buffer is used: a circular one keeps the latest passes, unordered"
)
_LEAST_FOR_RANKS = 64
"""Counts that must share a factor before it is taken for the number of ranks."""


def import_sglang(path: Path, model: KnownModel) -> TokenTrace | CountTrace:
    """Read a dump of ``/dump_expert_distribution_record`` (formats: sglang/srt/eplb/expert_distribution.py).

    Modes stat and stat_approx write the same file. Dumps hold a row per hidden layer; ``model`` says which
    are MoE layers, else those with selections are. Expert ids and counts of per_pass and per_token are
    physical and mapped to logical ones. A stat or per_pass dump has no tokens, so it needs the model's top-k.

    Raises
    ------
    BadInputError
        When the file is not a dump, is damaged, or does not fit the model.
    """
    where = str(path)
    dump = load_dump(path)
    known = replace(model, name=model.name or path.stem)
    if "logical_count" in dump:
        counts = integers(dump["logical_count"], "logical_count", 3, where)
        # A row stays empty until the buffer is full once; from then on the oldest pass is overwritten.
        wrapped = len(counts) > 1 and bool(counts.any(axis=(1, 2)).all())
        return _count_trace(
            counts,
            "stat or stat_approx",
            known,
            (_PASSES_NOTE, _BUFFER_NOTE) if wrapped else (_PASSES_NOTE,),
            where,
        )
    records = dump.get("records")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise BadInputError(
            f"{where}: holds neither 'logical_count' nor 'records'",
            "use a dump of recorder mode stat, stat_approx, per_pass or per_token",
        )
    logical = integers(dump.get("last_physical_to_logical_map"), "last_physical_to_logical_map", 2, where)
    own = [record for record in records if record.get("gatherer_key", "primary") == "primary"]
    if not own:
        raise BadInputError(
            f"{where}: no forward pass was recorded", "record while the server answers requests"
        )
    left_out = len(records) - len(own)
    notes = (f"{left_out} records of other gatherers were left out",) if left_out else ()
    E = model.experts if model.experts is not None else int(logical.max(initial=-1)) + 1
    known = replace(known, experts=E)
    if logical.min(initial=0) < 0 or logical.max(initial=-1) >= min(E, logical.shape[1]):
        raise BadInputError(
            f"{where}: last_physical_to_logical_map names expert {logical.max()}, but "
            f"{logical.shape[1]} places hold the {min(E, logical.shape[1])} experts of a layer",
            "give the model that made this dump",
        )
    if any("topk_ids_of_layer" in record for record in own):
        return _token_trace(own, logical, known, notes, where)
    physical = [
        integers(record.get("global_physical_count"), "global_physical_count", 2, where) for record in own
    ]
    counts = np.stack([_logical_counts(count, logical, E, where) for count in physical])
    return _count_trace(counts, "per_pass", known, (*notes, _PASSES_NOTE), where)


def _logical_counts(
    physical: NDArray[np.int64], logical: NDArray[np.int64], E: int, where: str
) -> NDArray[np.int64]:
    """Counts [L, E] by logical expert from counts [L, P] by physical one; replicas add up."""
    if physical.shape != logical.shape:
        raise BadInputError(
            f"{where}: counts are {physical.shape}, the physical map is {logical.shape}",
            "use the recorder's own file",
        )
    counts = np.zeros((len(physical), E), dtype=np.int64)
    np.add.at(counts, (np.arange(len(physical))[:, None], logical), physical)
    return counts


def _count_trace(
    counts: NDArray[np.int64],
    mode: str,
    model: KnownModel,
    notes: tuple[str, ...],
    where: str,
) -> CountTrace:
    """A count trace from counts [passes, hidden layers, E]; empty rows of the buffer are dropped."""
    top_k = model.top_k
    if top_k is None:
        raise BadInputError(
            f"{where}: a {mode} dump holds counts only, so top-k is not known", "give the model (--model DIR)"
        )
    if model.experts is not None and counts.shape[2] != model.experts:
        raise BadInputError(
            f"{where}: {counts.shape[2]} experts per layer, the model has {model.experts}",
            "give the model that made this dump",
        )
    counts = counts[counts.any(axis=(1, 2))]
    if counts.size and counts.min() < 0:
        raise BadInputError(f"{where}: a count is negative", "use the recorder's own file")
    moe = moe_layers(np.asarray(counts.any(axis=(0, 2))), model.layers, where)
    counts = counts[:, moe.rows]
    if _is_placement(counts, top_k):
        raise BadInputError(
            f"{where}: its counts are an expert placement for --init-expert-location, not a recording",
            "import what /dump_expert_distribution_record wrote",
        )
    used = counts[counts > 0]
    ranks = int(np.gcd.reduce(used))
    if ranks > 1 and used.size >= _LEAST_FOR_RANKS:
        counts = counts // ranks
        notes = (
            *notes,
            f"every count was a multiple of {ranks} (each rank counts the same tokens): divided by it",
        )
    window_tokens = -(-counts.sum(axis=2).max(axis=1) // top_k)
    return CountTrace(
        header=TraceHeader(
            model=model.name or where,
            layers=moe.layers,
            experts=counts.shape[2],
            top_k=top_k,
            source=f"SGLang expert-distribution recorder, {mode}",
            notes=(*notes, "tokens were derived from counts and top-k", *moe.notes),
        ),
        counts=counts,
        window_tokens=window_tokens,
    )


def _is_placement(counts: NDArray[np.int64], top_k: int) -> bool:
    """Whether counts [1, L, E] are a mask or a ranking that a server was started with.

    Many tokens that never choose an expert twice, or experts of which no two are chosen equally often, are not
    what a router does.
    """
    used = counts[counts > 0]
    mask = used.max(initial=0) == 1 and used.size > 2 * top_k * counts.shape[1]
    ranking = used.size >= _LEAST_FOR_RANKS and np.unique(used).size == used.size
    return len(counts) == 1 and bool(mask or ranking)


def _token_trace(
    records: list[Mapping[str, Any]],
    logical: NDArray[np.int64],
    model: KnownModel,
    notes: tuple[str, ...],
    where: str,
) -> TokenTrace:
    """A token trace from per_token records, requests rebuilt from positions; ``model`` has its experts."""
    top_k = model.top_k
    tracker = RequestTracker()
    ids: list[NDArray[np.uint16]] = []
    skipped = 0
    for number, record in enumerate(records):
        at = f"{where}, record {number}"
        mode = record.get("forward_mode")
        if mode not in (_EXTEND, _DECODE, _MIXED):
            skipped += mode != _IDLE
            continue
        positions = integer_list(record.get("positions"), "positions", at)
        if not positions.size:
            continue
        lengths = record.get("extend_seq_lens")
        tracker.add(
            ForwardPass(
                positions=positions,
                prompt_tokens=None
                if mode == _DECODE or lengths is None
                else integer_list(lengths, "extend_seq_lens", at),
                mixed=mode == _MIXED,
            ),
            at,
        )
        ids.append(_logical_ids(record.get("topk_ids_of_layer"), len(positions), logical, at))
    if not ids:
        raise BadInputError(
            f"{where}: no prefill or decode pass was recorded", "record while the server answers requests"
        )
    if skipped:
        notes = (*notes, f"{skipped} passes of other modes (speculative verify or draft) were left out")
    gathered = np.concatenate(ids)
    tracked = tracker.requests()
    padded = (gathered == PADDING).all(axis=(1, 2))
    order = tracked.order[~padded[tracked.order]]
    if padded.any():
        notes = (*notes, f"{int(padded.sum())} padding tokens were dropped")
    gathered = gathered[order]
    moe = moe_layers(np.asarray((gathered != PADDING).any(axis=(0, 2))), model.layers, where)
    gathered = _valid_first(gathered[:, moe.rows])
    widest = int((gathered != PADDING).sum(axis=2).max(initial=0))
    if top_k is not None and widest != top_k:
        raise BadInputError(
            f"{where}: tokens choose {widest} experts, the model's top-k is {top_k}",
            "give the model that made this dump",
        )
    return TokenTrace(
        header=TraceHeader(
            model=model.name or where,
            layers=moe.layers,
            experts=model.experts or int(logical.max()) + 1,
            top_k=widest,
            source="SGLang expert-distribution recorder, per_token",
            notes=(*notes, *tracked.notes, *moe.notes),
        ),
        topk_ids=np.ascontiguousarray(gathered[:, :, :widest]),
        request=tracked.request[order],
        position=tracked.position[order],
        phase=tracked.phase[order],
    )


def _logical_ids(value: object, tokens: int, logical: NDArray[np.int64], at: str) -> NDArray[np.uint16]:
    """Logical ids uint16 [tokens, hidden layers, 8] of a record; rows beyond its tokens are graph padding."""
    physical = integers(value, "topk_ids_of_layer", 3, at)
    L, recorded, _ = physical.shape
    if recorded < tokens or len(logical) != L:
        raise BadInputError(
            f"{at}: topk_ids_of_layer is {physical.shape} for {tokens} tokens and {len(logical)} layers",
            "use the recorder's own file",
        )
    physical = physical[:, :tokens]
    if physical.min(initial=0) < -1 or physical.max(initial=-1) >= logical.shape[1]:
        raise BadInputError(
            f"{at}: topk_ids_of_layer holds an id outside {logical.shape[1]} physical experts",
            "use the recorder's own file",
        )
    mapped = logical[np.arange(L)[:, None, None], physical]
    return np.where(physical < 0, PADDING, mapped).astype(np.uint16).transpose(1, 0, 2)


def _valid_first(ids: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The same ids with unused slots moved to the end of each token's list."""
    order = np.argsort(ids == PADDING, axis=2, kind="stable")
    return np.take_along_axis(ids, order, axis=2)
