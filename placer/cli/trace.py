"""`placer trace`: import, record, info, compare, synth, bench."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import trace_app
from placer.cli.argument import secret
from placer.cli.completion import trace_presets
from placer.cli.interruption import INTERRUPTED, stop_if_interrupted
from placer.cli.option import JsonOption, ModelOption, PrefillFromOption, SeedOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import add, print_json, say, show
from placer.profiler.trace.formats import FORMATS, formats_help

RESOLVE = 1
"""Exit code of `trace compare` when the plan should be solved again."""


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
    from placer.api.trace_import import trace_import as import_trace

    with ProgressBar() as bar:
        imported = import_trace(
            sources,
            output=output,
            model=model,
            format=form,
            phase=phase,
            keep=keep,
            windows=windows,
            broken=broken,
            dask=dask,
            progress=bar,
        )
    _add_notes(imported.header.notes)
    say(
        f"{output}: {imported.tokens:,} tokens, {len(imported.header.layers)} MoE layers, "
        f"{imported.header.experts} experts"
        + (f", from {imported.shards:,} files" if imported.shards > 1 else "")
    )


def _add_notes(notes: Sequence[str]) -> None:
    for note in notes:
        add(note if note.startswith("warning: ") else f"note: {note}")


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
    from placer.api.trace_record import trace_record as record_trace
    from placer.profiler.trace.recording import RecordingInterrupted

    try:
        with ProgressBar() as bar:
            recording = record_trace(
                [*(text or []), *(texts or [])],
                output=output,
                model=model,
                server=server,
                output_tokens=output_tokens,
                temperature=temperature,
                seed=seed,
                requests=requests,
                cut=cut,
                resume=resume,
                concurrency=concurrency,
                timeout=timeout,
                api_key=secret(api_key_env),
                device=device,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                progress=bar,
            )
    except RecordingInterrupted as stop:
        say(f"interrupted: {stop}")
        sys.exit(INTERRUPTED)
    _add_notes(recording.trace().header.notes)
    say(recording.summary())


@trace_app.command("info")
def trace_info_command(
    trace: Annotated[Path, typer.Argument(help="Trace file.")], json_output: JsonOption = False
) -> None:
    """Say what a trace is worth: skew against the uniform null, reuse, domains."""
    from placer.answer.trace import trace_answer
    from placer.api.trace_info import trace_info

    document = trace_info(trace).document()
    if json_output:
        print_json(document)
    else:
        show(trace_answer(document))


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
    from placer.api.trace_compare import trace_compare as compare_traces
    from placer.drift import Advice

    with ProgressBar() as bar:
        found = compare_traces(
            first,
            second,
            placement=placement,
            model=model,
            profile=profile,
            worth=worth,
            prefill_from=prefill_from,
            time_limit=time_limit,
            seed=seed,
            progress=bar,
        )
    stop_if_interrupted()
    if json_output:
        print_json(found.document())
    else:
        show(drift_answer(found))
    if found.advice is Advice.RESOLVE:
        raise typer.Exit(RESOLVE)


@trace_app.command("synth")
def trace_synth(
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="gpt-oss-20b, qwen3-30b-a3b, qwen3-next-80b-a3b, olmoe, mixtral or domain-bound.",
            autocompletion=trace_presets,
        ),
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
    from placer.api.trace_synth import trace_synth as synthesise

    trace = synthesise(
        preset,
        zipf=zipf,
        model=model,
        requests=requests,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        domains=domains,
        seed=seed,
        output=output,
    )
    say(f"{output}: {trace.tokens:,} tokens, {trace.header.source}")


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
    from placer.api.trace_bench import trace_bench as bench_trace

    with ProgressBar() as bar:
        found = bench_trace(source, ids=ids, model=model, progress=bar)
    stop_if_interrupted()
    if json_output:
        print_json(found.document())
    else:
        show(trace_bench_answer(list(found.rows)))
