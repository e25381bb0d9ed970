"""`placer demo`: the whole job on the bundled example, with this machine's own kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.console import command_line
from placer.answer.placement import placement_answer
from placer.answer.profile import profile_answer
from placer.answer.visible import visible
from placer.errors import MissingComponentError
from placer.exports.kt_expert_limits import OTHER_KERNELS
from placer.exports.runtimes import export_placement
from placer.model.spec import ModelSpec, read_model
from placer.output import output_folder, write_text
from placer.placement import write_placement
from placer.planning import plan
from placer.profiler.profile import Profile, write_profile
from placer.profiler.profile_use import ProfileUse
from placer.profiler.profiling import ProfileRequest, profile_model
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.synth import synthesise
from placer.profiler.trace.trace import Trace
from placer.reports.page import page
from placer.reports.report import make_report
from placer.solve_request import SolveRequest
from placer.workload import Workload

EXAMPLE = "qwen3-30b-a3b"
GPU = "rtx-4090"
WORKLOAD = Workload(prompt_tokens=1024, output_tokens=512, concurrency=16)
_HOST_MEMORY_BYTES = 64 * 2**30
"""RAM of the server that the demo plans for; the laptop that runs it may have less."""


@dataclass(frozen=True)
class Demo:
    """What the demo wrote and what it says."""

    folder: Path
    answers: tuple[RenderableType, ...]


def run_demo(folder: Path, progress: Callable[[str, float], None] = lambda _text, _share: None) -> Demo:
    """Profile, solve, export and draw the bundled example into ``folder``.

    Qwen3-30B-A3B's shapes; routing synthesised from its measured statistics; this machine's CPU kernel, timed;
    a 24 GB GPU by its datasheet.

    Raises
    ------
    BadInputError
        When ``folder`` cannot be written.
    """
    output_folder(folder)
    with as_file(files("placer.examples") / EXAMPLE) as example:
        model = read_model(example)
    progress("synthesising routing", 0.0)
    trace = synthesise(EXAMPLE, seed=0)
    write_trace(trace, folder / "trace.safetensors")
    profile = _profile(model, trace, folder, progress)
    request = SolveRequest(workload=WORKLOAD, budget_bytes=profile.gpu.usable_bytes)
    document = plan(
        model,
        trace,
        profile,
        request,
        host_memory_bytes=_HOST_MEMORY_BYTES,
        use=ProfileUse(force=True),  # An example is shown on a busy machine too, with its warning.
        progress=progress,
    )
    write_placement(document, folder / "placement.json")
    introduction = Text(
        f"The example: {EXAMPLE}'s shapes, {trace.header.source}; the CPU kernel is timed on this machine, the GPU "
        f"is an {GPU} by its datasheet. Everything is in {visible(str(folder))}."
    )
    return Demo(
        folder,
        (
            introduction,
            Text(""),
            profile_answer(profile),
            Text(""),
            placement_answer(document, None),
            Text(""),
            _export(folder, document.cpu_method),
            drawn_report(folder, model, trace, profile, progress),
        ),
    )


def _profile(model: ModelSpec, trace: Trace, folder: Path, progress: Callable[[str, float], None]) -> Profile:
    request = ProfileRequest(gpu_name=GPU, max_seconds=90.0)
    profile = profile_model(model, trace, request, progress)
    write_profile(profile, folder / "profile.json")
    return profile


def drawn_report(
    folder: Path, model: ModelSpec, trace: Trace, profile: Profile, progress: Callable[[str, float], None]
) -> Text:
    """The line about the report of ``folder``'s placement.json, written there where what draws it is installed."""
    path = folder / "report.html"
    made = make_report(
        folder / "placement.json", profile=profile, trace=trace, model=model, progress=progress
    )
    try:
        text = page(made)
    except MissingComponentError as missing:
        return Text(f"report: none: {missing.what}; do: {missing.hint}, then 'placer report'")
    write_text(path, text)
    return Text(f"report: {visible(str(path))}, open it in a browser")


def _export(folder: Path, cpu_method: str) -> RenderableType:
    if cpu_method in OTHER_KERNELS:
        return Text(
            f"export: none, because this machine timed {OTHER_KERNELS[cpu_method]} and SGLang runs kt-kernel's: a plan "
            "timed with one is never exported for the other (install kt-kernel, then run the demo again)"
        )
    export = export_placement(folder / "placement.json", folder / "sglang-kt", runtime="sglang-kt")
    written = f"exported for {export.runtime}: {', '.join(export.files)} in {visible(str(export.folder))}"
    return Group(Text(written), command_line("launch:", visible(export.launch_line)))
