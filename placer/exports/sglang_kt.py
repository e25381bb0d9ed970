"""Export to SGLang + KTransformers: files from which sglang-kt 0.7.2 selects exactly the plan."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.exports.folder import ExportFile, write_folder
from placer.exports.kt_benchmark import render_benchmark
from placer.exports.kt_flags import COUNTS_FILE, left_unset, recording_flags, render_config, server_flags
from placer.exports.kt_launch import render_launch
from placer.exports.kt_preflight import render_preflight
from placer.exports.kt_ranking import planned_ratio, ranked_counts
from placer.exports.kt_readme import render_readme
from placer.exports.kt_record import check_recordable, render_record, unrecordable
from placer.exports.kt_requirements import checked_layout
from placer.exports.kt_selection import (
    RUNTIME,
    kt_layout,
    read_logical_count,
    select_hot,
)
from placer.exports.kt_warnings import warnings
from placer.exports.result import ExportResult
from placer.exports.script import launch_line
from placer.placement import PlacementDocument
from placer.solvers.problem import Mask
from placer.units import counted

FILES = (
    COUNTS_FILE,
    "config.yaml",
    "README.md",
    "placement.json",
    "launch.sh",
    "preflight.sh",
    "benchmark.sh",
    "record.sh",
)
"""What an export may write."""


def export_sglang_kt(
    placement: PlacementDocument,
    out_dir: Path,
    *,
    config: dict[str, Any],
    placement_bytes: bytes | None = None,
    model_path: str | None = None,
    kt_weight_path: str | None = None,
    record: bool = False,
    mem_fraction_static: float | None = None,
) -> ExportResult:
    """Write ranking, flags, README, the placement and the scripts that check, start, record and measure.

    ``config`` is the model's config.json. ``placement_bytes`` are those of the placement's file, which goes along as
    it is, so that hashes agree; None writes it anew. ``mem_fraction_static`` takes the place of the placement's own.
    With ``record``, launch.sh itself starts the server with its expert recorder on, unless RECORD=0, as
    benchmark.sh does; record.sh always records.
    Before anything appears in ``out_dir``, the files are read back through the runtime's selection rule.

    Raises
    ------
    BadInputError
        When the runtime cannot run the plan as it stands (CPU method, expert sizes, layers that it holds to
        be dense, settings), or the folder cannot be written; nothing is written then.
    """
    layout = checked_layout(placement, config)
    hot = {int(layer): ids for layer, ids in placement.hot.items()}
    most = layout.experts if placement.most_hot is None else placement.most_hot
    counts = ranked_counts(
        hot,
        placement.model.layers,
        layout,
        least={
            layer: (layout.experts if placement.pins[layer] else 0)
            if layer in placement.pins
            else placement.least_hot
            for layer in hot
        },
        full={layer for layer, ids in hot.items() if placement.pins.get(layer) is False or len(ids) == most},
    )
    if mem_fraction_static is None:
        mem_fraction_static = placement.mem_fraction_static
    if mem_fraction_static is None:
        raise BadInputError(
            "the placement does not say mem_fraction_static", "solve again with a profile of the GPU"
        )
    flags = server_flags(
        placement,
        config,
        ratio=planned_ratio(placement, layout),
        mem_fraction_static=mem_fraction_static,
        model_path=model_path,
        kt_weight_path=kt_weight_path,
    )
    recorder = recording_flags(placement.model.top_k)
    if record:
        check_recordable(config)
    recordable = unrecordable(config) is None
    notes = warnings(placement, config, layout)
    saved = _saved(counts)
    launch = render_launch(
        config,
        counts_file=COUNTS_FILE,
        counts_sha256=hashlib.sha256(saved).hexdigest(),
        cpu_method=placement.cpu_method,
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        recorder=recorder if record else (),
        undoing=left_unset(placement),
    )
    readme = render_readme(placement, layout, flags, notes, recordable=recordable, record=record)
    files = [
        ExportFile(COUNTS_FILE, saved),
        ExportFile("config.yaml", render_config(flags).encode()),
        ExportFile("README.md", readme.encode()),
        ExportFile("placement.json", placement_bytes or placement.model_dump_json(by_alias=True).encode()),
        ExportFile("launch.sh", launch.encode(), executable=True),
        ExportFile(
            "preflight.sh",
            render_preflight(model_path=model_path, kt_weight_path=kt_weight_path).encode(),
            executable=True,
        ),
        ExportFile(
            "benchmark.sh", render_benchmark(placement, model_path=model_path).encode(), executable=True
        ),
    ]
    if recordable:
        files.append(ExportFile("record.sh", render_record(recorder).encode(), executable=True))
    write_folder(
        out_dir,
        files,
        check=lambda staged: check_reads_back(staged, placement, config),
        stale=() if recordable else ("record.sh",),
    )
    line = launch_line(out_dir, {"MODEL_PATH=DIR": model_path, "KT_WEIGHT_PATH=PATH": kt_weight_path})
    return ExportResult(RUNTIME, Path(out_dir), tuple(file.name for file in files), line, notes)


def check_reads_back(folder: Path, placement: PlacementDocument, config: Mapping[str, Any]) -> None:
    """Raise BadInputError unless the runtime's rule, on the files in ``folder``, selects the plan exactly."""
    layout = kt_layout(config)
    flags = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    # The runtime's YAML reader hands values on as text.
    ratio = float(str(flags["kt-gpu-experts-ratio"]))
    selected = select_hot(read_logical_count(folder / COUNTS_FILE), layout, ratio)
    wrong = _wrong_layers(selected[list(placement.model.layers)], placement)
    if wrong:
        layer, planned, found = wrong[0]
        dense = (
            ""
            if layer in layout.moe_layers
            else " (the runtime holds it to be dense and puts all of it there)"
        )
        raise BadInputError(
            f"{RUNTIME} would not run this plan: layer {layer} would have {found} experts on the GPU, not "
            f"{planned}{dense}; {counted(len(wrong), 'layer')} in all",
            "the runtime's layer rule does not fit this model: no export can run this plan",
        )


def _wrong_layers(selected: Mask, placement: PlacementDocument) -> list[tuple[int, int, int]]:
    planned = placement.hot_mask()
    return [
        (layer, int(planned[row].sum()), int(selected[row].sum()))
        for row, layer in enumerate(placement.model.layers)
        if not np.array_equal(selected[row], planned[row])
    ]


def _saved(counts: NDArray[np.int64]) -> bytes:
    """The expert-location file: a dict with ``logical_count`` int32 [1, num_layers, E]."""
    import torch  # noqa: PLC0415  (seconds to import, and only this file needs it)

    buffer = io.BytesIO()
    torch.save({"logical_count": torch.from_numpy(counts.astype(np.int32))[None]}, buffer)
    return buffer.getvalue()
