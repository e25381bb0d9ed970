"""What `placer solve` prints: verdict first, then ledger, hot experts, baselines and how sure it all is."""

import re
import shlex

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.baseline import baseline_remark, baseline_table
from placer.answer.console import command, sparkline
from placer.answer.frontier import frontier_table
from placer.answer.gpu_only import gpu_only_lines, gpu_only_words
from placer.answer.layer import layer_table
from placer.answer.ledger import ledger_parts
from placer.answer.part import InFull, Usually, VerdictLine, note_lines
from placer.answer.sampling import sampling_lines
from placer.answer.serving import rate_text, serving_lines
from placer.answer.visible import all_visible, visible
from placer.answer.what_if import what_if_parts
from placer.answer.worth import worth_sentence
from placer.doubt import SLOW_END
from placer.exports.next_runtime import next_runtime
from placer.exports.runtime_scheduler import scheduler_note
from placer.placement import FORCED, PlacementDocument
from placer.placement_sections import KvSection
from placer.targets import MISSED
from placer.units import counted, duration, figure, gap_percent, gib

_SPARKLINE_WIDTH = 62
_ENDED_OPEN = {
    "time_limit": "the time limit ended the search (raise --time-limit)",
    "searched": "the search had no step left that pays (--prove goes on until --time-limit)",
    "interrupted": "the search was stopped (solve again to go on)",
}
"""By the status of a solve that left its gap open: what ended it, and what to do."""
_EXTRAPOLATED = re.compile(r"extrapolated beyond the measured rows per expert in \S+ of decode steps")


def placement_answer(document: PlacementDocument, destination: str | None) -> RenderableType:
    """What `placer solve` prints of a placement."""
    document = all_visible(document)
    predicted, kv = document.predicted, document.kv
    # What would have been refused, or misses a target, goes with the figures that it spoils, also under -q.
    first = [note for note in document.notes if note.startswith((FORCED, MISSED, SLOW_END))]
    parts: list[RenderableType] = [
        VerdictLine(verdict_sentence(document)),
        *[VerdictLine(each) for each in first],
        Text(f"  {judged_sentence(document)}"),
        *gpu_only_lines(document),
        *serving_lines(document),
        *objective_lines(document),
        Text(""),
        *_ledger(document),
        Text(""),
        _hot_lines(document),
        InFull(Text(""), layer_table(document)),
        Text(""),
    ]
    # Where every expert is hot, all placements are the same.
    if not document.every_expert_hot:
        if document.baselines:
            parts += [baseline_table(document), baseline_remark(document)]
        parts += sampling_lines(document)
    if document.frontier:
        parts += [frontier_table(document.frontier), Text("")]
    parts += what_if_parts(document)
    parts.append(_solver_line(document))
    worth = None if document.every_expert_hot else worth_sentence(document)
    parts += [Text(line) for line in (_open_gap(document), worth) if line]
    if document.dynamic is not None and document.dynamic.matters:
        parts.append(Text("the moving hot sets above are compared on these assumptions:", style="dim"))
        parts += [Text(f"  {assumed}", style="dim") for assumed in document.dynamic.assumptions]
    parts += _origins(predicted.provenance)
    parts += note_lines(note for note in document.notes if note not in first)
    parts += _pool_lines(kv)
    parts.append(
        command(
            "settings:",
            [
                f"--max-total-tokens {kv.max_total_tokens or kv.tokens}",
                f"--max-running-requests {kv.max_running_requests}",
                f"--chunked-prefill-size {kv.chunked_prefill_size}",
                f"--kv-cache-dtype {kv.dtype}",
                *_pool_flags(kv),
            ],
        )
    )
    if destination is not None:
        parts += _next_lines(document, destination)
    return Group(*parts)


def _next_lines(document: PlacementDocument, destination: str) -> list[RenderableType]:
    """The export that takes the plan, and what it changes of it."""
    found = next_runtime(document)
    lines: list[RenderableType] = []
    if found.whole_layers:
        lines.append(
            Text(
                f"why not {found.first}: {found.refused}; {found.name} keeps whole layers on the GPU, so it runs "
                "another choice of hot experts than this one"
            )
        )
    elif found.refused is not None:
        lines.append(Text(f"why not {found.first}: {found.refused}"))
    if found.name is None:
        return [*lines, Text("next: no runtime that placer exports for takes this plan")]
    scheduler = scheduler_note(document, found.name)
    lines += note_lines([] if scheduler is None else [scheduler])
    words = ["placer export", shlex.quote(visible(destination)), f"--runtime {found.name}", "-o DIR"]
    return [*lines, command("next:", words)]


def _pool_lines(kv: KvSection) -> list[Text]:
    """Why the flag is another number than the KV tokens that were said."""
    if kv.max_total_tokens in (None, kv.tokens):
        return []
    return [
        Text(
            f"why --max-total-tokens is {kv.max_total_tokens}: the runtime shares out the bytes of so many tokens in "
            f"all layers; as layers with a sliding window keep fewer, a pool of {kv.tokens:,} tokens comes of it"
        )
    ]


def _pool_flags(kv: KvSection) -> list[str]:
    """Flags that only some models' pools need."""
    flags = {
        "page-size": None if kv.page_tokens == 1 else kv.page_tokens,
        "swa-full-tokens-ratio": kv.swa_full_tokens_ratio,
        "max-mamba-cache-size": kv.max_mamba_cache_size,
    }
    return [f"--{name} {value}" for name, value in flags.items() if value is not None]


def verdict_sentence(document: PlacementDocument) -> str:
    """The whole answer in one sentence: what, how fast, and how much faster than the runtime's default."""
    predicted, kv = document.predicted, document.kv
    total = len(document.model.layers) * document.model.experts
    sentence = (
        f"{document.model.name}: {document.hot_total:,} of {total:,} experts hot, {kv.tokens:,} KV tokens "
        f"({kv.dtype}), {counted(kv.max_running_requests, 'running request')}: "
        f"{rate_text(document)}, decode step {duration(1e3 * predicted.decode_step_ms)}"
    )
    uniform = document.baselines.get("uniform")
    if document.every_expert_hot:
        without = gpu_only_words(document)
        return sentence + (" (predicted)" if without is None else f" (predicted; {without})")
    if uniform is None or not uniform.output_tokens_per_s:
        return sentence + " (predicted)"
    if predicted.open_loop is not None:
        return sentence + " (predicted; an open loop yields what arrives, at most)"
    times = predicted.output_tokens_per_s / uniform.output_tokens_per_s
    return sentence + f" (predicted; {times:.2f}x the tokens/s of uniform, the runtime's default)"


def judged_sentence(document: PlacementDocument) -> str:
    """Whether a static placement helps, and where a moving hot set may beat it, that too."""
    static, dynamic = document.heldout.verdict, document.dynamic
    return static if dynamic is None or not dynamic.matters else f"{static}; but {dynamic.verdict}"


def objective_lines(document: PlacementDocument) -> list[Text]:
    """What an objective other than throughput reached."""
    solver = document.solver
    if solver.objective_name in {None, "throughput"} or solver.objective_reached is None:
        return []
    reached = f"{figure(solver.objective_reached, 1)} {solver.objective_unit}"
    if solver.objective_name == "goodput":
        reached += f", of {figure(document.predicted.output_tokens_per_s, 1)} tokens/s of all"
    return [Text(f"  objective {solver.objective_name}: {reached} (simulated)")]


def _ledger(document: PlacementDocument) -> list[RenderableType]:
    host = sum(document.host.ledger.values())
    lines = ", ".join(f"{name} {gib(size)}" for name, size in document.host.ledger.items() if size)
    return [
        *ledger_parts("HBM per GPU", document.hbm.ledger, document.hbm.budget_bytes_per_gpu),
        Text(
            f"host memory: {gib(host)} with CPU experts (every expert, hot ones too), not needed without them"
            if document.every_expert_hot
            else f"host memory: {gib(host)} (every expert, hot ones too)"
        ),
        InFull(Text(f"  of which {lines}")),
    ]


def _hot_lines(document: PlacementDocument) -> Text:
    counts = [len(document.hot.get(str(layer), [])) for layer in document.model.layers]
    lines = [
        f"hot experts per layer: least {min(counts)}, most {max(counts)} of {document.model.experts}"
        f" (layers {document.model.layers[0]}-{document.model.layers[-1]})"
    ]
    bars = sparkline(counts, document.model.experts)
    lines += [
        "  " + bars[start : start + _SPARKLINE_WIDTH] for start in range(0, len(bars), _SPARKLINE_WIDTH)
    ]
    return Text("\n".join(lines))


def _solver_line(document: PlacementDocument) -> Text:
    solver = document.solver
    seconds = duration(1e6 * solver.seconds, 3)
    if solver.gap is None or solver.objective_us is None or solver.bound_us is None:
        why = document.null_reasons.get("solver.gap", "the placement does not say why")
        return Text(f"solver: {solver.name}, {seconds}; no bound: {why}")
    returned = "" if document.heldout.chosen == "plan" else f" (returned: {document.heldout.chosen})"
    targets = document.workload.slo
    targeted = targets.tpot_ms is not None or targets.ttft_ms is not None
    over = " over the settings that meet the targets" if targeted else ""
    return Text(
        f"solver: {solver.name}{returned}, {solver.status}, gap {gap_percent(solver.gap)} proven{over} on the part "
        f"that a plan can change; objective {duration(solver.objective_us)} {solver.per_token}, bound "
        f"{duration(solver.bound_us)}; {seconds}"
    )


def _open_gap(document: PlacementDocument) -> str | None:
    """Why a solve ended with a gap above the one asked for, and what closes it."""
    solver = document.solver
    why = _ENDED_OPEN.get(solver.status)
    if why is None or not solver.gap:
        return None
    return f"  the gap is above the one asked for: {why}; a better plan may exist, by at most that gap"


def _origins(provenance: dict[str, str]) -> tuple[RenderableType, ...]:
    """Where figures come from: a few words each, and with -v all that is known."""
    first_words = {name: re.split(r"[:;]| \(", origin)[0] for name, origin in provenance.items()}
    for name, origin in provenance.items():
        if beyond := _EXTRAPOLATED.search(origin):
            first_words[name] += f", {beyond[0]}"
    short = "; ".join(f"{name}: {words}" for name, words in first_words.items())
    full = Text("\n".join(f"origin of {name}: {origin}" for name, origin in provenance.items()), style="dim")
    return Usually(Text(f"origins (-v: in full): {short}", style="dim")), InFull(full)
