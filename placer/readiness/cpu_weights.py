"""The experts for the CPU: there, of the plan's method, complete, and cut for its NUMA pools."""

import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.exports.kt_expert_limits import GGUF_BLOCK
from placer.exports.kt_requirements import expert_width
from placer.exports.kt_selection import unwrapped
from placer.kernels.cpu_method_needs import INT4_GROUP
from placer.model.dtype import elements_bytes
from placer.model.headers import has_headers, read_headers
from placer.model.module import StoredTensor
from placer.placement import PlacementDocument
from placer.readiness.check import Check, Failure, Verdict
from placer.units import counted

_HOW = "names and sizes in the headers of its files"
_NAME = "CPU experts"
_AMX = re.compile(r"blk\.(\d{1,6})\.ffn_up_exps\.(\d{1,6})\.numa\.(\d{1,4})\.weight")
_AMX_FOLDER = re.compile(r"_layer_(\d{1,6})")
_AMX_NODE = re.compile(r"_numa_(\d{1,4})")
_RAW = re.compile(
    r"(?:language_model\.)?(?:language_model\.)?model\.(?:language_model\.)?layers\.(\d{1,6})\.mlp\.experts\."
    r"(\d{1,6})\.up_proj\.weight_packed"
)
_QUANTS = {"AMXINT4": "int4", "AMXINT8": "int8"}
_INT4_CHECKPOINT = (
    "get the model as a compressed-tensors INT4 checkpoint (symmetric, groups of 32, bf16 scales), which `kt quant` "
    "does not make; some models are published so, such as Kimi-K2-Thinking, and LLM Compressor "
    "(docs.vllm.ai/projects/llm-compressor) writes the format: give it these groups, as its W4A16 takes 128"
)
# `kt quant` looks for its script beside the package, and imports click, which newer typer carries under another name.
_SCRIPTS = (
    "copy kt-kernel/scripts of github.com/kvcache-ai/ktransformers, which the 0.7.2 wheel does not bring, into the "
    "site-packages folder that holds kt_kernel; where `kt` has no module click, `pip install click`; then"
)


@dataclass
class _Found:
    """What a folder holds: experts of each layer, NUMA parts, bytes of one matrix, scales."""

    experts: dict[int, int] = field(default_factory=dict)
    nodes: int = 1
    up_bytes: int | None = None
    group: int | None = None
    scale_dtype: str | None = None


def check_cpu_weights(
    placement: PlacementDocument, config: dict[str, Any] | None, path: str | None, model_path: str | None
) -> Iterator[Check]:
    """What is at ``path`` against what ``--kt-method`` reads: names as kt_kernel/utils/loader.py has them."""
    method = placement.cpu_method
    pools = 1 if placement.kt is None else placement.kt.subpools
    model = placement.model
    needed = f"{len(model.layers)} layers of {model.experts} experts for {method}" + (
        f", cut for {counted(pools, 'NUMA pool')}" if method in _QUANTS else ""
    )
    if path is None:
        yield Check(_NAME, Verdict.UNKNOWN, "no --kt-weight-path", needed, "", "give --kt-weight-path PATH")
        return
    cure = conversion(placement, path, model_path)
    if not os.path.exists(path):
        yield _failed(f"{path} does not exist", needed, cure)
    elif method == "LLAMAFILE":
        yield _gguf(Path(path), config, pools, needed)
    else:
        try:
            read = _raw if method == "RAWINT4" else _amx
            yield _judged(placement, config, read(Path(path)), pools, needed, cure)
        except BadInputError as error:
            yield _failed(error.what, needed, error.hint)


def conversion(placement: PlacementDocument, path: str, model_path: str | None) -> str:
    """How to make the experts for the plan's CPU method."""
    method, kt = placement.cpu_method, placement.kt
    if method not in _QUANTS or kt is None:
        return _INT4_CHECKPOINT if method == "RAWINT4" else "get the model as GGUF"
    # kt quant writes beside a folder that exists, under another name.
    output = f"{path.rstrip('/')}-{method}-NUMA{kt.subpools}" if os.path.exists(path) else path
    options = {
        "--method": _QUANTS[method],
        "--input-type": "fp8",
        "--output": output,
        "--cpu-threads": str(kt.threads),
        "--numa-nodes": str(kt.subpools),
    }
    words = [
        "kt",
        "quant",
        model_path or "MODEL_PATH",
        *(word for pair in options.items() for word in pair),
        "--yes",
    ]
    return f"{_SCRIPTS} `{shlex.join(words)}`"


def _judged(
    placement: PlacementDocument,
    config: dict[str, Any] | None,
    found: _Found,
    pools: int,
    needed: str,
    cure: str,
) -> Check:
    model, method = placement.model, placement.cpu_method
    if not found.experts:
        return _failed(f"no experts under names that {method} reads", needed, cure)
    missing = [layer for layer in model.layers if layer not in found.experts]
    if missing:
        return _failed(
            f"lacks {counted(len(missing), 'layer')}, the first is layer {missing[0]}", needed, cure
        )
    wrong = [layer for layer in model.layers if found.experts[layer] != model.experts]
    if wrong:
        return _failed(f"layer {wrong[0]} has {found.experts[wrong[0]]} experts", needed, cure)
    if method in _QUANTS and found.nodes != pools:
        return _failed(f"cut for {counted(found.nodes, 'NUMA pool')}", needed, cure)
    values = _matrix_values(config)
    if found.up_bytes is not None and values is not None:
        values //= found.nodes
        expected = values if method == "AMXINT8" else values // 2
        if found.up_bytes != expected:
            named = {values: "8 bits", values // 2: "4 bits"}.get(found.up_bytes, "another size")
            return _failed(f"its matrices have {named} a value ({found.up_bytes:,} bytes)", needed, cure)
    if found.scale_dtype not in (None, "BF16"):
        return _failed(f"its scales are {found.scale_dtype}; {method} reads BF16", needed, cure)
    said = f"{len(model.layers)} layers of {model.experts} experts"
    if method in _QUANTS:
        said += f", cut for {counted(found.nodes, 'NUMA pool')}"
    if found.group not in (None, INT4_GROUP):
        return Check(
            _NAME,
            Verdict.WARN,
            f"{said}, groups of {found.group}",
            f"{needed}, groups of {INT4_GROUP}",
            _HOW,
            "memory and times were counted for groups of 32: measure with benchmark.sh before you trust them",
            Failure.MISSING,
        )
    return Check(_NAME, Verdict.OK, said, needed, _HOW, "", Failure.MISSING)


def _matrix_values(config: dict[str, Any] | None) -> int | None:
    """Values of one matrix of an expert, where config.json says its sides."""
    text = unwrapped(config or {})
    sides = (text.get("hidden_size"), expert_width(text)[1])
    return math.prod(sides) if all(isinstance(side, int) for side in sides) else None


def _amx(path: Path) -> _Found:
    """A folder of converted experts: merged into safetensors files, or a folder per layer and NUMA node."""
    if has_headers(path):
        return _tally(read_headers(path), _AMX)
    found, nodes = _Found(), set()
    for layer in sorted(path.glob("_layer_*")) if path.is_dir() else ():
        if match := _AMX_FOLDER.fullmatch(layer.name):
            parts = [part for part in layer.iterdir() if _AMX_NODE.fullmatch(part.name)]
            nodes.add(len(parts))
            experts = {_expert(file.name) for part in parts for file in part.glob("*_up_*_quant_.kt")}
            found.experts[int(match.group(1))] = len(experts - {None})
            sizes = {file.stat().st_size for part in parts for file in part.glob("*_up_*_quant_.kt")}
            found.up_bytes = max(sizes, default=None)
    found.nodes = max(nodes, default=1)
    return found


def _expert(name: str) -> int | None:
    """The expert of INT4_up_17_1310720Byte_quant_.kt."""
    match = re.fullmatch(r"[A-Z0-9_]+?_up_(\d{1,6})_\d+Byte_quant_\.kt", name)
    return int(match.group(1)) if match else None


def _raw(path: Path) -> _Found:
    """A compressed-tensors checkpoint, or nothing where the folder holds none."""
    if not path.is_dir() or not has_headers(path):
        return _Found()
    tensors = list(read_headers(path))
    found = _tally(tensors, _RAW)
    by_name = {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        if _RAW.fullmatch(tensor.name):
            scale = by_name.get(tensor.name.removesuffix("packed") + "scale")
            if scale is not None and len(scale.shape) == 2 and len(tensor.shape) == 2:
                # Eight values to a 32-bit word, or two to a byte.
                values = tensor.shape[1] * (8 if tensor.dtype == "I32" else 2)
                found.group = values // max(1, scale.shape[1])
                found.scale_dtype = scale.dtype
            break
    return found


def _tally(tensors: Iterable[StoredTensor], names: re.Pattern[str]) -> _Found:
    found, nodes = _Found(), {0}
    for tensor in tensors:
        match = names.fullmatch(tensor.name)
        if match is None:
            continue
        layer, expert = int(match.group(1)), int(match.group(2))
        # Loaders count up from expert 0 of node 0.
        node = int(match.group(3)) if names.groups > 2 else 0
        nodes.add(node)
        if node == 0:
            found.experts[layer] = found.experts.get(layer, 0) + 1
        if expert == 0:
            found.up_bytes = elements_bytes(tensor.elements, tensor.dtype)
    found.nodes = len(nodes)
    return found


def _gguf(path: Path, config: dict[str, Any] | None, pools: int, needed: str) -> Check:
    name, width = expert_width(unwrapped(config or {}))
    if isinstance(width, int) and (width % GGUF_BLOCK or width // GGUF_BLOCK < pools):
        return _failed(
            f"{name} is {width}: {counted(width // GGUF_BLOCK, 'block')} of {GGUF_BLOCK} for {counted(pools, 'pool')}",
            needed,
            "LLAMAFILE cannot run this model with so many pools: profile with another --cpu-kernel",
        )
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    if not any(file.suffix == ".gguf" for file in files):
        return _failed(f"no .gguf file at {path}", needed, "get the model as GGUF")
    return Check(
        _NAME,
        Verdict.UNKNOWN,
        f"{counted(len(files), 'GGUF file')}; what is in them is not checked",
        needed,
        "file names",
        "read the server's log for 'Llamafile' errors while it loads",
        Failure.MISSING,
    )


def _failed(found: str, needed: str, do: str) -> Check:
    return Check(_NAME, Verdict.FAIL, found, needed, _HOW, do, Failure.MISSING)
