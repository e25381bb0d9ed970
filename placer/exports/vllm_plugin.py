"""Export to vLLM with placer's plugin, which honours the plan expert by expert (placer/runtime/vllm/README.md)."""

import shlex
from pathlib import Path

from placer.errors import BadInputError
from placer.exports.flag import Flag, yaml_lines
from placer.exports.folder import ExportFile, write_folder
from placer.exports.readme import flag_table, one_line
from placer.exports.result import ExportResult
from placer.exports.runtime_scheduler import scheduler_note
from placer.exports.script import filled, launch_line
from placer.exports.vllm_cold_path import COLD_PATHS
from placer.exports.vllm_flags import serving_flags
from placer.placement import PlacementDocument
from placer.runtime.load import PlacementError, load
from placer.runtime.vllm.support import ARCHITECTURES, VERSION
from placer.units import gib

MINOR = ".".join(map(str, VERSION))
RUNTIME = f"vLLM {MINOR} with placer's plugin"
PLAN_FILE = "placement.json"

_LAUNCH = """#!/usr/bin/env bash
# Starts vLLM with the placement in this folder (written by placer; README.md says what it holds).
#
#   [MODEL_PATH=DIR] [PYTHON=python] ./launch.sh [more flags of vllm serve]
set -euo pipefail

DEFAULT_MODEL_PATH=@MODEL_PATH@
MODEL_PATH="${MODEL_PATH:-$DEFAULT_MODEL_PATH}"
PYTHON="${PYTHON:-python}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
refuse() { printf 'launch.sh: %s\\n' "$1" >&2; exit 2; }

for file in vllm.yaml placement.json; do
  [ -f "$HERE/$file" ] || refuse "$HERE/$file is missing: export the placement again"
done
[ -n "$MODEL_PATH" ] || refuse "set MODEL_PATH to the checkpoint directory"
[ -f "$MODEL_PATH/config.json" ] || refuse "MODEL_PATH=$MODEL_PATH is not a directory with a config.json"
command -v "$PYTHON" > /dev/null || refuse "PYTHON=$PYTHON is not found"

# vLLM says nothing of a plugin that it does not find, and would load every expert on the GPU.
"$PYTHON" - << 'PY' || exit 2
import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec

if "placer" not in entry_points(group="vllm.general_plugins").names:
    sys.exit(f"launch.sh: placer is not installed for {sys.executable}: pip install --no-deps moe-placer")
if "placer" not in os.environ.get("VLLM_PLUGINS", "placer").split(","):
    sys.exit("launch.sh: VLLM_PLUGINS leaves placer out: add it, or unset the variable")
if find_spec("vllm") is None:
    sys.exit(f"launch.sh: vllm is not installed for {sys.executable}: pip install vllm==@VLLM@.*")
PY

export PLACER_PLACEMENT="$HERE/placement.json"
export PLACER_COLD="${PLACER_COLD:-@COLD@}"
export PLACER_COLD_THREADS="${PLACER_COLD_THREADS:-@THREADS@}"
exec "$PYTHON" -m vllm.entrypoints.openai.api_server --model "$MODEL_PATH" --config "$HERE/vllm.yaml" "$@"
"""


def export_vllm_plugin(
    placement: PlacementDocument, placement_path: Path, out_dir: Path, *, model_path: str | None = None
) -> ExportResult:
    """Write the plan, ``vllm.yaml``, ``launch.sh`` and ``README.md`` to ``out_dir``.

    Raises
    ------
    BadInputError
        When the plugin could not run the plan exactly; nothing is written then.
    """
    check_vllm_plugin(placement)
    flags, notes = serving_flags(placement), _notes(placement)
    launch = filled(
        _LAUNCH,
        {
            "VLLM": MINOR,
            "COLD": COLD_PATHS[placement.cpu_method],
            "THREADS": str(placement.kt.threads if placement.kt else 1),
            "MODEL_PATH": shlex.quote(model_path or ""),
        },
    )
    head = f"# Flags of vLLM {MINOR} that the placement depends on; README.md says what each one does."
    files = [
        ExportFile(PLAN_FILE, Path(placement_path).read_bytes()),
        ExportFile("vllm.yaml", ("\n".join([head, *yaml_lines(flags)]) + "\n").encode()),
        ExportFile("README.md", _readme(placement, flags, notes).encode()),
        ExportFile("launch.sh", launch.encode(), executable=True),
    ]
    write_folder(out_dir, files, check=lambda staged: _check_reads_back(staged, placement))
    line = launch_line(out_dir, {"MODEL_PATH=DIR": model_path})
    return ExportResult(RUNTIME, Path(out_dir), tuple(file.name for file in files), line, notes)


def check_vllm_plugin(placement: PlacementDocument) -> None:
    """Raise BadInputError when the plugin could not run ``placement`` exactly."""
    model = placement.model
    if model.architecture not in ARCHITECTURES:
        raise BadInputError(
            f"placer's vLLM plugin does not run {model.architecture}",
            f"it runs {', '.join(ARCHITECTURES)}; --runtime vllm offloads whole layers",
        )
    if placement.tp != 1:
        raise BadInputError(
            f"the plan is for tp {placement.tp}, and placer's vLLM plugin runs on one GPU", "solve for --tp 1"
        )
    if placement.cpu_method not in COLD_PATHS:
        raise BadInputError(
            f"the plan was timed with {placement.cpu_method}, which placer's vLLM plugin does not run",
            "profile with --cpu-kernel kt or torch, and solve again",
        )
    serving_flags(placement)


def _check_reads_back(folder: Path, placement: PlacementDocument) -> None:
    """The plugin's own reader must find the plan's hot experts in the file that it will be given."""
    try:
        read = load(folder / PLAN_FILE)
    except PlacementError as error:
        raise BadInputError(f"the plugin could not read the plan: {error}", "solve again") from None
    planned = {layer: placement.hot.get(str(layer), ()) for layer in placement.model.layers}
    if read.hot != planned:
        raise BadInputError("the placement changed while it was exported", "export it again")


def _notes(placement: PlacementDocument) -> tuple[str, ...]:
    scheduler = scheduler_note(placement, "vllm-plugin")
    notes = [
        *([] if scheduler is None else [scheduler]),
        "the plugin has run on CPUs only: on a GPU it starts with PLACER_CUDA=experimental, and nothing is known of it",
        "hot experts stay in the checkpoint's precision, bf16 or FP8 by blocks of 128: INT4 copies of the cold ones "
        "are made while the server loads, which takes a while",
    ]
    if placement.hbm.expert_bytes is not None:
        notes.append(
            f"the plan counts {placement.hbm.expert_bytes:,} bytes for an expert on the GPU; a checkpoint in which it "
            "takes more does not fit"
        )
    return tuple(notes)


def _readme(placement: PlacementDocument, flags: tuple[Flag, ...], notes: tuple[str, ...]) -> str:
    lines = [
        f"# {one_line(placement.model.name)} on {RUNTIME}",
        "",
        f"{placement.hot_total:,} of {placement.total_experts:,} experts on the GPU and {placement.kv.tokens:,} KV "
        f"tokens ({placement.kv.dtype}), within {gib(placement.hbm.budget_bytes_per_gpu)}.",
        "",
        "    pip install --no-deps moe-placer kt-kernel==0.7.2 gguf    # beside vLLM",
        "    MODEL_PATH=/path/to/checkpoint ./launch.sh",
        "",
        "## Check",
        "",
        f"    placer export {PLAN_FILE} --runtime vllm-plugin --check-log SERVER.log",
        "",
        "compares what the server logged with the plan, layer by layer. What cannot be honoured stops the start with "
        "a line that says why.",
        "",
        "## Notes",
        "",
        *(f"- {note}" for note in notes),
        "",
        "## Flags",
        "",
        *flag_table(flags),
    ]
    return "\n".join(lines) + "\n"
