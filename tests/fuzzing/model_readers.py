"""Readers of checkpoints: config.json, safetensors headers, their index, and a model's GGUF file."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import earlier_configs
import family_configs
from placements import placement
from sparse_checkpoint import write_checkpoint
from test_llama_cpp_export import gguf_file
from tiny_model import TINY_CONFIG

from fuzzing.byte_mutation import mutated_bytes
from fuzzing.header_mutation import mutated_safetensors
from fuzzing.json_mutation import mutated_json
from fuzzing.reader import Reader
from fuzzing.shown import show
from placer.answer.model import model_answer
from placer.errors import PlacerError
from placer.exports.gguf_experts import expert_layer_bytes
from placer.model.headers import INDEX_NAME
from placer.model.inspect import inspect_document
from placer.model.spec import ModelSpec, read_model
from placer.parallelism import Parallelism

__all__ = ["MODEL_READERS"]

_MOST_LAYERS = 8
"""Deeper models are as good a start and take longer."""
_SMALL: dict[str, Any] = {**TINY_CONFIG, "num_hidden_layers": 2, "num_experts": 4}
_WEIGHTS_BYTES = 4 * 2**20
"""More than the small checkpoint's weights take: `_read_shard` puts them behind a header as a hole."""
_SHARD = "model-00001-of-00001.safetensors"


def _configs(_folder: Path) -> Sequence[bytes]:
    return [json.dumps(config).encode() for config in (TINY_CONFIG, *_published())]


def _published() -> Iterator[dict[str, Any]]:
    """Published configs of every family, with fewer layers where no list says what each layer is."""
    for module in (family_configs, earlier_configs):
        for config in vars(module).values():
            if not isinstance(config, dict) or "architectures" not in config:
                continue
            inner = config.get("text_config", config)
            lists = any(isinstance(value, list) and len(value) > _MOST_LAYERS for value in inner.values())
            if not lists and inner.get("num_hidden_layers", 0) > _MOST_LAYERS:
                less = {"num_hidden_layers": _MOST_LAYERS}
                yield config | less if inner is config else {**config, "text_config": inner | less}
            else:
                yield config


def _read_folder(path: Path) -> ModelSpec:
    return read_model(path.parent)


def _use_model(spec: ModelSpec) -> None:
    for tp in (1, 8):
        with contextlib.suppress(PlacerError):
            Parallelism(tp).check(spec)
            show(model_answer(inspect_document(spec, tp)))


def _header_alone(folder: Path) -> Sequence[bytes]:
    """Header of a whole small checkpoint, without the weights behind it."""
    write_checkpoint(folder / "whole", _SMALL)
    data = (folder / "whole" / _SHARD).read_bytes()
    return [data[: 8 + int.from_bytes(data[:8], "little")]]


def _read_shard(path: Path) -> ModelSpec:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length < path.stat().st_size:
        os.truncate(path, path.stat().st_size + _WEIGHTS_BYTES)
    return read_model(path.parent)


def _config_beside(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(_SMALL))


def _indices(folder: Path) -> Sequence[bytes]:
    return [(write_checkpoint(folder / "whole", _SMALL, shards=2) / INDEX_NAME).read_bytes()]


def _shards_beside(folder: Path) -> None:
    write_checkpoint(folder, _SMALL, shards=2)


_PLAN = placement({1: [0], 2: []}, layers=[1, 2], experts=8)


def _gguf_models(folder: Path) -> Sequence[bytes]:
    return [gguf_file(folder / "model.gguf", {1: 1, 2: 2}).read_bytes()]


MODEL_READERS = (
    Reader("config", _configs, mutated_json, _read_folder, _use_model, file="config.json"),
    Reader(
        "safetensors-header",
        _header_alone,
        mutated_safetensors,
        _read_shard,
        _use_model,
        file=_SHARD,
        prepare=_config_beside,
    ),
    Reader(
        "safetensors-index",
        _indices,
        mutated_json,
        _read_folder,
        _use_model,
        file=INDEX_NAME,
        prepare=_shards_beside,
    ),
    Reader("gguf-model", _gguf_models, mutated_bytes, lambda path: expert_layer_bytes(path, _PLAN.model)),
)
