"""launch.sh: checks that files, checkpoint and runtime are those of the plan, then starts the server."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placer.exports.flag import Flag, command_line
from placer.exports.kt_selection import RUNTIME, unwrapped
from placer.exports.script import KT_PATHS, filled

CHECKED_FIELDS = (
    "num_hidden_layers",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "first_k_dense_replace",
    "moe_layer_freq",
    "num_hash_layers",
    "hidden_size",
    "moe_intermediate_size",
)
"""Fields of config.json in which a checkpoint must agree with the one that was planned for."""


def checked_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """`CHECKED_FIELDS` of a config.json, with what the runtime takes for those that it lacks."""
    text = unwrapped(config)
    return {name: text.get(name) or (1 if name == "moe_layer_freq" else 0) for name in CHECKED_FIELDS}


_SCRIPT = r"""#!/usr/bin/env bash
# Starts @RUNTIME@ with the placement in this folder (written by placer; README.md says what it holds).
#
#   [MODEL_PATH=DIR] [KT_WEIGHT_PATH=PATH] [PYTHON=python] ./launch.sh [more flags of sglang.launch_server]
#
# MODEL_PATH is the block-FP8 checkpoint, KT_WEIGHT_PATH holds all experts for the @METHOD@ CPU kernel.
set -euo pipefail

@PATHS@HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
@RECORDING@
refuse() { printf 'launch.sh: %s\n' "$1" >&2; exit 2; }

for file in config.yaml @COUNTS@; do
  [ -f "$HERE/$file" ] || refuse "$HERE/$file is missing: export the placement again"
done
[ -n "$MODEL_PATH" ] || refuse "set MODEL_PATH to the block-FP8 checkpoint directory"
[ -f "$MODEL_PATH/config.json" ] || refuse "MODEL_PATH=$MODEL_PATH is not a directory with a config.json"
[ -n "$KT_WEIGHT_PATH" ] || refuse "set KT_WEIGHT_PATH to the experts converted for @METHOD@"
[ -e "$KT_WEIGHT_PATH" ] || refuse "KT_WEIGHT_PATH=$KT_WEIGHT_PATH does not exist"
command -v "$PYTHON" > /dev/null || refuse "PYTHON=$PYTHON is not found"
case ",${SGLANG_DISABLED_MODEL_ARCHS:-}," in
  *,deepseek_v4,*) refuse "SGLANG_DISABLED_MODEL_ARCHS names deepseek_v4, which brings in KT: take it out" ;;
esac
for flag in "$@"; do
  case "${flag%%=*}" in
    @UNDOING@)
      printf 'launch.sh: warning: %s undoes the plan; README.md says why\n' "${flag%%=*}" >&2 ;;
  esac
done

"$PYTHON" - "$MODEL_PATH/config.json" "$HERE/@COUNTS@" << 'PY' || exit 2
import hashlib
import json
import re
import sys
from importlib import metadata


def refuse(reason):
    sys.exit("launch.sh: " + reason)


path, counts = sys.argv[1:]
try:
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config") or config
    quantization = config.get("quantization_config") or text.get("quantization_config") or {}
    block_fp8 = quantization.get("quant_method") == "fp8" and quantization.get("weight_block_size")
except (OSError, ValueError, AttributeError) as error:
    refuse(f"cannot read {path}: {error}")
if not block_fp8:
    refuse(f"{path} is not of a block-FP8 checkpoint (quant_method fp8 with weight_block_size), "
           "but the plan counts hot experts in FP8: point MODEL_PATH at the FP8 checkpoint")
for field, planned in @FIELDS@.items():
    found = text.get(field) or (1 if field == "moe_layer_freq" else 0)
    if found != planned:
        refuse(f"{path}: {field} is {found!r}, the plan was made for {planned!r}: wrong model")
with open(counts, "rb") as file:
    if hashlib.sha256(file.read()).hexdigest() != "@SHA256@":
        refuse(f"{counts} is not the file that was exported: export the placement again")
for name, why in (("sglang-kt", "upstream sglang ignores the placement"), ("kt-kernel", "no CPU would compute")):
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        refuse(f"{name} is not installed for {sys.executable}: pip install {name}==@VERSION@ ({why})")
    if [int(part) for part in re.findall("[0-9]+", version)][:3] < [int(part) for part in "@VERSION@".split(".")]:
        refuse(f"{name} {version} is older than what the export was checked against: pip install {name}==@VERSION@")
    if version != "@VERSION@":
        print(f"launch.sh: warning: {name} {version} is installed, the export was checked against @VERSION@; "
              "check what runs: placer export placement.json --check-log", file=sys.stderr)
PY

exec "$PYTHON" -m sglang.launch_server --config "$HERE/config.yaml" \
  --model-path "$MODEL_PATH" --kt-weight-path "$KT_WEIGHT_PATH" \
  --init-expert-location "$HERE/@COUNTS@"@RECORDER@ "$@"
"""

_RECORDING = """
# Exported to record: RECORD=0 starts the same server without its recorder, as benchmark.sh does.
recorder=()
if [ "${RECORD:-1}" != 0 ]; then
  # Where ./record.sh dump leaves its files.
  export SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR="${SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR:-$HERE/records}"
  recorder=(@FLAGS@)
fi
"""


def render_launch(
    config: Mapping[str, Any],
    *,
    counts_file: str,
    counts_sha256: str,
    cpu_method: str,
    model_path: str | None,
    kt_weight_path: str | None,
    recorder: Sequence[Flag],
    undoing: Iterable[str],
) -> str:
    """The script; paths that are None must be given when it is started. ``undoing`` are flags that it warns of.

    ``recorder`` are the flags with which the server starts recording; none where it does not.
    """
    values = {
        "RUNTIME": RUNTIME,
        "PATHS": KT_PATHS,
        "VERSION": RUNTIME.rpartition(" ")[2],
        "METHOD": cpu_method,
        "COUNTS": counts_file,
        "SHA256": counts_sha256,
        # A repr of JSON values is a Python literal on one line.
        "FIELDS": repr(checked_fields(config)),
        "UNDOING": " | ".join(f"--{name}" for name in undoing),
        "RECORDING": filled(_RECORDING, {"FLAGS": command_line(recorder)}) if recorder else "",
        "RECORDER": ' ${recorder[@]+"${recorder[@]}"}' if recorder else "",
        "MODEL_PATH": shlex.quote(model_path or ""),
        "KT_WEIGHT_PATH": shlex.quote(kt_weight_path or ""),
    }
    return filled(_SCRIPT, values)
