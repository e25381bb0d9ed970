"""The `placer` command: parse, call one function, print its result."""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from placer.answer.console import command_line, print_answer, print_line
from placer.answer.visible import visible
from placer.errors import BadInputError, InfeasibleError, PlacerError
from placer.output import checked_output
from placer.profiler.trace.formats import FORMATS, formats_help

if TYPE_CHECKING:
    from placer.profiler.trace.known_model import KnownModel

app = typer.Typer(
    name="placer",
    help="Split GPU memory between hot MoE experts and KV cache, with a proven bound.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
trace_app = typer.Typer(
    help="Routing traces: import, record, judge, compare, synthesise.", no_args_is_help=True
)
app.add_typer(trace_app, name="trace")
profile_app = typer.Typer(invoke_without_command=True)
app.add_typer(profile_app, name="profile")

Chosen = TypeVar("Chosen")
_interrupted = threading.Event()
INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""

RESOLVE = 1
"""Exit code of `trace compare` when the plan should be solved again."""

DIFFERS = 1
"""Exit code of `export --check-log` and `--check-dump` when the server does not run the plan."""

# Typer may carry its own copy of click, so click's exceptions are reached through Typer's.
_UsageError: Any = typer.BadParameter.__mro__[2]
_NoArgumentsError: Any = getattr(sys.modules[_UsageError.__module__], "NoArgsIsHelpError", ())

ModelOption = Annotated[Path, typer.Option("--model", help="Checkpoint directory (config.json is enough).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
TpOption = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")]
ProveOption = Annotated[
    bool, typer.Option("--prove", help="Go on to the time limit where the gap is still open.")
]
GpuFreeOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-free", help="Free per GPU once the process group is up, as the server logs it: 77GiB."
    ),
]
SpeculativeOption = Annotated[
    bool, typer.Option("--speculative", help="Keep room for the MTP layer, all its experts on the GPU.")
]
HostMemoryOption = Annotated[str | None, typer.Option("--host-memory", help="RAM of the server: 512GiB.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of every random draw.")]


MixOption = Annotated[
    str | None, typer.Option("--mix", help="Share of the tokens of each domain: code=0.7,chat=0.3.")
]
PrefillFromOption = Annotated[
    str, typer.Option("--prefill-from", help="decode: decode tokens stand in for missing prompts; none.")
]


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


class _Bar:
    """A progress bar on stderr with the time left; silent where stderr is not a terminal."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._progress.stop()

    def __call__(self, text: str, share: float) -> None:
        _stop_if_interrupted()
        self._progress.update(self._task, description=visible(text), completed=share)


@app.command()
def inspect(
    model: ModelOption,
    tp: TpOption = 1,
    plan: Annotated[
        int | None,
        typer.Option("--plan", min=0, help="Do so many hot experts per layer fit? Shows both ledgers."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="GPU by datasheet (placer hardware --list).")
    ] = None,
    hbm_budget: Annotated[
        str | None, typer.Option("--hbm-budget", help="Per GPU: 72GiB, 80GB, or 75% of --gpu.")
    ] = None,
    gpu_free: GpuFreeOption = None,
    kv_tokens: Annotated[int, typer.Option("--kv-tokens", min=1, help="KV pool, tokens.")] = 32768,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", help="bf16 or fp8.")] = "bf16",
    chunk: Annotated[int, typer.Option("--chunk", min=1, help="Prefill chunk, tokens.")] = 8192,
    running: Annotated[int, typer.Option("--running", min=1, help="Running requests.")] = 64,
    ep: Annotated[int, typer.Option("--ep", min=1, help="Expert-parallel size, within tp.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages of tp GPUs each.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, help="Data-parallel attention groups, within tp.")] = 1,
    speculative: SpeculativeOption = False,
    cpu_method: Annotated[
        str, typer.Option("--cpu-method", help="RAWINT4, AMXINT4, AMXINT8, LLAMAFILE or torch.")
    ] = "RAWINT4",
    numa_nodes: Annotated[int, typer.Option("--numa", min=1, help="NUMA nodes of the host.")] = 1,
    host_memory: HostMemoryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a checkpoint says of its shape and bytes; with --plan, whether a server of it fits."""
    from placer.answer.memory_plan import memory_plan_answer
    from placer.answer.model import model_answer
    from placer.datasheet import gpu_datasheet
    from placer.demand import MemoryDemand
    from placer.hbm import given_loss_bytes
    from placer.host import CPU_FORMATS
    from placer.memory_plan import memory_plan_document
    from placer.model.inspect import inspect_document
    from placer.model.spec import read_model
    from placer.parallelism import Parallelism
    from placer.units import parse_size

    spec = read_model(model)
    parallel = Parallelism(tp, ep, pp, dp)
    if spec.checkpoint_format == "fp8_block":
        parallel.check(spec)
    document = inspect_document(spec, parallel.attention_tp, expert_tp=parallel.expert_tp)
    if plan is not None:
        whole = None if gpu is None else gpu_datasheet(gpu).usable_bytes
        if whole is None and hbm_budget is None:
            raise BadInputError(
                "--plan needs to know the GPU", "add --gpu NAME (placer hardware --list) or --hbm-budget SIZE"
            )
        budget = parse_size(
            hbm_budget or "100%", whole_bytes=whole, whole_name="the GPU's memory", name="--hbm-budget"
        )
        device = budget if whole is None else whole
        cure = "lower it, or name the GPU that you mean (--gpu NAME)"
        _check_budget(budget, device, gpu or "the GPU", hbm_budget or "100%", cure)
        free = None if gpu_free is None else parse_size(gpu_free, name="--gpu-free")
        demand = MemoryDemand(
            model=spec,
            parallel=parallel,
            budget_bytes=budget,
            running=running,
            chunk_tokens=chunk,
            kv_dtype=_choice(kv_dtype, {name: name for name in ("bf16", "fp8")}, "--kv-dtype"),
            min_kv_tokens=kv_tokens,
            hot_per_layer=plan,
            speculative=speculative,
            loss_bytes=given_loss_bytes(device_bytes=device, gpu_free_bytes=free),
            device_bytes=whole,
        )
        document["plan"] = memory_plan_document(
            demand,
            device_bytes=device,
            cpu_method=_choice(cpu_method, {name: name for name in CPU_FORMATS}, "--cpu-method"),
            numa_nodes=numa_nodes,
            host_memory_bytes=None if host_memory is None else parse_size(host_memory, name="--host-memory"),
        )
    if json_output:
        _print_json(document)
    elif plan is not None:
        _show(memory_plan_answer(document["plan"], experts=spec.experts))
    else:
        _show(model_answer(document))
    if plan is not None and not document["plan"]["fits"]:
        raise typer.Exit(InfeasibleError.exit_code)


@app.command()
def hardware(
    json_output: JsonOption = False,
    list_names: Annotated[bool, typer.Option("--list", help="List the GPU names that --gpu takes.")] = False,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="Also say what share of its roofline each kernel reached."),
    ] = None,
) -> None:
    """Show this machine: CPU, caches, memory, and which kernels run here."""
    from placer.answer.hardware import hardware_answer
    from placer.datasheet import GPU_NAMES
    from placer.hardware import hardware_document
    from placer.profiler.profile import read_profile

    if list_names and json_output:
        _print_json({"gpus": list(GPU_NAMES)})
        return
    if list_names:
        sys.stdout.write("\n".join(GPU_NAMES) + "\n")
        return
    document = hardware_document(None if profile is None else read_profile(profile))
    if json_output:
        _print_json(document)
    else:
        _show(hardware_answer(document))


@trace_app.command("import", epilog=formats_help())
def trace_import(
    sources: Annotated[list[Path], typer.Argument(help="Files to import, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Trace file to write.")] = Path(
        "trace.safetensors"
    ),
    model: Annotated[
        Path | None, typer.Option("--model", help="Checkpoint directory the trace must match.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help=f"auto, {', '.join(FORMATS)}.")] = "auto",
    phase: Annotated[str, typer.Option("--phase", help="Keep one phase: all, prefill or decode.")] = "all",
    keep: Annotated[
        str, typer.Option("--keep", help="auto (what the first file holds), tokens or counts.")
    ] = "auto",
    windows: Annotated[
        int, typer.Option("--windows", min=1, help="Windows that counts of several files are kept in.")
    ] = 64,
    broken: Annotated[
        str, typer.Option("--broken", help="stop at a file that cannot be used, or skip and name it.")
    ] = "stop",
    dask: Annotated[
        str | None, typer.Option("--dask", help="Read files on this Dask cluster: tcp://host:8786.")
    ] = None,
) -> None:
    """Turn what a runtime recorded into a trace file: one file, or thousands from many servers.

    An .npz (numpy.savez) holds expert ids as topk [tokens, layers, k], with -1 for an unused slot; offsets
    [requests + 1], where request r is the tokens offsets[r] to offsets[r + 1]; and, if you like, domain [requests]
    as text. Or it holds counts [layers, experts] or [windows, layers, experts], and tokens [windows]. Both may name
    layers (indices in the checkpoint), experts and top_k, which --model also gives.
    """
    from placer.profiler.trace.fleet import ImportRequest, import_files
    from placer.profiler.trace.trace import Phase

    phases: dict[str, Phase | None] = {"all": None, "prefill": Phase.PREFILL, "decode": Phase.DECODE}
    request = ImportRequest(
        model=_known_model(model),
        format=form,
        phase=_choice(phase, phases, "--phase"),
        keep=keep,
        windows=windows,
        broken=broken,
        dask=dask,
    )
    with _Bar() as bar:
        imported = import_files(sources, output, request, bar)
    for note in imported.header.notes:
        _say(f"note: {note}")
    _say(
        f"{output}: {imported.tokens:,} tokens, {len(imported.header.layers)} MoE layers, "
        f"{imported.header.experts} experts"
        + (f", from {imported.shards:,} files" if imported.shards > 1 else "")
    )


@trace_app.command("record")
def trace_record(
    texts: Annotated[list[str] | None, typer.Argument(help="Further texts, as --text takes them.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", help="FILE or DOMAIN=FILE: text, a folder of texts, or .jsonl with a prompt per line."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="Checkpoint directory; with --server, config.json is enough."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="URL of a running SGLang or vLLM server to record from.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Trace file to write.")] = Path(
        "trace.safetensors"
    ),
    output_tokens: Annotated[
        int,
        typer.Option("--output-tokens", min=0, help="Tokens to generate per request; 0 for prompts alone."),
    ] = 64,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, help="Of generation (default: as the model says).")
    ] = None,
    seed: SeedOption = 0,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Most requests of a domain, evenly spaced.")
    ] = None,
    cut: Annotated[
        int, typer.Option("--cut", min=1, help="A text of more characters becomes several requests.")
    ] = 4096,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the recording that -o holds from an earlier run.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Requests sent to --server at a time.")
    ] = 8,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Longest wait for an answer of --server, seconds.")
    ] = 600.0,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help="Environment variable with the key of --server.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda, without --server.")] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16, without --server.")
    ] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the checkpoint's own Python code.")
    ] = False,
) -> None:
    """Record which experts each token takes: through transformers here, or from a running server."""
    from placer.profiler.trace.generation import GenerationSettings
    from placer.profiler.trace.prompt import read_prompts
    from placer.profiler.trace.record import RecordRequest, record
    from placer.profiler.trace.recording import RecordingInterrupted

    checked_output(output)
    prompts = read_prompts([*(text or []), *(texts or [])], cut_characters=cut, most_per_domain=requests)
    request = RecordRequest(
        model=model,
        server=server,
        settings=GenerationSettings(output_tokens, temperature, seed),
        resume=resume,
        concurrency=concurrency,
        timeout_s=timeout,
        api_key=_secret(api_key_env),
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    try:
        with _Bar() as bar:
            recording = record(request, prompts, output, progress=bar)
    except RecordingInterrupted as stop:
        _say(f"interrupted: {stop}")
        sys.exit(INTERRUPTED)
    for note in recording.trace().header.notes:
        _say(f"note: {note}")
    _say(recording.summary())


@trace_app.command("info")
def trace_info_command(
    trace: Annotated[Path, typer.Argument(help="Trace file.")], json_output: JsonOption = False
) -> None:
    """Say what a trace is worth: skew against the uniform null, reuse, domains."""
    from placer.answer.trace import trace_answer
    from placer.profiler.trace.file import read_trace
    from placer.profiler.trace.info import trace_info

    document = trace_info(read_trace(trace))
    if json_output:
        _print_json(document)
    else:
        _show(trace_answer(document))


@trace_app.command("compare")
def trace_compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Trace that the placement was made from.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Trace of the traffic now.")],
    placement: Annotated[Path, typer.Option("--placement", help="placement.json made from A.")],
    model: ModelOption,
    profile: Annotated[Path, typer.Option("--profile", help="Profile of `placer profile`.")],
    worth: Annotated[
        float, typer.Option("--worth", help="Saving per output token that is worth a restart, as a share.")
    ] = 0.02,
    prefill_from: PrefillFromOption = "decode",
    time_limit: Annotated[float, typer.Option("--time-limit", help="Solver seconds.")] = 30.0,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Say whether traffic has drifted so far that a plan should be solved again.

    Exit code 0: keep the plan (or record more first). 1: re-solve. Others as for every command.
    """
    from placer.answer.drift import drift_answer
    from placer.drift import Advice, compare_traces
    from placer.model.spec import read_model
    from placer.placement import read_placement
    from placer.profiler.profile import read_profile
    from placer.profiler.trace.file import read_trace

    with _Bar() as bar:
        found = compare_traces(
            read_placement(placement),
            read_model(model),
            read_profile(profile),
            read_trace(first),
            read_trace(second),
            worth=worth,
            prefill_from=_prefill_from(prefill_from),
            time_limit_s=time_limit,
            seed=seed,
            progress=bar,
        )
    _stop_if_interrupted()
    if json_output:
        _print_json(found.document())
    else:
        _show(drift_answer(found))
    if found.advice is Advice.RESOLVE:
        raise typer.Exit(RESOLVE)


@trace_app.command("synth")
def trace_synth(
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="gpt-oss-20b, qwen3-30b-a3b, olmoe, mixtral or domain-bound."),
    ] = None,
    zipf: Annotated[
        float | None,
        typer.Option("--zipf", help="Instead: experts of --model by rank to the power of minus this."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Checkpoint directory whose shape --zipf takes.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Trace file to write.")] = Path(
        "trace.safetensors"
    ),
    requests: Annotated[int, typer.Option("--requests", help="Requests.")] = 64,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Prompt tokens of each.")] = 128,
    output_tokens: Annotated[int, typer.Option("--output-tokens", help="Output tokens of each.")] = 256,
    domains: Annotated[
        int | None, typer.Option("--domains", help="Domains of a preset, dealt round-robin (4).")
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Synthesise a trace, labelled so: with the measured statistics of a known model, or by Zipf's law."""
    from placer.profiler.trace.file import write_trace
    from placer.profiler.trace.synth import synthesise
    from placer.profiler.trace.zipf import zipf_trace

    checked_output(output)
    lengths = {"requests": requests, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
    if (preset is None) == (zipf is None):
        raise BadInputError(
            "a trace is made from a preset or by Zipf's law", "give --preset or --zipf, not both"
        )
    if preset is not None:
        if model is not None:
            raise BadInputError("a preset has its own shape", "leave --model out, or use --zipf")
        trace = synthesise(preset, domains=domains, seed=seed, **lengths)
    else:
        if model is None or domains is not None:
            raise BadInputError(
                "--zipf takes the shape of a model, and has no domains", "give --model DIR alone"
            )
        trace = zipf_trace(_known_model(model), zipf or 0.0, seed=seed, **lengths)
    write_trace(trace, output)
    _say(f"{output}: {trace.tokens:,} tokens, {trace.header.source}")


@trace_app.command("bench")
def trace_bench(
    source: Annotated[
        Path | None, typer.Argument(help="Dump to time instead, of any kind that `trace import` reads.")
    ] = None,
    ids: Annotated[int, typer.Option("--ids", help="Routed ids of the largest trace.")] = 100_000_000,
    model: Annotated[
        Path | None, typer.Option("--model", help="Checkpoint directory, for dumps that do not say all.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Time import and replay of synthetic traces of growing size, or of one dump, on this machine."""
    from placer.answer.trace_bench import trace_bench_answer
    from placer.profiler.trace.bench import bench_file, bench_sizes, bench_trace

    with _Bar() as bar:
        if source is not None:
            rows = [bench_file(source, _known_model(model))]
        else:
            rows = list(bench_trace(bench_sizes(ids), progress=bar))
    _stop_if_interrupted()
    if json_output:
        _print_json({"rows": [asdict(row) for row in rows]})
    else:
        _show(trace_bench_answer(rows))


@profile_app.callback()
def profile(
    context: typer.Context,
    model: Annotated[
        Path | None, typer.Option("--model", help="Checkpoint directory (config.json is enough).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Trace whose held-out steps test the fit.")
    ] = None,
    cpu_kernel: Annotated[
        str,
        typer.Option(
            "--cpu-kernel", help="auto, kt (RAWINT4), kt-amxint4, kt-amxint8, kt-llamafile or torch."
        ),
    ] = "auto",
    gpu_kernel: Annotated[
        str | None,
        typer.Option("--gpu-kernel", help="Time this GPU: auto, sglang, vllm, deep_gemm, triton or torch."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="GPU by datasheet (placer hardware --list).")
    ] = None,
    tp: TpOption = 1,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads (default: cores - 1).")
    ] = None,
    sweep_threads: Annotated[
        bool, typer.Option("--sweep-threads", help="Try thread counts and NUMA spreads, take the best.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A rougher profile in at most 90 s.")] = False,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", help="Wall time of what is timed (default: 300; --quick: 70)."),
    ] = None,
    keep_samples: Annotated[
        Path | None,
        typer.Option("--keep-samples", help="Folder for raw samples; the same command goes on from them."),
    ] = None,
    points: Annotated[
        Path | None, typer.Option("--points", help="Also write every timed call as CSV, to plot.")
    ] = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile to write.")] = Path("profile.json"),
) -> None:
    """Time this machine's kernels at the model's shapes and fit the cost model."""
    if context.invoked_subcommand is not None:
        return
    from placer.answer.profile import profile_answer
    from placer.model.spec import read_model
    from placer.points import write_points
    from placer.profiler.profile import write_profile
    from placer.profiler.profiling import FULL_SECONDS, QUICK_SECONDS, ProfileRequest, profile_model
    from placer.profiler.trace.file import read_trace

    if model is None:
        raise BadInputError("profile needs a model", "add --model DIR (see 'placer profile --help')")
    if quick and max_seconds is not None:
        raise BadInputError("--quick and --max-seconds were both given", "give one of the two")
    spec = read_model(model)
    inputs = [] if trace is None else [trace]
    checked_output(output, inputs)
    if points is not None:
        checked_output(points, [*inputs, output], "--points")
    request = ProfileRequest(
        tp=tp,
        cpu_kernel=cpu_kernel,
        gpu_kernel=gpu_kernel,
        gpu_name=gpu,
        threads=threads,
        sweep_threads=sweep_threads,
        max_seconds=max_seconds if max_seconds is not None else QUICK_SECONDS if quick else FULL_SECONDS,
        seed=seed,
        keep_samples=keep_samples,
    )
    try:
        with _Bar() as bar:
            result = profile_model(spec, None if trace is None else read_trace(trace), request, progress=bar)
        _stop_if_interrupted()
    except KeyboardInterrupt:
        if keep_samples is not None:
            _say(f"samples so far are in {keep_samples}: the same command goes on from there")
        raise
    write_profile(result, output)
    if points is not None:
        write_points(result, points)
    if json_output:
        _print_json(result.document())
    else:
        _show(profile_answer(result))


@profile_app.command("merge")
def profile_merge(
    cpu: Annotated[Path, typer.Argument(help="Profile whose CPU is meant.")],
    gpu: Annotated[Path, typer.Argument(help="Profile whose GPU is meant.")],
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile to write.")] = Path("profile.json"),
) -> None:
    """Put the CPU's side of one profile beside the GPU's side of another."""
    from placer.answer.profile import profile_answer
    from placer.profiler.merged_profile import merge_profiles
    from placer.profiler.profile import read_profile, write_profile

    sides = {path: read_profile(path) for path in (cpu, gpu)}
    result = merge_profiles(sides[cpu], sides[gpu])
    checked_output(output, [cpu, gpu])
    write_profile(result, output)
    for path, side in sides.items():
        if side.calibration is not None:
            _say(f"note: the calibration of {path} is left out: it is of one server with both sides")
    if json_output:
        _print_json(result.document())
    else:
        _show(profile_answer(result))


@app.command()
def solve(
    model: ModelOption,
    trace: Annotated[str, typer.Option("--trace", help="Trace file, or none to plan before any exists.")],
    profile: Annotated[Path, typer.Option("--profile", help="Profile of `placer profile`.")],
    hbm_budget: Annotated[str, typer.Option("--hbm-budget", help="Per GPU: 72GiB, 80GB or 75%.")] = "100%",
    tp: TpOption = 1,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Clients.")] = 16,
    max_running: Annotated[str, typer.Option("--max-running", help="Running requests, or auto.")] = "auto",
    min_kv_tokens: Annotated[int, typer.Option("--min-kv-tokens", help="Least KV pool, tokens.")] = 0,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Mean prompt length.")] = 1024,
    output_tokens: Annotated[int, typer.Option("--output-tokens", help="Mean output length.")] = 512,
    slo_tpot: Annotated[float | None, typer.Option("--slo-tpot", help="p95 target, ms.")] = None,
    slo_ttft: Annotated[float | None, typer.Option("--slo-ttft", help="p95 target, ms.")] = None,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", help="bf16, fp8 or auto.")] = "bf16",
    solver: Annotated[str, typer.Option("--solver", help="auto, highs or cbc.")] = "auto",
    gap: Annotated[float, typer.Option("--gap", help="Relative gap to stop at.")] = 0.005,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Solver seconds per level (30; 120 with --prove).")
    ] = None,
    prove: ProveOption = False,
    prefill_from: PrefillFromOption = "decode",
    chunk: Annotated[str, typer.Option("--chunk", help="Prefill chunk, tokens, or auto.")] = "auto",
    min_hot: Annotated[
        int, typer.Option("--min-hot", min=0, help="Hot experts per layer to leave room for, at least.")
    ] = 0,
    gpu_free: GpuFreeOption = None,
    speculative: SpeculativeOption = False,
    host_memory: HostMemoryOption = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="CPU threads of the server (default: the profile's)."),
    ] = None,
    cpu_method: Annotated[
        str | None, typer.Option("--cpu-method", help="CPU method of the server (default: the profile's).")
    ] = None,
    force_profile: Annotated[
        bool,
        typer.Option(
            "--force-profile",
            help="Take a profile of other shapes, tp or threads, or of large error, all the same.",
        ),
    ] = False,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
    pin: Annotated[
        list[str] | None, typer.Option("--pin", help="LAYER=all or LAYER=none: fix a layer; repeatable.")
    ] = None,
    min_hot_per_layer: Annotated[
        int, typer.Option("--min-hot-per-layer", help="Hot experts that every layer must have.")
    ] = 0,
    max_hot_per_layer: Annotated[
        int | None, typer.Option("--max-hot-per-layer", help="Hot experts that no layer may exceed.")
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show the best plan for every number of running requests.")
    ] = False,
    write_lp: Annotated[
        Path | None, typer.Option("--write-lp", help="Write the chosen level as an integer program (LP).")
    ] = None,
    mix: MixOption = None,
    robust: Annotated[
        str | None,
        typer.Option(
            "--robust", help="Plan for the worst domain: by its time, or by regret (over its own plan)."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Placement to write.")] = Path(
        "placement.json"
    ),
) -> None:
    """Decide hot experts and KV together, with a proven gap."""
    from placer.answer.placement import placement_answer
    from placer.hbm import given_loss_bytes
    from placer.model.spec import read_model
    from placer.placement import write_placement
    from placer.planning import plan
    from placer.profiler.profile import ProfileUse, read_profile
    from placer.profiler.trace.file import read_trace
    from placer.profiler.trace.mix import parse_mix
    from placer.robust import Criterion
    from placer.solve import SolveRequest
    from placer.units import parse_size
    from placer.workload import Workload

    spec = read_model(model)
    measured = read_profile(profile)
    budget = parse_size(hbm_budget, whole_bytes=measured.gpu.usable_bytes, name="--hbm-budget")
    cure = "lower it, or profile for the GPU that you mean ('placer profile --gpu NAME')"
    _check_budget(budget, measured.gpu.usable_bytes, measured.gpu.name, hbm_budget, cure)
    free = None if gpu_free is None else parse_size(gpu_free, name="--gpu-free")
    checked_output(output, [Path(trace), profile])
    if write_lp is not None:
        checked_output(write_lp, [Path(trace), profile, output], "--write-lp")
    request = SolveRequest(
        workload=Workload(prompt_tokens, output_tokens, concurrency, slo_tpot, slo_ttft),
        budget_bytes=budget,
        tp=tp,
        max_running=_count_or_auto(max_running, "--max-running"),
        min_kv_tokens=min_kv_tokens,
        kv_dtypes=_choice(
            kv_dtype, {"bf16": ("bf16",), "fp8": ("fp8",), "auto": ("bf16", "fp8")}, "--kv-dtype"
        ),
        solver=_choice(solver, {name: name for name in ("auto", "highs", "cbc")}, "--solver"),
        gap=gap,
        time_limit_s=_seconds(time_limit, prove),
        prove=prove,
        seed=seed,
        prefill_from=_prefill_from(prefill_from),
        chunk_tokens=_count_or_auto(chunk, "--chunk"),
        min_hot_per_layer=min_hot,
        speculative=speculative,
        loss_bytes=given_loss_bytes(device_bytes=measured.gpu.usable_bytes, gpu_free_bytes=free),
        device_bytes=measured.gpu.usable_bytes,
        pins=_pins(pin or []),
        least_hot=min_hot_per_layer,
        most_hot=max_hot_per_layer,
        frontier=frontier,
        lp_path=write_lp,
        mix={} if mix is None else parse_mix(mix),
        robust=None
        if robust is None
        else _choice(robust, {each.value: each for each in Criterion}, "--robust"),
    )
    memory = None if host_memory is None else parse_size(host_memory, name="--host-memory")
    with _Bar() as bar:
        document = plan(
            spec,
            None if trace == "none" else read_trace(Path(trace)),
            measured,
            request,
            host_memory_bytes=memory,
            use=ProfileUse(threads, cpu_method, force_profile),
            progress=bar,
        )
    _stop_if_interrupted()
    write_placement(document, output)
    if json_output:
        _print_json(json.loads(output.read_text(encoding="utf-8")))
    else:
        _show(placement_answer(document, str(output)))


@app.command()
def evaluate(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    model: ModelOption,
    trace: Annotated[Path, typer.Option("--trace", help="Trace file.")],
    profile: Annotated[Path, typer.Option("--profile", help="Profile.")],
    mix: MixOption = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Compare a placement with the runtime's own strategies on any trace."""
    from placer.answer.evaluation import evaluation_answer
    from placer.evaluate import evaluate as evaluate_placement
    from placer.model.spec import read_model
    from placer.placement import read_placement
    from placer.profiler.profile import read_profile
    from placer.profiler.trace.file import read_trace
    from placer.profiler.trace.mix import parse_mix

    result = evaluate_placement(
        read_placement(placement),
        read_model(model),
        read_trace(trace),
        read_profile(profile),
        mix={} if mix is None else parse_mix(mix),
        seed=seed,
    )
    if json_output:
        _print_json(result.document())
    else:
        _show(evaluation_answer(result))


@app.command()
def verify(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    model: ModelOption,
    trace: Annotated[Path, typer.Option("--trace", help="Trace file.")],
    profile: Annotated[Path, typer.Option("--profile", help="Profile of this machine.")],
    layer_steps: Annotated[
        int | None,
        typer.Option("--layer-steps", help="Layer-steps to run, as far as the time allows (default: 200)."),
    ] = None,
    running: Annotated[
        str | None,
        typer.Option(
            "--running",
            help="Running requests of decode steps: 8 or 4,16,64, none, or auto (the placement's, and fewer "
            "where those use the kernel's other algorithm; default).",
        ),
    ] = None,
    prefill: Annotated[
        str | None,
        typer.Option(
            "--prefill", help="Tokens of prefill chunks: 512 or 128,512, none, or auto (up to 256; default)."
        ),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", help="Wall time of the run (default: 120).")
    ] = None,
    kt_log: Annotated[
        Path | None,
        typer.Option(
            "--kt-log", help="Compare with this log of a server with SGLANG_KT_HYBRID_TIMING instead."
        ),
    ] = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Run a placement's layers with the real kernels and compare with what was predicted.

    With --kt-log nothing is run: the layers that sglang-kt timed itself are compared.
    """
    if kt_log is not None:
        of_a_run = {"--layer-steps": layer_steps, "--running": running, "--prefill": prefill}
        for flag, value in {**of_a_run, "--max-seconds": max_seconds}.items():
            if value is not None:
                raise BadInputError(
                    f"--kt-log and {flag} were both given: a log is compared whole, nothing is run",
                    "give one of the two",
                )
        _verify_runtime(placement, model, trace, profile, kt_log, seed=seed, json_output=json_output)
        return
    from placer.answer.joined_verification import joined_answer
    from placer.answer.verification import verification_answer
    from placer.joined_verification import verify_joined
    from placer.model.spec import read_model
    from placer.placement import read_placement
    from placer.profiler.profile import read_profile
    from placer.profiler.trace.file import read_trace
    from placer.verification import VerifyRequest
    from placer.verification import verify as verify_placement

    request = VerifyRequest(
        layer_steps=200 if layer_steps is None else layer_steps,
        running=_numbers("--running", running or "auto"),
        prefill_tokens=_numbers("--prefill", prefill or "auto"),
        max_seconds=120.0 if max_seconds is None else max_seconds,
        seed=seed,
    )
    spec = read_model(model)
    inputs = (read_placement(placement), spec, read_trace(trace), read_profile(profile))
    with _Bar() as bar:
        result = verify_placement(*inputs, request, progress=bar)
        joined = verify_joined(
            *inputs,
            layer_steps=request.layer_steps,
            max_seconds=request.max_seconds,
            seed=seed,
            progress=bar,
        )
    _stop_if_interrupted()
    if json_output:
        _print_json({**result.document(), "hot_side": joined.document()})
    else:
        _show(verification_answer(result))
        _show(joined_answer(joined))


def _verify_runtime(
    placement: Path, model: Path, trace: Path, profile: Path, kt_log: Path, *, seed: int, json_output: bool
) -> None:
    """`placer verify --kt-log`."""
    from placer.answer.runtime_verification import runtime_verification_answer
    from placer.model.spec import read_model
    from placer.placement import read_placement
    from placer.profiler.kt_timing_log import read_kt_timing_log
    from placer.profiler.profile import read_profile
    from placer.profiler.trace.file import read_trace
    from placer.runtime_verification import verify_runtime

    result = verify_runtime(
        read_placement(placement),
        read_model(model),
        read_trace(trace),
        read_profile(profile),
        read_kt_timing_log(kt_log),
        seed=seed,
    )
    if json_output:
        _print_json(result.document())
    else:
        _show(runtime_verification_answer(result))


@app.command()
def calibrate(
    profile: Annotated[Path, typer.Option("--profile", help="Profile to calibrate.")],
    benchmark: Annotated[
        list[Path] | None,
        typer.Option(
            "--benchmark",
            help="What sglang.bench_serving --output-file or vllm bench serve --save-result wrote; repeatable.",
        ),
    ] = None,
    kt_log: Annotated[
        Path | None, typer.Option("--kt-log", help="Log of a server with SGLANG_KT_HYBRID_TIMING.")
    ] = None,
    placement: Annotated[
        Path | None, typer.Option("--placement", help="The placement that the server ran; needed.")
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", help="Checkpoint directory; needed.")] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", help="Trace of the traffic, or none for uniform routing; needed."),
    ] = None,
    factors: Annotated[
        str, typer.Option("--factors", help="May be fitted: auto, or some of cold,hot,base,transfer,step_us.")
    ] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Take a server that does not match the placement all the same.")
    ] = False,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile to write.")] = Path("profile.json"),
) -> None:
    """Compare predictions with what a running server measured, and put named factors on the profile.

    A step's time depends on which experts are hot and on the routing, so --placement, --model and --trace are
    needed beside the measurements. The kernels' measurements in the profile stay as they are.
    """
    from placer.answer.calibration import calibration_answer
    from placer.calibrate import CalibrateRequest
    from placer.calibrate import calibrate as calibrate_profile
    from placer.model.spec import read_model
    from placer.placement import read_placement
    from placer.profiler.benchmark_file import read_benchmark_file
    from placer.profiler.factor import FactorName
    from placer.profiler.kt_timing_log import read_kt_timing_log
    from placer.profiler.profile import read_profile, write_profile
    from placer.profiler.trace.file import read_trace

    measured = read_profile(profile)
    files = [read_benchmark_file(path) for path in benchmark or []]
    log = None if kt_log is None else read_kt_timing_log(kt_log)
    if placement is None or model is None or trace is None:
        given = {"--placement placement.json": placement, "--model DIR": model, "--trace TRACE": trace}
        missing = [flag for flag, value in given.items() if value is None]
        raise BadInputError(
            "a server's TPOT, TTFT and throughput depend on which experts were hot and on the routing, which are not "
            "known",
            f"add {' '.join(missing)}",
        )
    known = {name.value: name for name in FactorName}
    names = (
        None if factors == "auto" else tuple(_choice(name, known, "--factors") for name in factors.split(","))
    )
    inputs = [placement, *(benchmark or []), *([kt_log] if kt_log else [])]
    checked_output(output, [*inputs, Path(trace)])
    result = calibrate_profile(
        measured,
        read_placement(placement),
        read_model(model),
        None if trace == "none" else read_trace(Path(trace)),
        files,
        log,
        CalibrateRequest(names, force, seed),
    )
    write_profile(result.profile, output)
    if json_output:
        _print_json(result.document())
    else:
        _show(calibration_answer(result, str(output)))


@app.command()
def explain(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    layer: Annotated[int, typer.Option("--layer", help="Index of the layer in the checkpoint.")],
    expert: Annotated[int | None, typer.Option("--expert", help="One expert of it.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Say why experts are hot or cold: value, rank, and what moving one would cost."""
    from placer.answer.explanation import explanation_answer
    from placer.explanation import explain as explain_placement
    from placer.placement import read_placement

    result = explain_placement(read_placement(placement), layer, expert)
    if json_output:
        _print_json(result.document())
    else:
        _show(explanation_answer(result))


@app.command()
def export(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write.")] = None,
    runtime: Annotated[
        str, typer.Option("--runtime", help="sglang-kt, vllm, vllm-plugin or llama.cpp.")
    ] = "sglang-kt",
    model_path: Annotated[
        str | None,
        typer.Option(
            "--model-path",
            help="Checkpoint on the server: block-FP8 for sglang-kt, a GGUF file for llama.cpp.",
        ),
    ] = None,
    kt_weight_path: Annotated[
        str | None, typer.Option("--kt-weight-path", help="INT4 expert weights on the server.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Start the server with the recorder on.")] = False,
    check_log: Annotated[
        Path | None, typer.Option("--check-log", help="Server log: does it run the plan? Writes nothing.")
    ] = None,
    check_dump: Annotated[
        Path | None,
        typer.Option("--check-dump", help="gpu_expert_distribution_*.pt: is the mask the plan's, exactly?"),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write exactly what the serving runtime consumes, read back through its own selection rule.

    With --check-log or --check-dump: compare what a server runs with the plan. Exit code 1: it differs.
    """
    from placer.answer.applied import applied_answer
    from placer.export.runtimes import check_applied, export_placement

    if check_log is not None or check_dump is not None:
        if output is not None:
            raise BadInputError("-o and a check were both given", "export and check one after the other")
        checks = check_applied(placement, runtime=runtime, log=check_log, dump=check_dump)
        same = all(check.same for check in checks)
        if json_output:
            _print_json({"same": same, "checks": [check.document() for check in checks]})
        else:
            for check in checks:
                _show(applied_answer(check))
        if not same:
            raise typer.Exit(DIFFERS)
        return
    if output is None:
        raise BadInputError("export needs a folder to write", "add -o DIR")
    result = export_placement(
        placement,
        output,
        runtime=runtime,
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        record=record,
    )
    if json_output:
        _print_json(result.document())
        return
    for note in result.notes:
        _say(f"note: {note}")
    _say(f"{output}: {', '.join(result.files)}")
    _show(command_line("launch:", result.launch_line))


@app.command()
def preflight(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    runtime: Annotated[str, typer.Option("--runtime", help="sglang-kt")] = "sglang-kt",
    model_path: Annotated[str | None, typer.Option("--model-path", help="Block-FP8 checkpoint.")] = None,
    kt_weight_path: Annotated[
        str | None, typer.Option("--kt-weight-path", help="All experts for the CPU method.")
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="The interpreter that starts the server.")
    ] = "python",
    json_output: JsonOption = False,
) -> None:
    """Is this machine ready to start the server that a placement plans?

    Exit code 0: nothing failed (warnings and unknowns are named). 3: it does not fit. 4: a component is missing.
    """
    from placer.answer.preflight import preflight_answer
    from placer.preflight.preflight import preflight as check_machine

    with _Bar() as bar:
        result = check_machine(
            placement,
            runtime=runtime,
            model_path=model_path,
            kt_weight_path=kt_weight_path,
            python=python,
            progress=bar,
        )
    _stop_if_interrupted()
    if json_output:
        _print_json(result.document())
    else:
        _show(preflight_answer(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


@app.command()
def bench(
    instances: Annotated[
        list[Path] | None,
        typer.Argument(help="Solver instances (.npz); without any, one generated for each family."),
    ] = None,
    family: Annotated[
        str, typer.Option("--family", help="Generate these, separated by commas: balanced,multi-level")
    ] = "",
    size: Annotated[
        str | None, typer.Option("--size", help="LAYERSxEXPERTSxSTEPS of generated ones: 92x896x32.")
    ] = None,
    seed: SeedOption = 0,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the generated instances to a folder; solve none.")
    ] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Fit how time grows with layers, experts and steps.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds per solver and instance (30; 120 with --prove)."),
    ] = None,
    prove: ProveOption = False,
    clock: Annotated[
        str, typer.Option("--clock", help="What limits rivals: wall, or cpu (their own CPU time).")
    ] = "wall",
    rivals: Annotated[str, typer.Option("--rivals", help="highs,cbc")] = "",
    gap: Annotated[
        float | None,
        typer.Option("--gap", help="Relative gap to stop at; 0 unless given, 0.005 with --growth."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the rows as CSV.")] = None,
    milestones: Annotated[
        Path | None,
        typer.Option("--milestones", help="Write as CSV what the rivals held after 5, 10, 30 ... seconds."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Solve instances and print objective, bound and gap; with rivals, who is ahead at equal time."""
    from placer.answer.bench import bench_answer, write_csv
    from placer.answer.growth import growth_answer
    from placer.solvers.bench.bench import bench as run_bench
    from placer.solvers.bench.growth import FAMILIES
    from placer.solvers.bench.growth import growth as run_growth
    from placer.solvers.bench.instance_file import write_instances
    from placer.solvers.bench.selection import selected
    from placer.solvers.bench.solver_run import Limits

    for flag, output in (("--csv", csv), ("--milestones", milestones)):
        if output is not None:
            checked_output(output, instances or [], flag)
    names = [name for name in rivals.split(",") if name]
    for name in names:
        _choice(name, {"highs": None, "cbc": None}, "--rivals")
    if milestones is not None and not names:
        raise BadInputError("--milestones are those of rivals", "add --rivals highs,cbc")
    on_cpu = _choice(clock, {"wall": False, "cpu": True}, "--clock")
    seconds = _seconds(time_limit, prove)
    if growth:
        for flag, given in (
            ("instance files", instances),
            ("--size", size),
            ("--write", write),
            ("--rivals", names),
            ("--milestones", milestones),
        ):
            if given:
                raise BadInputError(
                    f"--growth solves a sweep of sizes of its own with the structured solver: {flag} cannot be used",
                    f"leave out {flag} or --growth",
                )
        limits = Limits(seconds, gap=0.005 if gap is None else gap, cpu=on_cpu, prove=prove)
        with _Bar() as bar:
            grown = run_growth(
                limits,
                families=[name for name in family.split(",") if name] or FAMILIES,
                seed=seed,
                progress=bar,
            )
        if not any(one.points for one in grown):
            raise KeyboardInterrupt
        if csv is not None:
            write_csv([point for one in grown for point in one.points], csv)
        if json_output:
            _print_json({"growth": [asdict(one) for one in grown]})
        else:
            _show(growth_answer(grown))
        if any(one.interrupted for one in grown):
            _end_interrupted(f"interrupted after {sum(len(one.points) for one in grown)} solves")
        return
    with _Bar() as bar:
        chosen = selected(
            instances or [],
            families=[name for name in family.split(",") if name],
            size=size,
            seed=seed,
            progress=bar,
        )
    if write is not None:
        for path in write_instances(chosen, write):
            _say(f"{path}")
        return
    with _Bar() as bar:
        limits = Limits(seconds, gap=gap or 0.0, cpu=on_cpu, prove=prove)
        report = run_bench(chosen, limits, rivals=names, progress=bar)
    if not report.rows:
        raise KeyboardInterrupt
    if csv is not None:
        write_csv(report.rows, csv)
    if milestones is not None:
        write_csv(report.milestones, milestones, "--milestones")
    if json_output:
        _print_json(
            {
                "rows": [asdict(row) for row in report.rows],
                "comparison": [asdict(row) for row in report.comparison],
            }
        )
    else:
        _show(bench_answer(report))
    if report.interrupted:
        done = len({row.name for row in report.rows})
        _end_interrupted(f"interrupted after {done} of {len(chosen)} instances")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for everything it writes.")] = Path(
        "placer-demo"
    ),
) -> None:
    """Run the whole job on the bundled example."""
    from placer.demo import run_demo

    with _Bar() as bar:
        result = run_demo(output, progress=bar)
    for answer in result.answers:
        _show(answer)


@app.command()
def version() -> None:
    """Print the version."""
    from placer import __version__

    sys.stdout.write(f"placer {__version__}\n")


def _show(answer: Any) -> None:
    print_answer(answer)


def _say(text: str, indent: str = "  ") -> None:
    """One message on stderr, wrapped between its words; what the user typed stays whole."""
    print_line(text, indent=indent, whole=sys.argv[1:])


def _fail(error: PlacerError) -> None:
    _say(f"error: {error.what}")
    if error.hint:
        _say(f"  do: {error.hint}", indent="    ")


def _check_nothing_empty(arguments: list[str]) -> None:
    """Refuse empty values, which a shell makes of an unset variable and a path takes for this folder."""
    for before, argument in pairwise(["", *arguments]):
        assigned = argument.startswith("--") and argument.endswith("=")
        if assigned or not argument:
            flag = argument[:-1] if assigned else before if before.startswith("-") else "an argument"
            raise BadInputError(f"{flag} is empty", "give a value; a shell variable may not be set")


def _secret(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise BadInputError(
            f"--api-key-env {variable}: no such environment variable", "set it, or name another"
        )
    return os.environ[variable]


def _known_model(model: Path | None) -> "KnownModel":
    """What a trace must belong to: all of it from the checkpoint, nothing without one."""
    from placer.model.spec import read_model
    from placer.profiler.trace.known_model import KnownModel

    if model is None:
        return KnownModel()
    spec = read_model(model)
    return KnownModel(spec.name, spec.moe_layers, spec.num_layers, spec.experts, spec.top_k)


def _count_or_auto(text: str, flag: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise BadInputError(f"{flag} {text!r} is not a number", "give a whole number or auto") from None


def _numbers(flag: str, text: str) -> tuple[int, ...] | None:
    """None for "auto", nothing for "none", else numbers between commas."""
    if text in ("auto", "none"):
        return None if text == "auto" else ()
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise BadInputError(f"{flag} is {text!r}", "give numbers between commas, auto or none") from None


def _seconds(time_limit: float | None, prove: bool) -> float:
    """Solver seconds: as given, otherwise 30, or 120 to prove."""
    return time_limit if time_limit is not None else 120.0 if prove else 30.0


def _pins(texts: list[str]) -> dict[int, bool]:
    """Layers by ``LAYER=all`` or ``LAYER=none``: whether all of a layer's experts are hot."""
    pins: dict[int, bool] = {}
    for text in texts:
        layer, separator, place = text.partition("=")
        if not separator or not layer.isdecimal() or place not in ("all", "none"):
            raise BadInputError(f"--pin {text!r} is not LAYER=all or LAYER=none", "for example: --pin 3=all")
        if pins.setdefault(int(layer), place == "all") != (place == "all"):
            raise BadInputError(f"--pin gives layer {layer} both all and none", "give one of the two")
    return pins


def _check_budget(budget_bytes: int, device_bytes: int, gpu_name: str, given: str, cure: str) -> None:
    if budget_bytes > device_bytes:
        raise BadInputError(
            f"--hbm-budget {given} is more than the {device_bytes / 2**30:,.2f} GiB that a process can use of "
            f"{gpu_name}",
            cure,
        )


def _choice(text: str, choices: dict[str, Chosen], flag: str) -> Chosen:
    if text not in choices:
        raise BadInputError(f"{flag} {text!r} is not known", f"use one of: {', '.join(choices)}")
    return choices[text]


def _prefill_from(text: str) -> str:
    return _choice(text, {name: name for name in ("decode", "none")}, "--prefill-from")


def _interrupt(_number: int, _frame: object) -> None:
    """End as on Ctrl-C, so that worker processes end too."""
    _interrupted.set()
    raise KeyboardInterrupt


def _end_interrupted(said: str) -> NoReturn:
    """Leave with the exit code of an interrupted command whose finished part was printed."""
    sys.stdout.flush()
    _say(said)
    # Typer's own Exit with this code would be told from Ctrl-C no more.
    sys.exit(INTERRUPTED)


def _stop_if_interrupted() -> None:
    """Raise again what a native library's callback may have swallowed."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def main() -> None:
    """Run the command line; exit codes: 0 done, 2 bad input, 3 infeasible, 4 missing component, 130 interrupted."""
    _interrupted.clear()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup a command outlives its terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    # Python leaves a closed standard stream as None.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        _check_nothing_empty(sys.argv[1:])
        code = app(prog_name="placer", standalone_mode=False)
        if code == INTERRUPTED:
            # Typer turns Ctrl-C into this code by itself.
            raise KeyboardInterrupt
        # A full or closed stdout shows only when it is flushed.
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except MemoryError:
        _say("error: there is not enough memory for this")
        _say("  do: ask for less (fewer requests, tokens or windows), or use a machine with more memory")
        sys.exit(2)
    except OSError as error:
        # Whatever the operating system refuses: names too long, a full stdout, a vanished folder.
        _say(
            f"error: {error.strerror or error}" + (f": {str(error.filename)[:80]}" if error.filename else "")
        )
        _say("  do: check the paths and the free space", indent="    ")
        # What could not be written must not be tried again while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except _UsageError as error:
        path = error.ctx.command_path if getattr(error, "ctx", None) else "placer"
        if isinstance(error, _NoArgumentsError):
            sys.stderr.write(error.format_message() + "\n")
        else:
            _fail(BadInputError(error.format_message(), f"see '{path} --help'"))
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted: no result was written")
        sys.exit(INTERRUPTED)
    except PlacerError as error:
        _fail(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
