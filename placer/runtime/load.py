"""Reads the part of placement.json that a serving runtime acts on (schema placer.placement/1).

The standard library is all it needs, and nothing else of placer: a runtime may carry this one file along. What is
read is checked; sections that only people and reports read are not (`placer.placement` checks the whole document).
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_SCHEMA = re.compile(r"placer\.placement/(\d+)(\.\d+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 512 * 2**20
_MAX_EXPERTS = 65_534
_KV_DTYPES = ("bf16", "fp8")
_CPU_METHODS = ("RAWINT4", "AMXINT4", "AMXINT8", "LLAMAFILE", "torch", "VLLM-BF16")


class PlacementError(ValueError):
    """A plan that cannot be used, or that was made for another model: one line, with what to do about it."""


@dataclass(frozen=True)
class Kv:
    """The KV pool and the server settings that were decided with it; ``tokens`` is the pool's capacity."""

    dtype: str
    bytes_per_token_per_gpu: int
    tokens: int
    max_running_requests: int
    chunked_prefill_size: int
    cuda_graph_max_bs: int


@dataclass(frozen=True)
class Placement:
    """Which experts are hot, and the settings that go with them.

    Attributes
    ----------
    path, sha256
        The file that was read, and the hash of its bytes in hexadecimal.
    model_name, architecture, config_sha256
        The model that was placed, and the hash of its config.json.
    layers
        Checkpoint indices of the MoE layers, ascending (dense layers count).
    experts, top_k
        Routed experts of each layer, and how many of them a token chooses.
    tp
        Tensor-parallel size that was planned for.
    cpu_method
        How the cold experts were profiled: "RAWINT4", "torch"...
    cpu_threads, cpu_subpools
        Threads of the CPU pool that was profiled, and the memory nodes they were spread over; None where the plan
        does not say.
    expert_bytes
        A whole expert on the GPU as planned; None where the plan does not say.
    kv
        See `Kv`.
    hot
        For every layer of ``layers`` its hot expert ids, hottest first.
    """

    path: str
    sha256: str
    model_name: str
    architecture: str
    config_sha256: str
    layers: tuple[int, ...]
    experts: int
    top_k: int
    tp: int
    cpu_method: str
    cpu_threads: int | None
    cpu_subpools: int | None
    expert_bytes: int | None
    kv: Kv
    hot: dict[int, tuple[int, ...]]

    @property
    def hot_total(self) -> int:
        """Hot experts over all layers."""
        return sum(len(ids) for ids in self.hot.values())

    @property
    def masks(self) -> dict[int, bytes]:
        """For every layer one byte per expert, 1 where it is hot: ``numpy.frombuffer(mask, bool)`` reads it."""
        masks = {}
        for layer, ids in self.hot.items():
            mask = bytearray(self.experts)
            for expert in ids:
                mask[expert] = 1
            masks[layer] = bytes(mask)
        return masks

    def check_config(self, config: bytes) -> None:
        """Raise PlacementError unless ``config`` is the config.json that the plan was made from, byte for byte."""
        found = hashlib.sha256(config).hexdigest()
        if found != self.config_sha256:
            raise PlacementError(
                f"placement {self.path} was made for {self.model_name} with a config.json of sha256 "
                f"{self.config_sha256[:12]}..., and this model's has {found[:12]}...: solve again for this model"
            )


def load(path: str | os.PathLike[str], model: str | os.PathLike[str] | None = None) -> Placement:
    """The placement in the file at ``path``.

    ``model`` is the checkpoint folder (or its config.json) that the plan must have been made for; None checks
    nothing.

    Raises
    ------
    PlacementError
        When the file cannot be read, is no placement of a version known here, holds a field that cannot be true,
        or was made for another model.
    """
    name = os.fspath(path)
    data = _read(name, f"placement {name}")
    placement = _placement(_Fields(_document(data, name), name), name, hashlib.sha256(data).hexdigest())
    if model is not None:
        folder = os.fspath(model)
        config = os.path.join(folder, "config.json") if os.path.isdir(folder) else folder
        placement.check_config(_read(config, f"model config {config}"))
    return placement


def _read(path: str, what: str) -> bytes:
    try:
        if os.path.getsize(path) > _MAX_BYTES:
            raise PlacementError(f"{what} is larger than {_MAX_BYTES:,} bytes: check the path")
        with open(path, "rb") as file:
            return file.read()
    except ValueError as error:
        if isinstance(error, PlacementError):
            raise
        raise PlacementError(f"cannot read {what!r}: {error}: check the path") from None
    except OSError as error:
        raise PlacementError(f"cannot read {what}: {error.strerror or error}: check the path") from None


def _document(data: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).split("\n")[0]
        raise PlacementError(
            f"placement {name} is damaged ({reason}): write it again with 'placer solve'"
        ) from None
    if not isinstance(document, dict) or "schema" not in document:
        raise PlacementError(f"{name} is no placement: give a file that 'placer solve' wrote")
    schema = document["schema"]
    match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if match is None or match.group(1) != "1":
        raise PlacementError(
            f"placement {name}: field schema is {schema!r:.60}, and 'placer.placement/1' is what is read "
            "here: write it with a 'placer solve' of this version, or update the runtime's placer"
        )
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a finite number")


class _Fields:
    """A JSON object whose fields are taken with their type checked, and named in full in errors."""

    def __init__(self, values: dict[str, Any], file: str, path: str = "") -> None:
        self._values = values
        self._file = file
        self._path = path

    def error(self, field: str, what: str) -> PlacementError:
        named = f"{self._path}.{field}" if self._path else field
        return PlacementError(
            f"placement {self._file}: field {named} {what}: write the file again with 'placer solve'"
        )

    def section(self, field: str) -> "_Fields":
        value = self._values.get(field)
        if not isinstance(value, dict):
            raise self.error(field, "is not an object")
        return _Fields(value, self._file, f"{self._path}.{field}" if self._path else field)

    def text(self, field: str) -> str:
        value = self._values.get(field)
        if not isinstance(value, str):
            raise self.error(field, "is not a text")
        return value

    def choice(self, field: str, among: tuple[str, ...]) -> str:
        value = self.text(field)
        if value not in among:
            raise self.error(field, f"is {value!r:.40}, not one of {', '.join(among)}")
        return value

    def count(self, field: str, *, least: int, most: int | None = None) -> int:
        value = self._values.get(field)
        # bool is a subclass of int, and no count.
        if type(value) is not int or value < least or (most is not None and value > most):
            limit = f"{least} or more" if most is None else f"{least} to {most}"
            raise self.error(field, f"is {value!r:.40}, not a whole number of {limit}")
        return value

    def optional_count(self, field: str, *, least: int) -> int | None:
        return None if self._values.get(field) is None else self.count(field, least=least)

    def counts(self, field: str) -> tuple[int, ...]:
        value = self._values.get(field)
        if not isinstance(value, list) or any(type(each) is not int for each in value):
            raise self.error(field, "is not a list of whole numbers")
        return tuple(value)

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, field: str) -> bool:
        return self._values.get(field) is not None


def _placement(fields: _Fields, path: str, sha256: str) -> Placement:
    model, kv, hbm = fields.section("model"), fields.section("kv"), fields.section("hbm")
    kt = fields.section("kt") if fields.has("kt") else None
    layers = model.counts("layers")
    if not layers or layers[0] < 0 or any(b <= a for a, b in pairwise(layers)):
        raise model.error("layers", "is not a list of layer indices that ascend from 0 or more")
    experts = model.count("experts", least=1, most=_MAX_EXPERTS)
    config_sha256 = model.text("config_sha256")
    if not _SHA256.fullmatch(config_sha256):
        raise model.error("config_sha256", "is not a sha256 in hexadecimal")
    return Placement(
        path=path,
        sha256=sha256,
        model_name=model.text("name"),
        architecture=model.text("architecture"),
        config_sha256=config_sha256,
        layers=layers,
        experts=experts,
        top_k=model.count("top_k", least=1, most=experts),
        tp=fields.count("tp", least=1),
        cpu_method=fields.choice("cpu_method", _CPU_METHODS),
        cpu_threads=kt.count("threads", least=1) if kt else None,
        cpu_subpools=kt.count("subpools", least=1) if kt else None,
        expert_bytes=hbm.optional_count("expert_bytes", least=1),
        kv=Kv(
            dtype=kv.choice("dtype", _KV_DTYPES),
            bytes_per_token_per_gpu=kv.count("bytes_per_token_per_gpu", least=0),
            tokens=kv.count("tokens", least=1),
            max_running_requests=kv.count("max_running_requests", least=1),
            chunked_prefill_size=kv.count("chunked_prefill_size", least=1),
            cuda_graph_max_bs=kv.count("cuda_graph_max_bs", least=1),
        ),
        hot=_hot(fields, layers, experts),
    )


def _hot(fields: _Fields, layers: tuple[int, ...], experts: int) -> dict[int, tuple[int, ...]]:
    named = fields.section("hot")
    indices = {str(layer): layer for layer in layers}
    hot: dict[int, tuple[int, ...]] = dict.fromkeys(layers, ())
    for name in named.names():
        if name not in indices:
            raise named.error(name, "is not one of model.layers")
        ids = named.counts(name)
        if ids and not (min(ids) >= 0 and max(ids) < experts):
            out = next(expert for expert in ids if not 0 <= expert < experts)
            raise named.error(name, f"names expert {out}, which is not in 0 to {experts - 1} (model.experts)")
        if len(set(ids)) != len(ids):
            raise named.error(name, "names an expert twice")
        hot[indices[name]] = ids
    total = sum(len(ids) for ids in hot.values())
    if fields.count("hot_total", least=0) != total:
        raise fields.error("hot_total", f"does not say the {total:,} experts that hot names")
    return hot
