"""`placer demo`: the whole job on the bundled example, with this machine's own kernels."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
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
from placer.exports import sglang_kt
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
from placer.what_if import part
from placer.workload import Workload
from placer.written_files import check_replaceable, record_written

EXAMPLE = "qwen3-30b-a3b"
GPU = "rtx-4090"
WORKLOAD = Workload(prompt_tokens=1024, output_tokens=512, concurrency=16)
_HOST_MEMORY_BYTES = 64 * 2**30
"""RAM of the server that the demo plans for; the laptop that runs it may have less."""
_TRACE, _PROFILE, _PLACEMENT, _REPORT = "trace.safetensors", "profile.json", "placement.json", "report.html"
_EXPORT = "sglang-kt"


@dataclass(frozen=True)
class Demo:
    """What the demo wrote and what it says."""

    folder: Path
    answers: tuple[RenderableType, ...]


class DemoInterrupted(KeyboardInterrupt):
    """Ctrl-C in a demo that had written something: what that is, and the command that goes on from there."""

    def __init__(self, folder: Path, written: Sequence[str]) -> None:
        self.command = _next_command(folder, written)
        timed = "" if self.command else "; nothing was timed yet: run the demo again"
        super().__init__(f"{folder} has this run's {' and '.join(written)}{timed}")


def _next_command(folder: Path, written: Sequence[str]) -> str | None:
    if _PLACEMENT in written:
        words = _report_words(folder)
    elif _PROFILE in written:
        words = [*_program(), "solve", "--model", str(files("placer.examples") / EXAMPLE)]
        words += ["--trace", str(folder / _TRACE), "--profile", str(folder / _PROFILE)]
        words += ["--host-memory", f"{_HOST_MEMORY_BYTES >> 30}GiB", "--force-profile"]
        words += ["-o", str(folder / _PLACEMENT)]
    else:
        return None
    return shlex.join(words)


def _report_words(folder: Path) -> list[str]:
    """The command that draws what the demo would have drawn."""
    words = [*_program(), "report", str(folder / _PLACEMENT), "--profile", str(folder / _PROFILE)]
    words += ["--trace", str(folder / _TRACE), "--model", str(files("placer.examples") / EXAMPLE)]
    return [*words, "-o", str(folder / _REPORT)]


def _program() -> list[str]:
    """placer as a shell here finds it: `make demo` leaves it in an environment that is not on the PATH."""
    return ["placer"] if shutil.which("placer") else [sys.executable, "-m", "placer"]


class _Folder:
    """The demo's folder, and what this run has written there."""

    def __init__(self, path: Path) -> None:
        """Make the folder where it is missing; raise BadInputError where files in it would be lost."""
        check_replaceable(path, (_TRACE, _PROFILE, _PLACEMENT, _REPORT))
        check_replaceable(path / _EXPORT, sglang_kt.FILES)
        self.path = path
        self.written: list[str] = []
        self._made = [each for each in (path, *path.parents) if not os.path.exists(each)]
        output_folder(path)

    def add(self, name: str) -> None:
        """Count ``name`` among what was written."""
        record_written(self.path, [name])
        self.written.append(name)

    def remove_empty(self) -> None:
        """Remove what was made of the path, where nothing was written."""
        if self.written:
            return
        with contextlib.suppress(OSError):
            for each in self._made:
                os.rmdir(each)


def run_demo(folder: Path, progress: Callable[[str, float], None] = lambda _text, _share: None) -> Demo:
    """Profile, solve, export and draw the bundled example into ``folder``.

    Qwen3-30B-A3B's shapes; routing synthesised from its measured statistics; this machine's CPU kernel, timed;
    a 24 GB GPU by its datasheet.

    Raises
    ------
    BadInputError
        When ``folder`` cannot be written, or has a file of a name that the demo writes which is not as placer wrote
        it there.
    DemoInterrupted
        On Ctrl-C, where something was written.
    """
    into = _Folder(folder)
    try:
        return _demo(into, progress)
    except KeyboardInterrupt:
        if not into.written:
            raise
        raise DemoInterrupted(folder, into.written) from None
    finally:
        into.remove_empty()


def _demo(into: _Folder, progress: Callable[[str, float], None]) -> Demo:
    folder = into.path
    with as_file(files("placer.examples") / EXAMPLE) as example:
        model = read_model(example)
    progress("synthesising routing", 0.0)
    trace = synthesise(EXAMPLE, seed=0)
    write_trace(trace, folder / _TRACE)
    into.add(_TRACE)
    timing = ProfileRequest(gpu_name=GPU, max_seconds=90.0)
    profile = profile_model(model, trace, timing, part(progress, 0.0, 0.4))
    write_profile(profile, folder / _PROFILE)
    into.add(_PROFILE)
    request = SolveRequest(workload=WORKLOAD, budget_bytes=profile.gpu.usable_bytes)
    document = plan(
        model,
        trace,
        profile,
        request,
        host_memory_bytes=_HOST_MEMORY_BYTES,
        use=ProfileUse(force=True),  # An example is shown on a busy machine too, with its warning.
        progress=part(progress, 0.4, 0.9),
    )
    write_placement(document, folder / _PLACEMENT)
    into.add(_PLACEMENT)
    introduction = Text(
        f"The example: {EXAMPLE}'s shapes, {trace.header.source}; the CPU kernel is timed on this machine, the GPU "
        f"is an {GPU} by its datasheet. Everything is in {visible(str(folder))}."
    )
    exported = _export(folder, document.cpu_method)
    report = drawn_report(folder, model, trace, profile, part(progress, 0.9, 1.0))
    return Demo(
        folder,
        (
            introduction,
            Text(""),
            profile_answer(profile),
            Text(""),
            placement_answer(document, None),
            Text(""),
            exported,
            report,
        ),
    )


def drawn_report(
    folder: Path, model: ModelSpec, trace: Trace, profile: Profile, progress: Callable[[str, float], None]
) -> Text:
    """The line about the report of ``folder``'s placement.json, written there where what draws it is installed."""
    path = folder / _REPORT
    made = make_report(folder / _PLACEMENT, profile=profile, trace=trace, model=model, progress=progress)
    try:
        text = page(made)
    except MissingComponentError as missing:
        drawn = shlex.join(_report_words(folder))
        lines = (command_line("do:", visible(missing.hint)), command_line("then:", visible(drawn)))
        return Text("\n").join((Text(f"report: none: {missing.what}"), *lines))
    write_text(path, text)
    record_written(folder, [_REPORT])
    return Text(f"report: {visible(str(path))}, open it in a browser")


def _export(folder: Path, cpu_method: str) -> RenderableType:
    if cpu_method in OTHER_KERNELS:
        return Text(
            f"export: none, because this machine timed {OTHER_KERNELS[cpu_method]} and SGLang runs kt-kernel's: a plan "
            "timed with one is never exported for the other (install kt-kernel, then run the demo again)"
        )
    export = export_placement(folder / _PLACEMENT, folder / _EXPORT, runtime="sglang-kt")
    written = f"exported for {export.runtime}: {', '.join(export.files)} in {visible(str(export.folder))}"
    return Group(Text(written), command_line("launch:", visible(export.launch_line)))
