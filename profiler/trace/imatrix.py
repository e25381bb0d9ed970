"""Count traces from the importance matrices that llama.cpp writes as GGUF, through the ``gguf`` package."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.gguf_file import read_gguf
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.moe_layers import moe_layers
from placer.profiler.trace.trace import CountTrace, TraceHeader

# llama.cpp tools/imatrix/imatrix.cpp, save_imatrix: a sum of squares and a count per expert and weight matrix.
_COUNTS = re.compile(r"blk\.(\d{1,6})\.ffn_(gate|up|down|gate_up)_exps\.weight\.counts")
_MOST_PARTS = 500_000
"""Pieces of metadata that are read; an importance matrix of 1,000 layers has about 50,000."""
_EXACT = 2**24
"""Counts are float32, exact up to here."""


def import_imatrix(path: Path, model: KnownModel) -> CountTrace:
    """Read tokens per expert of ``llama-imatrix --output-format gguf``: one window of prompt tokens.

    Layers are numbered as in the checkpoint. The gate, up and down matrices of a layer see the same tokens;
    one of them is read, and a note says where they differ. Top-k comes from the model, or from the number of
    tokens (chunks times chunk size) that the file says.

    Raises
    ------
    BadInputError
        When the file is no importance matrix with expert counts, is damaged, or does not fit the model.
    MissingComponentError
        When the gguf package is not installed.
    """
    where = str(path)
    by_layer, tokens = _read(path)
    notes = ["an importance matrix is made from prompts: decode may route otherwise"]
    E = len(next(iter(by_layer.values()))[0])
    rows = np.zeros((max(by_layer) + 1, E), dtype=np.int64)
    differing = []
    for layer, found in by_layer.items():
        if any(len(one) != E for one in found):
            raise BadInputError(
                f"{where}: layers of {E} experts and of {len(found[0])}", "give one that is not damaged"
            )
        rows[layer] = found[0]
        if any(not np.array_equal(found[0], other) for other in found[1:]):
            differing.append(layer)
    if differing:
        notes.append(
            f"gate, up and down matrices of layers {differing[:8]} saw different tokens: one was taken"
        )
    if rows.max() >= _EXACT:
        notes.append(f"counts above {_EXACT} were rounded by the file's float32")
    if model.experts is not None and model.experts != E:
        raise BadInputError(
            f"{where}: {E} experts per layer, the model has {model.experts}", "give the model this file is of"
        )
    moe = moe_layers(np.asarray(rows.any(axis=1)), model.layers, where)
    counts = rows[moe.rows]
    selections = int(counts.sum(axis=1).max())
    top_k = model.top_k
    if top_k is None:
        if tokens is None or selections % tokens:
            raise BadInputError(
                f"{where}: {selections} selections per layer are no multiple of its {tokens or 'unknown'} tokens, "
                "so top-k is not known",
                "give the model (--model DIR)",
            )
        top_k = selections // tokens
        notes.append(f"top-{top_k} was derived from {tokens} tokens")
    else:
        notes.append("tokens were derived from counts and top-k")
    return CountTrace(
        header=TraceHeader(
            model=model.name or path.stem,
            layers=moe.layers,
            experts=E,
            top_k=top_k,
            source=f"{path.name}: llama.cpp importance matrix",
            notes=(*notes, *moe.notes),
        ),
        counts=counts[None],
        window_tokens=np.array([-(-selections // top_k)], dtype=np.int64),
    )


def _read(path: Path) -> tuple[dict[int, list[NDArray[np.int64]]], int | None]:
    """Counts int64 [E] of each layer's matrices, and the tokens that the file says it saw."""

    def find(reader: Any) -> tuple[dict[int, list[NDArray[np.int64]]], list[int | None]]:
        by_layer: dict[int, list[NDArray[np.int64]]] = {}
        for tensor in reader.tensors:
            match = _COUNTS.fullmatch(tensor.name)
            if match is not None:
                counts = _whole(np.asarray(tensor.data), tensor.name, path)
                by_layer.setdefault(int(match.group(1)), []).append(counts)
        return by_layer, [_number(reader, f"imatrix.{name}") for name in ("chunk_count", "chunk_size")]

    by_layer, chunks = read_gguf(path, find, cure="make it again with llama-imatrix", most_parts=_MOST_PARTS)
    if not by_layer:
        raise BadInputError(
            f"{path}: a GGUF file without expert counts (blk.N.ffn_down_exps.weight.counts)",
            "give the output of llama-imatrix --output-format gguf on a MoE model, not the model itself",
        )
    return dict(sorted(by_layer.items())), None if None in chunks else (chunks[0] or 0) * (
        chunks[1] or 0
    ) or None


def _whole(found: NDArray[Any], name: str, path: Path) -> NDArray[np.int64]:
    """Counts [1, E] or [E] as int64 [E]."""
    counts = found.reshape(-1)
    sound = counts.dtype == np.float32 and counts.size and np.isfinite(counts).all()
    if not sound or counts.min() < 0 or counts.max() > 2**44 or np.any(counts != np.floor(counts)):
        raise BadInputError(f"{path}: {name} does not hold counts", "make it again with llama-imatrix")
    return counts.astype(np.int64)


def _number(reader: Any, key: str) -> int | None:
    field = reader.fields.get(key)
    if field is None:
        return None
    number = int(np.asarray(field.parts[field.data[0]]).reshape(-1)[0])
    return number if 0 < number < 2**31 else None
