"""The checkpoint on the GPU's side: there, whole, block-FP8, and of the model that was planned for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placer.document import read_document
from placer.errors import BadInputError
from placer.exports.kt_launch import checked_fields
from placer.model.config import CONFIG_CURE
from placer.model.dtype import elements_bytes
from placer.model.headers import has_headers, read_headers
from placer.placement import PlacementDocument
from placer.readiness.check import Check, Failure, Verdict
from placer.units import gib

_HOW = "config.json and the headers of the safetensors files"


def check_checkpoint(
    placement: PlacementDocument, config: dict[str, Any] | None, model_path: str | None
) -> Iterator[Check]:
    """The checkpoint at ``model_path`` against the placement and the ``config`` it was planned with, if known."""
    name, needed = "checkpoint", f"the block-FP8 checkpoint of {placement.model.name}"
    if model_path is None:
        yield Check(name, Verdict.UNKNOWN, "no --model-path", needed, "", "give --model-path DIR")
        return
    folder = Path(model_path)
    if not (folder / "config.json").is_file():
        yield _failed(name, f"{folder} has no config.json", needed, "download the checkpoint there")
        return
    try:
        here = read_document(folder / "config.json", what="model config", cure=CONFIG_CURE)
    except BadInputError as error:
        yield _failed(name, error.what, needed, error.hint)
        return
    planned, found = checked_fields(config or here), checked_fields(here)
    wrong = [
        f"{field} is {found[field]!r}, not {planned[field]!r}"
        for field in planned
        if found[field] != planned[field]
    ]
    if wrong:
        yield _failed(name, "; ".join(wrong), needed, "give the checkpoint that the placement was solved for")
        return
    text = here.get("text_config") or here
    quantization = here.get("quantization_config") or text.get("quantization_config") or {}
    if quantization.get("quant_method") != "fp8" or not quantization.get("weight_block_size"):
        yield _failed(
            name,
            f"quant_method {quantization.get('quant_method')!r}, weight_block_size "
            f"{quantization.get('weight_block_size')!r}",
            needed,
            "download the FP8 form of the model: the plan counts hot experts in block-FP8",
        )
        return
    yield _weights(folder, name, needed)


def _weights(folder: Path, name: str, needed: str) -> Check:
    if not has_headers(folder):
        return _failed(name, f"{folder} has no safetensors files", needed, "finish the download")
    try:
        size = sum(elements_bytes(tensor.elements, tensor.dtype) for tensor in read_headers(folder))
    except BadInputError as error:
        return _failed(name, error.what, needed, error.hint)
    return Check(name, Verdict.OK, f"{gib(size)} in {folder}, every file whole", needed, _HOW)


def _failed(name: str, found: str, needed: str, do: str) -> Check:
    return Check(name, Verdict.FAIL, found, needed, _HOW, do, Failure.MISSING)
