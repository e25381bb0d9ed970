"""benchmark.sh: the plan against the flags in use today, with SGLang's own client."""

import shlex

from placer.exports.kt_selection import RUNTIME
from placer.exports.script import filled
from placer.placement import PlacementDocument

_SCRIPT = r"""#!/usr/bin/env bash
# Measures the plan in this folder, and the flags that you serve with today: same client, same requests.
#
#   [BASELINE='python -m sglang.launch_server --model-path ... --port 30000'] [DATASET=prompts.jsonl] ./benchmark.sh
#
# Starts each server (the plan's without the expert recorder, which costs speed), runs sglang.bench_serving RUNS times
# on it with the seeds 1 to RUNS, and stops it. Written to
# OUT: plan.jsonl and baseline.jsonl, a line per run (what `placer calibrate --benchmark` reads), the servers' logs,
# and summary.json with means and standard deviations.
#
#   SERVER_URL   measure a server that is running instead: SERVER_URL=http://host:30000 ./benchmark.sh plan|baseline
#   BASELINE     the command you serve with today; it must listen on PORT. Without it only the plan is measured.
#   DATASET      a file of conversations that bench_serving reads as DATASET_NAME (custom, openai or sharegpt).
#                Without it, prompts are random token ids: they route unlike text, so experts that are hot in your
#                traffic are not hot in them, and the plan looks worse than it is.
set -euo pipefail

DEFAULT_MODEL_PATH=@MODEL_PATH@
export MODEL_PATH="${MODEL_PATH:-$DEFAULT_MODEL_PATH}"
PYTHON="${PYTHON:-python}"
PLACER="${PLACER:-placer}"
BASELINE="${BASELINE:-}"
DATASET="${DATASET:-}"
DATASET_NAME="${DATASET_NAME:-custom}"
SERVER_URL="${SERVER_URL:-}"
PORT="${PORT:-30000}"
RUNS="${RUNS:-@RUNS@}"
CONCURRENCY="${CONCURRENCY:-@CONCURRENCY@}"
PROMPT_TOKENS="${PROMPT_TOKENS:-@PROMPT_TOKENS@}"
OUTPUT_TOKENS="${OUTPUT_TOKENS:-@OUTPUT_TOKENS@}"
PROMPTS="${PROMPTS:-@PROMPTS@}"
START_SECONDS="${START_SECONDS:-3600}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
OUT="${OUT:-$HERE/benchmark/$(date +%Y%m%d-%H%M%S)}"
server=''

refuse() { printf 'benchmark.sh: %s\n' "$1" >&2; exit 2; }

stop() {
  [ -n "$server" ] || return 0
  kill -TERM -- "-$server" 2> /dev/null || true
  for _ in $(seq 60); do
    kill -0 -- "-$server" 2> /dev/null || break
    sleep 1
  done
  kill -KILL -- "-$server" 2> /dev/null || true
  wait "$server" 2> /dev/null || true
  server=''
}
trap stop EXIT
trap 'exit 130' INT TERM

start() { # SIDE COMMAND...
  local side="$1" waited=0
  shift
  printf 'benchmark.sh: starting the server of the %s, log in %s\n' "$side" "$OUT/$side.log" >&2
  setsid "$@" > "$OUT/$side.log" 2>&1 &
  server=$!
  until curl -fsS -m 60 -o /dev/null "http://127.0.0.1:$PORT/health_generate" 2> /dev/null; do
    kill -0 "$server" 2> /dev/null || refuse "the server of the $side ended: see $OUT/$side.log"
    [ "$waited" -lt "$START_SECONDS" ] || refuse "the server of the $side is not ready after $START_SECONDS s"
    sleep 2
    waited=$((waited + 2))
  done
}

measure() { # SIDE
  local side="$1" seed url="${SERVER_URL:-http://127.0.0.1:$PORT}"
  local data=(--dataset-name random-ids --random-input-len "$PROMPT_TOKENS" --random-output-len "$OUTPUT_TOKENS"
    --random-range-ratio 1.0)
  if [ -n "$DATASET" ]; then
    data=(--dataset-name "$DATASET_NAME" --dataset-path "$DATASET" --sharegpt-output-len "$OUTPUT_TOKENS")
  fi
  for seed in $(seq "$RUNS"); do
    printf 'benchmark.sh: %s, run %s of %s\n' "$side" "$seed" "$RUNS" >&2
    "$PYTHON" -m sglang.bench_serving --backend sglang --base-url "$url" --model "$MODEL_PATH" "${data[@]}" \
      --num-prompts "$PROMPTS" --max-concurrency "$CONCURRENCY" --warmup-requests "$CONCURRENCY" --flush-cache \
      --seed "$seed" --tag "$side-$seed" --output-details --output-file "$OUT/$side.jsonl" >&2 \
      || refuse "the client failed on the server of the $side"
  done
}

for name in RUNS CONCURRENCY PROMPT_TOKENS OUTPUT_TOKENS PROMPTS START_SECONDS PORT; do
  case "${!name}" in
    '' | *[!0-9]* | 0*) refuse "$name=${!name} is not a whole number of 1 or more" ;;
  esac
done
[ $# -le 1 ] || refuse "usage: benchmark.sh [plan|baseline]; settings are variables in front of it"
[ "$RUNS" -ge 3 ] || refuse "RUNS=$RUNS: a deviation needs at least 3 runs"
[ -n "$MODEL_PATH" ] || refuse "set MODEL_PATH to the checkpoint: the client counts tokens with its tokenizer"
[ -z "$DATASET" ] || [ -f "$DATASET" ] || refuse "DATASET=$DATASET is not a file"
case "${1:-both}" in
  both) [ -z "$SERVER_URL" ] || refuse "say whose server SERVER_URL is: ./benchmark.sh plan, or baseline" ;;
  plan | baseline) ;;
  *) refuse "usage: benchmark.sh [plan|baseline]" ;;
esac
side="${1:-both}"
for name in plan baseline; do
  [ "$side" != both ] && [ "$side" != "$name" ] || [ ! -e "$OUT/$name.jsonl" ] \
    || refuse "OUT=$OUT holds runs of the $name already, which would be mixed with these: name another folder"
done
mkdir -p "$OUT" || refuse "cannot make OUT=$OUT: name another folder"
for program in curl setsid "$PYTHON"; do
  command -v "$program" > /dev/null || refuse "$program is not found: install it (PYTHON names the Python)"
done
[ -n "$DATASET" ] || printf 'benchmark.sh: warning: no DATASET, prompts are random token ids\n' >&2

if [ "$side" != baseline ]; then
  if [ -z "$SERVER_URL" ]; then
    start plan env RECORD=0 "$HERE/launch.sh" --port "$PORT"
    if command -v "$PLACER" > /dev/null; then
      "$PLACER" export "$HERE/placement.json" --check-log "$OUT/plan.log" \
        || refuse "the server does not run the plan: measuring it would say nothing"
    fi
  fi
  measure plan
  stop
fi
if [ "$side" = baseline ] || { [ "$side" = both ] && [ -n "$BASELINE" ]; }; then
  if [ -z "$SERVER_URL" ]; then
    [ -n "$BASELINE" ] || refuse "set BASELINE to the command that you serve with today"
    start baseline bash -c "$BASELINE"
  fi
  measure baseline
  stop
fi

"$PYTHON" - "$OUT" "$PROMPTS" << 'PY'
import json
import os
import statistics
import sys

out, prompts = sys.argv[1], int(sys.argv[2])
FIGURES = {
    "output_throughput": "output tokens/s",
    "mean_tpot_ms": "TPOT mean, ms",
    "p99_tpot_ms": "TPOT p99, ms",
    "mean_ttft_ms": "TTFT mean, ms",
    "p99_ttft_ms": "TTFT p99, ms",
}
sides = {}
for side in ("plan", "baseline"):
    path = os.path.join(out, side + ".jsonl")
    if not os.path.exists(path):
        continue
    with open(path, encoding="utf-8") as file:
        runs = [json.loads(line) for line in file if line.strip()]
    nothing = [number for number, run in enumerate(runs, 1) if not run["completed"]]
    if nothing:
        print(f"benchmark.sh: no request of the {side} completed in run {nothing[0]} of {len(runs)}: the "
              "server's log says why; there is nothing to compare", file=sys.stderr)
        sys.exit(2)
    sides[side] = {
        "runs": len(runs),
        "completed": [run["completed"] for run in runs],
        "figures": {
            name: {"mean": statistics.fmean(run[name] for run in runs),
                   "stdev": statistics.stdev(run[name] for run in runs),
                   "runs": [run[name] for run in runs]}
            for name in FIGURES
        },
    }
    lost = sum(prompts - run["completed"] for run in runs)
    if lost:
        print(f"benchmark.sh: warning: {lost} requests of the {side} did not complete", file=sys.stderr)
summary = {"schema": "placer.benchmark/1", "sides": sides, "ratio": None}
if len(sides) == 2:
    summary["ratio"] = {}
    for name in FIGURES:
        plan, base = (sides[side]["figures"][name] for side in ("plan", "baseline"))
        if not (plan["mean"] > 0 and base["mean"] > 0):
            # One token an answer has no time between tokens.
            continue
        ratio = plan["mean"] / base["mean"]
        spread = ratio * sum((each["stdev"] / each["mean"]) ** 2 / len(each["runs"]) for each in (plan, base)) ** 0.5
        summary["ratio"][name] = {"plan_over_baseline": ratio, "standard_error": spread,
                                  "differs": abs(ratio - 1) > 2 * spread}
with open(os.path.join(out, "summary.json"), "w", encoding="utf-8") as file:
    json.dump(summary, file, indent=2, allow_nan=False)
    file.write("\n")
for name, label in FIGURES.items():
    cells = [f"{side} {data['figures'][name]['mean']:,.2f} ± {data['figures'][name]['stdev']:,.2f}"
             for side, data in sides.items()]
    if name in (summary["ratio"] or {}):
        found = summary["ratio"][name]
        cells.append(f"plan / baseline {found['plan_over_baseline']:.3f} ± {found['standard_error']:.3f}"
                     + ("" if found["differs"] else " (no difference beyond noise)"))
    print(f"{label:16} " + ", ".join(cells))
print(f"written to {out}")
PY
"""

RUNS = 3
_WAVES, _LEAST_PROMPTS = 8, 32


def render_benchmark(placement: PlacementDocument, *, model_path: str | None) -> str:
    """The script, with the workload that was planned for as its default."""
    load = placement.workload
    return filled(
        _SCRIPT,
        {
            "RUNTIME": RUNTIME,
            "RUNS": str(RUNS),
            "CONCURRENCY": str(load.concurrency),
            "PROMPT_TOKENS": str(load.prompt_tokens),
            "OUTPUT_TOKENS": str(load.output_tokens),
            "PROMPTS": str(max(_LEAST_PROMPTS, _WAVES * load.concurrency)),
            "MODEL_PATH": shlex.quote(model_path or ""),
        },
    )
