"""preflight.sh: asks `placer preflight` whether this machine is ready, with the paths that launch.sh uses."""

import shlex

from placer.exports.kt_selection import RUNTIME
from placer.exports.script import KT_PATHS, filled

_SCRIPT = r"""#!/usr/bin/env bash
# Is this machine ready to start @RUNTIME@ with the placement in this folder?
#
#   [MODEL_PATH=DIR] [KT_WEIGHT_PATH=PATH] [PYTHON=python] [PLACER=placer] ./preflight.sh [--json]
#
# PYTHON is the interpreter that launch.sh starts the server with; PLACER may be in another environment.
# Exit code 0: nothing failed. 3: the plan does not fit this machine. 4: a component is missing.
set -euo pipefail

@PATHS@PLACER="${PLACER:-placer}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

if ! command -v "$PLACER" > /dev/null; then
  printf 'preflight.sh: %s is not found: pip install moe-placer, or set PLACER\n' "$PLACER" >&2
  exit 4
fi
arguments=(--runtime sglang-kt --python "$PYTHON")
if [ -n "$MODEL_PATH" ]; then arguments+=(--model-path "$MODEL_PATH"); fi
if [ -n "$KT_WEIGHT_PATH" ]; then arguments+=(--kt-weight-path "$KT_WEIGHT_PATH"); fi
exec "$PLACER" preflight "$HERE/placement.json" "${arguments[@]}" "$@"
"""


def render_preflight(*, model_path: str | None, kt_weight_path: str | None) -> str:
    """The script; paths that are None are checked where they are set when it runs."""
    return filled(
        _SCRIPT,
        {
            "RUNTIME": RUNTIME,
            "PATHS": KT_PATHS,
            "MODEL_PATH": shlex.quote(model_path or ""),
            "KT_WEIGHT_PATH": shlex.quote(kt_weight_path or ""),
        },
    )
