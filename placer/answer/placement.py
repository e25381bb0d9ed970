"""What `placer solve` prints: verdict first, then ledger, hot experts, baselines and how sure it all is."""

import shlex
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.console import command, sparkline
from placer.answer.part import VerdictLine
from placer.answer.sampling import gain_text, sampling_lines
from placer.answer.serving import serving_lines
from placer.answer.visible import all_visible, visible
from placer.answer.what_if import what_if_parts
from placer.placement import PlacementDocument
from placer.placement_sections import FrontierSection, KvSection, SensitivitySection
from placer.units import figure, gib, signed_percent

_SPARKLINE_WIDTH = 62


def placement_answer(document: PlacementDocument, destination: str | None) -> RenderableType:
    """What `placer solve` prints of a placement."""
    document = all_visible(document)
    predicted, kv = document.predicted, document.kv
    parts: list[RenderableType] = [
        VerdictLine(verdict_sentence(document)),
        Text(f"  {document.heldout.verdict}"),
        *serving_lines(document),
        *objective_lines(document),
        Text(""),
        _ledger_table(document),
        Text(""),
        _hot_lines(document),
        Text(""),
    ]
    if document.baselines:
        parts.append(_baseline_table(document))
    parts += sampling_lines(document)
    if document.frontier:
        parts += [_frontier_table(document.frontier), Text("")]
    parts += what_if_parts(document)
    parts.append(_solver_line(document))
    if document.sensitivity is not None and document.sensitivity.price_us_per_gib is not None:
        parts.append(_worth_line(document.sensitivity, document.solver.per_token))
    if document.dynamic is not None and document.dynamic.matters:
        parts.append(Text(document.dynamic.verdict))
        parts += [Text(f"  {assumed}", style="dim") for assumed in document.dynamic.assumptions]
    parts.append(_origin_lines(predicted.provenance))
    parts += [Text(f"note: {note}", style="dim") for note in document.notes]
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
    if destination is not None and document.cpu_method in ("torch", "VLLM-BF16"):
        parts.append(
            Text(
                "next: no runtime runs hot experts beside this CPU kernel, so this plan cannot be exported; a profile "
                "with --cpu-kernel kt makes one that can, where kt-kernel takes the model's sizes (multiples of 128)"
            )
        )
    elif destination is not None:
        parts.append(
            command(
                "next:", ["placer export", shlex.quote(visible(destination)), "--runtime sglang-kt", "-o DIR"]
            )
        )
    return Group(*parts)


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
        f"({kv.dtype}), {kv.max_running_requests} running requests: "
        f"{figure(predicted.output_tokens_per_s, 1)} tokens/s, decode step {figure(predicted.decode_step_ms, 2)} ms"
    )
    uniform = document.baselines.get("uniform")
    if uniform is None or not uniform.output_tokens_per_s:
        return sentence + " (predicted)"
    if predicted.open_loop is not None:
        return sentence + " (predicted; an open loop yields what arrives, at most)"
    times = predicted.output_tokens_per_s / uniform.output_tokens_per_s
    return sentence + f" (predicted; {times:.2f}x the runtime's default placement)"


def objective_lines(document: PlacementDocument) -> list[Text]:
    """What an objective other than throughput reached."""
    solver = document.solver
    if solver.objective_name in {None, "throughput"} or solver.objective_reached is None:
        return []
    reached = f"{figure(solver.objective_reached, 1)} {solver.objective_unit}"
    if solver.objective_name == "goodput":
        reached += f", of {figure(document.predicted.output_tokens_per_s, 1)} tokens/s of all"
    return [Text(f"  objective {solver.objective_name}: {reached} (simulated)")]


def _ledger_table(document: PlacementDocument) -> Table:
    budget = document.hbm.budget_bytes_per_gpu
    table = Table(title=f"HBM per GPU: {gib(budget)}", title_justify="left", box=None, pad_edge=False)
    table.add_column("line")
    table.add_column("size", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    for name, size in document.hbm.ledger.items():
        if size:
            table.add_row(name, gib(size), f"{size / budget:.1%}", "█" * round(40 * size / budget))
    host = sum(document.host.ledger.values())
    table.caption = f"host memory: {gib(host)} (every expert, hot ones too)"
    table.caption_justify = "left"
    return table


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


def _baseline_table(document: PlacementDocument) -> Table:
    table = Table(
        title="same bytes, other placements (predicted on held-out requests)",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    gains = document.heldout.gains or {}
    headers = ["placement", "decode step", "tokens/s", "slower by", "cold share"]
    if gains:
        headers.append("of time per token (95 %)")
    for header in headers:
        table.add_column(header, justify="left" if header == "placement" else "right")
    plan = document.predicted
    rows: list[tuple[str, Any]] = [("this plan", plan), *document.baselines.items()]
    for name, figures in rows:
        rate = figures.output_tokens_per_s
        slower = plan.output_tokens_per_s / rate - 1.0 if rate else 0.0
        table.add_row(
            name,
            f"{figure(figures.decode_step_ms, 2)} ms",
            figure(figures.output_tokens_per_s, 1),
            "" if name == "this plan" or not rate else signed_percent(slower),
            f"{figures.cold_share:.1%}",
            *(
                ["returned" if name == document.heldout.chosen else gain_text(gains.get(name))]
                if gains
                else []
            ),
        )
    return table


def _frontier_table(frontier: tuple[FrontierSection, ...]) -> Table:
    table = Table(
        title="by running requests (bound: no plan is faster)", title_justify="left", box=None, pad_edge=False
    )
    for header in ("running", "KV tokens", "hot", "tokens/s", "TPOT p95", "µs/token", "bound", ""):
        table.add_column(header, justify="right")
    for point in frontier:
        table.add_row(
            f"{point.max_running_requests:,}",
            f"{point.kv_tokens:,}",
            f"{point.hot_experts:,}",
            f"{point.output_tokens_per_s:,.1f}",
            "unknown" if point.tpot_ms_p95 is None else f"{point.tpot_ms_p95:,.1f} ms",
            f"{point.objective_us:,.1f}",
            f"{point.bound_us:,.1f}",
            "<- chosen" if point.chosen else "",
        )
    return table


def _worth_line(known: SensitivitySection, per_token: str) -> Text:
    gained = known.tokens_per_s_per_gib
    rate = "" if gained is None else f" (about {gained:,.3g} tokens/s)"
    return Text(
        f"a GiB more per GPU saves {known.price_us_per_gib:,.4g} µs {per_token}{rate}, to first order: "
        "the solver's multiplier"
    )


def _solver_line(document: PlacementDocument) -> Text:
    solver = document.solver
    if solver.gap is None:
        return Text(f"solver: {solver.name}, {solver.seconds:.1f} s; no bound (see notes)")
    returned = "" if document.heldout.chosen == "plan" else f" (returned: {document.heldout.chosen})"
    targets = document.workload.slo
    targeted = targets.tpot_ms is not None or targets.ttft_ms is not None
    over = " over the settings that meet the targets" if targeted else ""
    return Text(
        f"solver: {solver.name}{returned}, {solver.status}, gap {solver.gap:z.2%} proven{over} on the part that a "
        f"plan can change; objective {solver.objective_us:,.1f} µs {solver.per_token}, bound {solver.bound_us:,.1f}; "
        f"{solver.seconds:.1f} s"
    )


def _origin_lines(provenance: dict[str, str]) -> Text:
    return Text("\n".join(f"origin of {name}: {origin}" for name, origin in provenance.items()), style="dim")
