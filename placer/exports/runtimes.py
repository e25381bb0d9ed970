"""`placer export`: pick the runtime, find the model's config.json, write what the runtime consumes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from placer.document import read_document
from placer.errors import BadInputError
from placer.exports.applied import Applied
from placer.exports.kt_applied import check_dump, check_log
from placer.exports.llama_cpp import export_llama_cpp
from placer.exports.result import ExportResult
from placer.exports.runtime_name import LOGGING_RUNTIMES, PREPARED_RUNTIMES, RUNTIMES
from placer.exports.sglang_kt import export_sglang_kt
from placer.exports.vllm import export_vllm
from placer.exports.vllm_log import check_vllm_log
from placer.exports.vllm_plugin import export_vllm_plugin
from placer.known_name import unknown_value
from placer.model.config import CONFIG_CURE
from placer.placement import PlacementDocument, read_placement


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
        raise unknown_value("--runtime", runtime, RUNTIMES)
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
        placement_bytes=Path(placement_path).read_bytes(),
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        record=record,
    )


def check_applied(
    placement_path: Path, *, runtime: str, log: Path | None = None, dumps: Sequence[Path] = ()
) -> tuple[Applied, ...]:
    """What a server runs against the placement at ``placement_path``: by its log, by its dumped masks, or both.

    Raises
    ------
    BadInputError
        When the runtime is unknown, or a file is invalid or of another model.
    """
    _known(runtime, LOGGING_RUNTIMES, "servers are checked")
    placement = read_placement(placement_path)
    if runtime == "vllm-plugin":
        if dumps or log is None:
            raise BadInputError("--check-dump is for --runtime sglang-kt", "give --check-log")
        return (check_vllm_log(placement_path, log),)
    return (
        *(() if log is None else (check_log(placement, log),)),
        *(check_dump(placement, dump) for dump in dumps),
    )


def prepared_runtime(runtime: str) -> str:
    """``runtime``; raises BadInputError unless machines can be checked for it."""
    return _known(runtime, PREPARED_RUNTIMES, "machines are checked")


def _known(runtime: str, known: tuple[str, ...], what: str) -> str:
    if runtime not in RUNTIMES:
        raise unknown_value("--runtime", runtime, known)
    if runtime not in known:
        names = ", ".join(known)
        raise BadInputError(
            f"--runtime {runtime!r} can only be exported to: {what} for {names}", f"use one of: {names}"
        )
    return runtime


def planned_config(placement: PlacementDocument, model_path: str | None) -> dict[str, Any] | None:
    """The config.json that was planned with: what the placement carries of it, or the one at ``model_path``.

    None where there is neither.
    """
    carried = placement.model.config
    return carried if carried is not None else _config_at(model_path)


def _config(placement: PlacementDocument, model_path: str | None) -> dict[str, Any]:
    config = _config_at(model_path) or planned_config(placement, None)
    if config is None:
        raise BadInputError(
            "the placement carries no model config, and --model-path has no config.json on this machine",
            "give --model-path a folder with the model's config.json",
        )
    return config


def _config_at(model_path: str | None) -> dict[str, Any] | None:
    if model_path is None or not (Path(model_path) / "config.json").is_file():
        return None
    return read_document(Path(model_path) / "config.json", what="model config", cure=CONFIG_CURE)
