"""`placer export`: pick the runtime, find the model's config.json, write what the runtime consumes."""

from pathlib import Path
from typing import Any

from placer.document import read_document
from placer.errors import BadInputError
from placer.export.llama_cpp import export_llama_cpp
from placer.export.result import ExportResult
from placer.export.sglang_kt import export_sglang_kt
from placer.export.vllm import export_vllm
from placer.export.vllm_plugin import export_vllm_plugin
from placer.model.config import CONFIG_CURE
from placer.placement import PlacementDocument, read_placement

RUNTIMES = ("sglang-kt", "vllm", "vllm-plugin", "llama.cpp")
"""Names that ``--runtime`` takes."""


def export_placement(
    placement_path: Path,
    out_dir: Path,
    *,
    runtime: str,
    model_path: str | None = None,
    kt_weight_path: str | None = None,
    record: bool = False,
) -> ExportResult:
    """Export the placement at ``placement_path`` for ``runtime``.

    The runtime counts layers by its own reading of config.json: the one at ``model_path`` where that folder is
    on this machine, otherwise the copy of its fields that the placement carries.

    Raises
    ------
    BadInputError
        When the runtime is unknown, the placement invalid, or the runtime could not run the plan exactly.
    """
    if runtime not in RUNTIMES:
        raise BadInputError(f"--runtime {runtime!r} is not known", f"use one of: {', '.join(RUNTIMES)}")
    placement = read_placement(placement_path)
    if runtime != "sglang-kt":
        for flag, given in (("--kt-weight-path", kt_weight_path), ("--record", record)):
            if given:
                raise BadInputError(f"{flag} is for --runtime sglang-kt", f"leave {flag} out")
        if runtime == "vllm":
            return export_vllm(placement, out_dir, model_path=model_path)
        if runtime == "vllm-plugin":
            return export_vllm_plugin(placement, placement_path, out_dir, model_path=model_path)
        return export_llama_cpp(placement, out_dir, model_path=model_path)
    return export_sglang_kt(
        placement,
        out_dir,
        config=_config(placement, model_path),
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        record=record,
    )


def _config(placement: PlacementDocument, model_path: str | None) -> dict[str, Any]:
    if model_path is not None and (Path(model_path) / "config.json").is_file():
        return read_document(Path(model_path) / "config.json", what="model config", cure=CONFIG_CURE)
    carried: dict[str, Any] | None = (placement.model.model_extra or {}).get("config")
    if carried is None:
        raise BadInputError(
            "the placement carries no model config, and --model-path has no config.json on this machine",
            "give --model-path a folder with the model's config.json",
        )
    return carried
