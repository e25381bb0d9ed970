"""Checkpoints for tests whose headers are whole and whose weights are holes in sparse files."""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from placer.model.blueprint import Blueprint, blueprint
from placer.model.config import read_config
from placer.model.dtype import elements_bytes
from placer.model.module import Module, StoredTensor
from placer.model.storage import stored_tensors

Fuse = Callable[[Blueprint, str], list[StoredTensor]]
"""The routed experts of the layer of this name, where a checkpoint fuses them."""


def write_shard(path: Path, tensors: Sequence[StoredTensor]) -> None:
    """A safetensors file that holds ``tensors``, its data a hole."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in tensors:
        end = position + elements_bytes(tensor.elements, tensor.dtype)
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + position)


def write_checkpoint(
    folder: Path, config: dict[str, Any], *, shards: int = 1, prefix: str = "", fuse: Fuse | None = None
) -> Path:
    """What config.json implies as a checkpoint of ``shards`` files, every name behind ``prefix``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = [
        StoredTensor(prefix + name, dtype, shape)
        for name, dtype, shape in _tensors(blueprint(read_config(folder / "config.json")), fuse)
    ]
    weight_map: dict[str, str] = {}
    for part in range(shards):
        held = tensors[part::shards]
        shard = f"model-{part + 1:05d}-of-{shards:05d}.safetensors"
        write_shard(folder / shard, held)
        weight_map |= dict.fromkeys((tensor.name for tensor in held), shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def _tensors(plan: Blueprint, fuse: Fuse | None) -> Iterator[StoredTensor]:
    for module in plan.modules:
        if module.stored:
            for tensor in stored_tensors(module, plan.quantization, plan.naming):
                yield tensor._replace(name=tensor.name.removesuffix("."))
    H, width = plan.counts.expert_hidden_size, plan.counts.expert_intermediate_size
    for layer in plan.counts.moe_layers:
        at = f"model.layers.{layer}.{plan.family.experts.at}"
        if fuse is not None:
            yield from fuse(plan, at)
            continue
        for expert in range(plan.counts.experts):
            shapes = ((width, H), (width, H), (H, width))
            for name, shape in zip(plan.family.experts.matrices, shapes, strict=True):
                module = Module(f"{at}.{expert}.{name}", "other", shape, linear=True)
                yield from stored_tensors(module, plan.quantization, plan.naming)
