"""Export to stock vLLM: a YAML of flags that keeps the plan's KV pool exactly and offloads whole layers."""

import shlex
from pathlib import Path

from placer.exports.flag import Flag, yaml_lines
from placer.exports.folder import ExportFile, write_folder
from placer.exports.readme import flag_table, one_line
from placer.exports.result import ExportResult
from placer.exports.script import filled, launch_line
from placer.exports.vllm_flags import VLLM, Offload, layer_offload, vllm_flags, vllm_notes
from placer.placement import PlacementDocument
from placer.units import gib

_LAUNCH = """#!/usr/bin/env bash
# Starts vLLM with the flags in this folder (written by placer; README.md says what each one does).
#
#   [MODEL_PATH=DIR] ./launch.sh [more flags of vllm serve]
set -euo pipefail

DEFAULT_MODEL_PATH=@MODEL_PATH@
MODEL_PATH="${MODEL_PATH:-$DEFAULT_MODEL_PATH}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
refuse() { printf 'launch.sh: %s\\n' "$1" >&2; exit 2; }

[ -f "$HERE/vllm.yaml" ] || refuse "$HERE/vllm.yaml is missing: export the placement again"
[ -n "$MODEL_PATH" ] || refuse "set MODEL_PATH to the checkpoint directory"
[ -f "$MODEL_PATH/config.json" ] || refuse "MODEL_PATH=$MODEL_PATH is not a directory with a config.json"
command -v vllm > /dev/null || refuse "vllm is not installed: pip install vllm"

exec vllm serve "$MODEL_PATH" --config "$HERE/vllm.yaml" "$@"
"""


def export_vllm(
    placement: PlacementDocument, out_dir: Path, *, model_path: str | None = None
) -> ExportResult:
    """Write ``vllm.yaml``, ``launch.sh`` and ``README.md`` to ``out_dir``.

    Raises
    ------
    BadInputError
        When the placement says too little, or plans what stock vLLM cannot run; nothing is written then.
    """
    offload = layer_offload(placement)
    flags = vllm_flags(placement, offload)
    notes = vllm_notes(placement, offload)
    head = [f"# Flags of {VLLM} that the placement depends on; README.md says what each one does."]
    files = [
        ExportFile("vllm.yaml", ("\n".join([*head, *yaml_lines(flags)]) + "\n").encode()),
        ExportFile("README.md", _readme(placement, offload, flags, notes).encode()),
        ExportFile(
            "launch.sh",
            filled(_LAUNCH, {"MODEL_PATH": shlex.quote(model_path or "")}).encode(),
            executable=True,
        ),
    ]
    write_folder(out_dir, files, check=lambda _staged: None)
    line = launch_line(out_dir, {"MODEL_PATH=DIR": model_path})
    return ExportResult(VLLM, Path(out_dir), tuple(file.name for file in files), line, notes)


def _readme(
    placement: PlacementDocument, offload: Offload, flags: tuple[Flag, ...], notes: tuple[str, ...]
) -> str:
    lines = [
        f"# {one_line(placement.model.name)} on {VLLM}",
        "",
        f"{placement.kv.tokens:,} KV tokens ({placement.kv.dtype}) as planned, the experts of "
        f"{len(offload.choice.hot_layers)} of {len(placement.model.layers)} MoE layers on the GPU, "
        f"{gib(offload.bytes_per_gpu)} of the others per GPU read from host memory.",
        "",
        "    MODEL_PATH=/path/to/checkpoint ./launch.sh",
        "",
        "## What differs from the plan",
        "",
        *(f"- {note}" for note in notes),
        "",
        "## Check",
        "",
        f"The log must say `GPU KV cache size: N tokens` with N of at least {placement.kv.tokens:,}"
        + (
            f", and `Total CPU offloaded parameters: {offload.bytes_per_gpu / 2**30:.2f}` GiB or a tensor more."
            if offload.layers
            else "."
        ),
        "",
        "## Flags",
        "",
        *flag_table(flags),
    ]
    return "\n".join(lines) + "\n"
