"""record.sh: starts, stops and dumps the expert recorder of a running sglang-kt server."""

from typing import Any

from placer.errors import BadInputError
from placer.export.kt_selection import RUNTIME, unwrapped

RECORD_SCRIPT = r"""#!/usr/bin/env bash
# Records which experts the running server selects: ./record.sh start, send traffic, ./record.sh dump.
#
#   [SGLANG_URL=http://127.0.0.1:30000] ./record.sh start|stop|dump
#
# The server writes expert_distribution_recorder_*.pt to SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR
# (./records unless it was set when launch.sh ran). Then: placer trace import records/*.pt
set -euo pipefail

SGLANG_URL="${SGLANG_URL:-http://127.0.0.1:30000}"

case "${1:-}" in
  start | stop | dump) curl -fsS -X POST "${SGLANG_URL%/}/${1}_expert_distribution_record" ;;
  *) printf 'usage: record.sh start|stop|dump\n' >&2; exit 2 ;;
esac
"""


def check_recordable(config: dict[str, Any]) -> None:
    """Raise BadInputError for a model whose routing the runtime's recorder does not see."""
    if unwrapped(config).get("model_type") == "deepseek_v4":
        raise BadInputError(
            f"{RUNTIME} cannot record DeepSeek-V4: the model never tells the recorder its layer",
            "export without --record and start with: ./launch.sh --enable-return-routed-experts",
        )
