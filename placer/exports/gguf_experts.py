"""Expert bytes of a GGUF file: what each MoE layer's experts take, from its own tensor list."""

import re
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.placement_sections import PlacedModel
from placer.profiler.trace.gguf_file import read_gguf

_EXPERTS = re.compile(r"blk\.([0-9]{1,6})\.ffn_(?:up|down|gate|gate_up)_exps\.weight")
_SPLIT = re.compile(r"-([0-9]{5})-of-([0-9]{5})\.gguf$")


def expert_layer_bytes(path: Path, model: PlacedModel) -> list[int]:
    """Bytes of the experts of every layer of ``model.layers``, in that order.

    A split file is named by its first part; the others lie beside it.

    Raises
    ------
    MissingComponentError
        When the ``gguf`` package is not installed.
    BadInputError
        When the file is not readable GGUF, lacks a part, or holds experts in other layers.
    """
    found: dict[int, int] = {}

    def add(reader: Any) -> None:
        for tensor in reader.tensors:
            if match := _EXPERTS.fullmatch(tensor.name):
                layer = int(match.group(1))
                found[layer] = found.get(layer, 0) + int(tensor.n_bytes)

    for part in _parts(path):
        read_gguf(part, add, cure="give the model's GGUF file, or its first part")
    if set(found) != set(model.layers):
        raise BadInputError(
            f"{path}: holds experts in {len(found)} layers, the plan's model has {len(model.layers)} MoE layers"
            + (f" ({_first_difference(found, model.layers)})" if found else ""),
            "give the GGUF file of the model that was planned for",
        )
    return [found[layer] for layer in model.layers]


def _first_difference(found: dict[int, int], layers: tuple[int, ...]) -> str:
    layer = min(set(found) ^ set(layers))
    return f"layer {layer} is {'not a MoE layer of the plan' if layer in found else 'missing'}"


def _parts(path: Path) -> list[Path]:
    match = _SPLIT.search(path.name)
    if match is None:
        return [path]
    stem, parts = path.name[: match.start()], int(match.group(2))
    paths = [path.with_name(f"{stem}-{number:05d}-of-{parts:05d}.gguf") for number in range(1, parts + 1)]
    for part in paths:
        if not part.is_file():
            raise BadInputError(
                f"{part} is missing: {path.name} has {parts} parts", "put all parts into one folder"
            )
    return paths
