"""`placer export`: pick the runtime, find the model's config.json, write what the runtime consumes."""

from pathlib import Path
from typing import Any

from placer.document import read_document
from placer.errors import BadInputError
from placer.export.result import ExportResult
from placer.export.sglang_kt import export_sglang_kt
from placer.model.config import CONFIG_CURE
from placer.placement import PlacementDocument, read_placement

RUNTIMES = ("sglang-kt",)
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
