"""README.md of an sglang-kt export: what the files are, what each flag does, how to check the server."""

from collections.abc import Sequence

from placer.exports.flag import Flag
from placer.exports.kt_flags import COUNTS_FILE, left_unset
from placer.exports.kt_selection import RUNTIME, KtLayout
from placer.exports.readme import flag_table, one_line
from placer.hbm import HbmLedger, free_memory_share
from placer.placement import PlacementDocument
from placer.units import counted, gib

_WEIGHTS = {
    "RAWINT4": "a checkpoint in compressed-tensors INT4 (symmetric, two values a byte)",
    "AMXINT4": "experts converted with kt-kernel's convert_cpu_weights.py",
    "AMXINT8": "experts converted with kt-kernel's convert_cpu_weights.py",
    "LLAMAFILE": "a GGUF file or a folder of GGUF files",
}


def render_readme(
    placement: PlacementDocument,
    layout: KtLayout,
    flags: Sequence[Flag],
    notes: Sequence[str],
    *,
    recordable: bool,
    record: bool,
) -> str:
    """The README as Markdown."""
    model, kt = placement.model, placement.kt
    subpools = 1 if kt is None else kt.subpools
    hot = {layer: len(placement.hot.get(str(layer), ())) for layer in model.layers}
    parts = [
        f"# {one_line(model.name)} on {RUNTIME}",
        "",
        f"{placement.hot_total:,} of {placement.total_experts:,} experts on the GPU and "
        f"{placement.kv.tokens:,} KV tokens ({placement.kv.dtype}), within "
        f"{gib(placement.hbm.budget_bytes_per_gpu)} of memory on each of {counted(placement.tp, 'GPU')}. Checked "
        f"against {RUNTIME}: its selection rule, applied to these files, gives exactly the plan.",
        "",
        "## Start",
        "",
        "    MODEL_PATH=/path/to/fp8-checkpoint KT_WEIGHT_PATH=/path/to/cpu-experts ./preflight.sh",
        "    MODEL_PATH=/path/to/fp8-checkpoint KT_WEIGHT_PATH=/path/to/cpu-experts ./launch.sh 2>&1 | tee server.log",
        "",
        "preflight.sh says whether this machine is ready: memory, disk, weights, cores, GPUs, versions. "
        f"`MODEL_PATH` is a block-FP8 checkpoint directory. `KT_WEIGHT_PATH` holds all experts for "
        f"{placement.cpu_method}: {_WEIGHTS[placement.cpu_method]}.",
        *_sharding(placement.cpu_method, subpools),
        *_by_datasheet(placement),
        f"Host memory needed: {gib(sum(placement.host.ledger.values()))}; the runtime keeps every expert "
        "there, hot ones too. Further flags of `sglang.launch_server` (host, port, trust-remote-code, …) go "
        "behind `./launch.sh`; a flag given there wins over config.yaml.",
        *(_recording(record=record) if recordable else ()),
        *_measuring(),
        "",
        "## Check",
        "",
        "`placer export placement.json --check-log server.log` compares the server's log with the plan (exit code 1: "
        "it differs). By hand: the log must say, for every MoE layer N, `KT GPU experts: layer N (MoE) has M GPU "
        f"experts`, {sum(hot.values()):,} in all. Without such lines KT is off and every expert is loaded to the GPU. "
        "N and M:",
        "",
        *_counts_table(hot),
        "",
        f"It must also say `max_total_num_tokens={placement.kv.tokens}` and "
        f"`max_running_requests={placement.kv.max_running_requests}`. Smaller numbers mean that less memory was "
        f"free than planned: {_cure(placement)}.",
        "",
        "## Files",
        "",
        "| file | what |",
        "|---|---|",
        f"| `{COUNTS_FILE}` | every expert's rank as `logical_count` [1, {layout.num_layers}, "
        f"{layout.experts}]; dense layers -1 |",
        "| `config.yaml` | the flags below, for `python -m sglang.launch_server --config` |",
        "| `placement.json` | the plan itself, for the checks |",
        "| `preflight.sh` | is this machine ready? |",
        "| `launch.sh` | checks files, checkpoint and runtime, then starts the server |",
        *(
            ("| `record.sh` | the same launch with the expert recorder on; starts, stops and dumps it |",)
            if recordable
            else ()
        ),
        "| `benchmark.sh` | measures the plan, and the flags that you serve with today |",
        "",
        "Ranks are distinct: after an out-of-memory error a lower `--kt-gpu-experts-ratio` keeps the same "
        "share of every layer's hot experts, hottest first, without a new file"
        + (", and pinned layers stay as they are" if placement.pinned else "")
        + (", and the limits of every layer hold." if placement.hot_per_layer else "."),
        "",
        "## Flags",
        "",
        *flag_table(flag for flag in flags if flag.name not in _PATHS),
        "",
        "Left unset, and to be left so:",
        "",
        *(f"- `--{name}`: {why}" for name, why in left_unset(placement).items()),
        "- `kt run` sets several of these; start with launch.sh instead",
    ]
    if notes:
        parts += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(parts) + "\n"


def _cure(placement: PlacementDocument) -> str:
    """What to do when the pool came out too small; a larger fraction costs nothing, as the tokens are capped."""
    if placement.hbm.device_bytes is None or not placement.hbm.is_complete:
        return "raise `--mem-fraction-static`, or solve again with a smaller budget"
    _, most = free_memory_share(
        HbmLedger(placement.hbm.budget_bytes_per_gpu, placement.hbm.ledger),
        device_bytes=placement.hbm.device_bytes,
    )
    at_most = int(most * 1000) / 1000
    if placement.mem_fraction_static is not None and at_most <= placement.mem_fraction_static:
        return "solve again with a smaller budget, as `--mem-fraction-static` is already as large as the plan allows"
    return f"raise `--mem-fraction-static`, to {at_most:g} at most, or solve again with a smaller budget"


_PATHS = ("model-path", "kt-weight-path")


def _by_datasheet(placement: PlacementDocument) -> tuple[str, ...]:
    name = placement.datasheet_cpu
    if name is None:
        return ()
    threads = (
        ""
        if placement.kt is None
        else f", {placement.kt.threads} threads being one less than its cores unless said otherwise"
    )
    return (
        f"The CPU's side was planned from the datasheet of {name}, nothing was timed{threads}. On the server run "
        "`placer profile` and solve again before you rely on the figures.",
    )


def _sharding(cpu_method: str, subpools: int) -> tuple[str, ...]:
    if not cpu_method.startswith("AMX"):
        return ()
    return (
        f"These files are cut by CPU pool (tensor names hold `.numa.N.`): convert them for "
        f"{counted(subpools, 'pool')}, as `--kt-threadpool-count` says.",
    )


def _recording(*, record: bool) -> tuple[str, ...]:
    return (
        "",
        "## Record",
        "",
        "    ./record.sh launch        # what launch.sh starts, with the recorder on",
        "    ./record.sh start",
        "    # send the traffic to plan for",
        "    ./record.sh dump",
        "",
        "The dumps in `records/` become a trace with `placer trace import`, and `placer export placement.json "
        "--check-dump records/gpu_expert_distribution_*.pt` compares the hot experts one by one. Recording costs "
        "speed and some GPU memory: measure without it. `./launch.sh --enable-return-routed-experts` also lets "
        "requests ask for their own "
        "experts, in text order and for any top-k.",
        *(
            (
                "",
                "This export records: `./launch.sh` starts the recorder too. `RECORD=0 ./launch.sh` starts "
                "without it, and `./benchmark.sh` always does.",
            )
            if record
            else ()
        ),
    )


def _measuring() -> tuple[str, ...]:
    return (
        "",
        "## Measure",
        "",
        "    BASELINE='the command you serve with today' DATASET=prompts.jsonl ./benchmark.sh",
        "",
        "The same client sends the same requests to both, three runs each; its JSON lines are what `placer calibrate "
        "--benchmark` reads. Without `DATASET` the prompts are random token ids, which route unlike text.",
    )


def _counts_table(hot: dict[int, int]) -> list[str]:
    """Hot experts per layer, eight layers a row."""
    cells = [f"{layer}: {count}" for layer, count in hot.items()]
    rows = [cells[start : start + 8] for start in range(0, len(cells), 8)]
    return ["    " + "  ".join(f"{cell:>9}" for cell in row) for row in rows]
