"""What `placer profile` prints: the error first, then what was timed and on what."""

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import InFull, Usually, VerdictLine, note_lines
from placer.answer.visible import all_visible
from placer.exports.kt_expert_limits import BLOCK
from placer.exports.kt_requirements import WHOLE_LAYERS, whole_blocks
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.profile import Profile
from placer.profiler.profile_use import check_profile_error
from placer.profiler.timing.kernel_profile import KernelProfile
from placer.units import counted, duration, gib, percent, signed_percent

_SHOWN_ROWS = (1, 2, 4, 8, 16, 64)
"""Rows of an expert whose times a datasheet's answer shows."""
_FORMAT_ERROR = {"AMXINT4": 0.25}
"""Relative error of formats so coarse that random weights, which have no outliers to spare, show it."""


def profile_answer(profile: Profile) -> RenderableType:
    """The held-out error of the CPU cost model, by regime and by source of the calls; or what a datasheet gives."""
    profile = all_visible(profile)
    if isinstance(profile.cpu, DatasheetCpu):
        return _datasheet_answer(profile, profile.cpu)
    return _timed_answer(profile, profile.cpu)


def _timed_answer(profile: Profile, cpu: KernelProfile) -> RenderableType:
    overall = cpu.report.overall
    head = VerdictLine(
        f"{cpu.backend} {cpu.method}: held-out MAPE {overall.mape:.1%}, p90 {overall.p90_error:.1%}, "
        f"bias {signed_percent(overall.bias)} over {overall.calls} calls that took no part in the fit",
    )
    errors = Table(box=None, pad_edge=False)
    for header in ("held-out calls", "calls", "MAPE", "p90", "bias"):
        errors.add_column(header, justify="left" if header.startswith("held") else "right")
    rows = [
        (
            f"{regime.min_tokens} {'or more' if regime.max_tokens is None else f'to {regime.max_tokens}'} "
            "tokens of a call",
            regime.reported,
        )
        for regime in cpu.report.regimes
    ]
    rows += [(f"from {source.source}", source.reported) for source in cpu.report.sources]
    rows += [
        (f"{size.min_active} to {size.max_active or cpu.shape.experts} active experts", size.reported)
        for size in cpu.report.sizes
    ]
    for name, figures in rows:
        errors.add_row(
            name,
            str(figures.calls),
            f"{figures.mape:.1%}",
            f"{figures.p90_error:.1%}",
            signed_percent(figures.bias),
        )
    facts = [
        f"cold side (measured): {cpu.machine.cpu}, {counted(cpu.threads, 'thread')}, {cpu.variant}, {cpu.version}",
        f"  {len(cpu.points)} calls x {cpu.rounds} samples in {duration(1e6 * cpu.seconds, 3)}, weights of "
        f"{gib(cpu.resident_bytes)} cycled; reads {cpu.achieved_bytes_per_s / 1e9:.1f} GB/s, "
        f"{percent(cpu.achieved_share)} of the bandwidth measured in the same run",
        *_check_lines(cpu),
        f"  regimes: {cpu.border_how}",
        *_gpu_lines(profile),
        f"why this kernel: {cpu.reason}",
        *_merged_lines(profile),
    ]
    warned = [*_split_warning(profile), *([cpu.quiet_warning] if cpu.quiet_warning else [])]
    warned += [
        f"{each}: 'placer solve' refuses this profile (unless --force-profile); profile again on an idle machine and "
        "for longer (--max-seconds)"
        for each in check_profile_error(profile, force=True)
    ]
    warnings = [Text(f"warning: {each}", style="yellow") for each in warned]
    notes = note_lines(dict.fromkeys((*_base_notes(profile), *cpu.notes)))
    sweep = (_sweep_table(cpu), Text("")) if cpu.sweep else ()
    return Group(head, Text(""), errors, Text(""), *sweep, *[Text(fact) for fact in facts], *warnings, *notes)


def _datasheet_answer(profile: Profile, cpu: DatasheetCpu) -> RenderableType:
    low, high = cpu.band
    head = VerdictLine(
        f"{cpu.device} by datasheet, {cpu.method}: nothing was timed; true times of the CPU's side may be "
        f"{low:g} to {high:g} times what is said here",
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("tokens of a call")
    for rows in _SHOWN_ROWS:
        table.add_column(counted(rows, "row"), justify="right")
    table.add_column("weights alone", justify="right")
    for regime in cpu.cost.regimes:
        span = f"{regime.min_tokens} {'or more' if regime.max_tokens is None else f'to {regime.max_tokens}'}"
        times = regime.rows_us(np.array(_SHOWN_ROWS))
        table.add_row(span, *(duration(us, 3) for us in times), duration(regime.floor_us, 3))
    facts = [
        f"cold side (datasheet): {_of_all(cpu, cpu.cores)} cores at {cpu.clock_ghz:g} GHz, "
        f"{counted(cpu.threads, 'thread')}, {_of_all(cpu, cpu.bandwidth_bytes_per_s / 1e9)} GB/s of memory, "
        f"{cpu.nodes_text}; an expert takes {gib(cpu.bytes_per_expert)}",
        f"  assumed: {', '.join(f'{name} {value:g}' for name, value in cpu.efficiency.items())}",
    ]
    sources = [f"  source: {cpu.source}", *(f"  kernel: {each}" for each in cpu.evidence)]
    note = (
        "note: profile on the server ('placer profile' there, 'placer profile merge') before you rely on it"
    )
    return Group(
        head,
        Text(""),
        Text("an expert takes, in a call that keeps all threads busy"),
        table,
        Text(""),
        *[Text(fact) for fact in facts],
        Usually(Text("  sources: -v", style="dim")),
        InFull(*[Text(source) for source in sources]),
        *[Text(fact) for fact in (*_gpu_lines(profile), *_merged_lines(profile))],
        *note_lines((*_base_notes(profile), *cpu.notes)),
        *[Text(f"warning: {each}", style="yellow") for each in _split_warning(profile)],
        Text(note, style="dim"),
    )


def _of_all(cpu: DatasheetCpu, figure: float) -> str:
    """The part of ``figure``, of the whole server, that the kernel uses."""
    used = "" if cpu.used_share == 1 else f"{figure * cpu.used_share:,.0f} of "
    return f"{used}{figure:,.0f}"


def _gpu_lines(profile: Profile) -> list[str]:
    return [
        f"hot side ({profile.gpu.provenance.value}): {profile.gpu.provenance_text}",
        f"rest of a layer: {profile.gpu.base_provenance_text}",
        *_base_lines(profile),
    ]


def _split_warning(profile: Profile) -> list[str]:
    """That no runtime splits layers of experts of these sizes, where that is so."""
    shape = profile.cpu.shape
    sizes = (shape.hidden_size, shape.expert_intermediate_size)
    if all(whole_blocks(size) for size in sizes):
        return []
    return [
        f"an expert here is {sizes[0]:,} by {sizes[1]:,}, and sglang-kt takes multiples of {BLOCK} only: a plan from "
        f"this profile is not exported for it; {WHOLE_LAYERS}"
    ]


def _merged_lines(profile: Profile) -> list[str]:
    """Where the sides come from when they were profiled apart."""
    if profile.merged is None:
        return []
    return [
        f"{side} {origin.words(by_datasheet=sheet)} (placer {origin.placer_version})"
        for side, origin, sheet in (
            ("CPU", profile.merged.cpu, profile.cpu_by_datasheet),
            ("GPU", profile.merged.gpu, profile.gpu_by_datasheet),
        )
    ]


def _check_lines(cpu: KernelProfile) -> list[str]:
    """What the kernel was checked for before it was timed; nothing in profiles that were made without it."""
    if cpu.output_error is None:
        return []
    usual = _FORMAT_ERROR.get(cpu.method)
    expected = "" if usual is None else f" ({usual:.0%} is what {cpu.method} rounds off there)"
    return [
        f"  output on random weights off by {cpu.output_error:.1%}{expected}; an expert takes "
        f"{gib(cpu.bytes_per_expert)}"
    ]


def _base_lines(profile: Profile) -> list[str]:
    """A decode step's base by part, one line each; nothing where all of it follows from a datasheet."""
    base = profile.gpu.base
    if base is None:
        return []
    return [
        *(
            f"  {part.count} x {part.name}: {duration(part.curve.at(1), 3)} at one token"
            for part in base.parts
        ),
    ]


def _base_notes(profile: Profile) -> tuple[str, ...]:
    """What was not timed of a layer's rest."""
    return () if profile.gpu.base is None else tuple(profile.gpu.base.notes)


def _sweep_table(cpu: KernelProfile) -> Table:
    """Threads and NUMA nodes that were tried on a decode call; the chosen ones are marked."""
    table = Table(
        title="a decode call by CPU threads", title_justify="left", title_style="", box=None, pad_edge=False
    )
    for header in ("threads", "NUMA nodes", "lower quartile", "median"):
        table.add_column(header, justify="right")
    table.add_column("")
    for timing in cpu.sweep:
        times = ["" if us is None else duration(us) for us in (timing.p25_us, timing.p50_us)]
        chosen = (timing.threads, timing.subpools) == (cpu.threads, cpu.numa_nodes)
        remark = "chosen" if chosen else timing.problem or ""
        table.add_row(str(timing.threads), str(timing.subpools), *times, remark)
    return table
