"""record.sh: the same launch with the expert recorder on, and the recorder of a running sglang-kt server."""

from collections.abc import Mapping, Sequence
from typing import Any

from placer.errors import BadInputError
from placer.exports.flag import Flag, command_line
from placer.exports.kt_architectures import UNRECORDED_ARCHITECTURES, architecture_of
from placer.exports.kt_selection import RUNTIME, unwrapped
from placer.exports.script import filled

_SCRIPT = r"""#!/usr/bin/env bash
# Records which experts a server selects, and which of them it holds on the GPU.
#
#   ./record.sh launch [more flags]    the launch of ./launch.sh, with the recorder on
#   ./record.sh start                  then send the traffic to plan for
#   ./record.sh dump                   writes what was recorded
#   ./record.sh stop
#
# [SGLANG_URL=http://127.0.0.1:30000] is the running server of start, stop and dump. The dumps go to
# SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR, ./records unless it was set when the server was launched. Then:
#   placer trace import records/expert_distribution_recorder_*.pt
#   placer export placement.json --check-dump records/gpu_expert_distribution_*.pt
set -euo pipefail

SGLANG_URL="${SGLANG_URL:-http://127.0.0.1:30000}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
refuse() { printf 'record.sh: %s\n' "$1" >&2; exit 2; }

case "${1:-}" in
  launch)
    shift
    export SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR="${SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR:-$HERE/records}"
    # The flags are given here, whatever launch.sh would do by itself.
    RECORD=0 exec "$HERE/launch.sh" @FLAGS@ "$@"
    ;;
  start | stop | dump)
    [ $# -eq 1 ] || refuse "$1 takes nothing behind it; SGLANG_URL names the server"
    command -v curl > /dev/null || refuse "curl is not found: install it"
    curl -fsS -X POST "${SGLANG_URL%/}/${1}_expert_distribution_record" \
      || refuse "no recording server at $SGLANG_URL: start './record.sh launch' first, or set SGLANG_URL"
    ;;
  *) refuse "usage: record.sh launch|start|stop|dump" ;;
esac
"""


def render_record(flags: Sequence[Flag]) -> str:
    """The script; ``flags`` are those of `recording_flags`."""
    return filled(_SCRIPT, {"FLAGS": command_line(flags)})


def unrecordable(config: Mapping[str, Any]) -> str | None:
    """Why the runtime's recorder does not see a model's routing; None where it does."""
    architecture = architecture_of(config)
    if unwrapped(config).get("model_type") == "deepseek_v4" or architecture == "DeepseekV4ForCausalLM":
        return f"{RUNTIME} cannot record DeepSeek-V4: the model never tells the recorder its layer"
    if architecture in UNRECORDED_ARCHITECTURES:
        return f"{RUNTIME} cannot record {architecture}: the model does not tell the recorder of its experts"
    return None


def check_recordable(config: Mapping[str, Any]) -> None:
    """Raise BadInputError for a model whose routing the runtime's recorder does not see."""
    why = unrecordable(config)
    if why is not None:
        raise BadInputError(
            why, "export without --record and start with: ./launch.sh --enable-return-routed-experts"
        )
