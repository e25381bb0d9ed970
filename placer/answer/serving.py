"""What clients will see of a plan, in a few lines: latencies with their bands, whether the server keeps up."""

from rich.console import RenderableType
from rich.text import Text

from placer.answer.part import VerdictLine
from placer.open_loop import falls_behind, open_loop_advice, open_loop_sentence
from placer.placement import PlacementDocument
from placer.predicted_sections import BandSection, Spread, TimeSplitSection
from placer.units import duration, duration_range, figure, percent

_WORTH_SAYING = 0.005
_LONG_WAIT_MS = 60_000.0
"""A p95 TTFT from which a plan that was given no target for it says so."""


def serving_lines(document: PlacementDocument) -> list[RenderableType]:
    """Latencies at the median and the 95th percentile, what queues, and where the time goes."""
    predicted = document.predicted
    lines: list[RenderableType] = []
    if (open_loop := open_loop_sentence(document)) is not None:
        behind = falls_behind(document)
        lines.append(VerdictLine(f"  {open_loop}") if behind else Text(f"  {open_loop}"))
    if (advice := open_loop_advice(document)) is not None:
        lines.append(VerdictLine(f"  do: {advice}"))
    lines.append(Text(f"  {_latencies(document)}"))
    if (warning := _waiting(document)) is not None:
        lines.append(Text(f"  {warning}", style="yellow"))
    if predicted.band is not None:
        lines.append(Text("  ranges are from the cost model's own error (simulated)"))
    if predicted.time_split is not None:
        lines.append(Text(f"  {_split_sentence(predicted.time_split)}"))
    retracted = predicted.retractions_per_request or 0.0
    if retracted > _WORTH_SAYING:
        lines.append(
            Text(
                f"  the KV pool runs full: {retracted:.2f} times per request one loses its KV and is computed again "
                "(more --min-kv-tokens or fewer --max-running avoid it)"
            )
        )
    return lines


def _waiting(document: PlacementDocument) -> str | None:
    """That clients wait long for a slot, where nothing bounded that and most of the TTFT is it."""
    predicted, workload = document.predicted, document.workload
    ttft_ms = predicted.ttft_ms.p95
    queue_ms = None if predicted.queue_ms is None else predicted.queue_ms.p95
    if ttft_ms is None or queue_ms is None or workload.slo.ttft_ms is not None:
        return None
    if (
        ttft_ms < _LONG_WAIT_MS
        or queue_ms < ttft_ms / 2
        or workload.concurrency <= document.kv.max_running_requests
    ):
        return None
    return (
        f"warning: at p95 a client waits {duration(1e3 * queue_ms, 3)} for a slot, which no target bounds: --slo-ttft "
        "does; a higher --max-running or fewer clients (--concurrency) shorten the wait"
    )


def _latencies(document: PlacementDocument) -> str:
    predicted, band = document.predicted, document.predicted.band
    tpot, ttft = predicted.tpot_ms, predicted.ttft_ms
    said = [
        "TPOT " + _percentiles(tpot, None if band is None else band.tpot_ms.p95),
        "TTFT " + _percentiles(ttft, None if band is None else band.ttft_ms.p95),
    ]
    if falls_behind(document) and ttft.p95 is None:
        said[1] = "TTFT grows for as long as they arrive"
    workload = document.workload
    waiting = workload.concurrency - document.kv.max_running_requests
    if waiting > 0 and workload.rate_per_s is None and workload.arrivals is None:
        said.append(f"{waiting:,} of {workload.concurrency:,} clients wait for a slot")
    return ", ".join(said) + (" (simulated)" if band is None else "")


def _percentiles(found: Spread, band: BandSection | None) -> str:
    if found.p95 is None:
        return "p95 unknown"
    p50 = "" if found.p50 is None else f"p50 {duration(1e3 * found.p50, 3)}, "
    text = f"{p50}p95 {duration(1e3 * found.p95, 3)}"
    if band is None:
        return text
    if band.low is None or band.high is None:
        low, high = (None if each is None else duration(1e3 * each, 3) for each in (band.low, band.high))
        return f"{text} ({_open_range(low, high)})"
    return f"{text} ({duration_range(1e3 * band.low, 1e3 * band.high)})"


def rate_text(document: PlacementDocument) -> str:
    """Output tokens per second with their range, unless that is one value, as where all that arrives is served."""
    predicted = document.predicted
    rate = figure(predicted.output_tokens_per_s, 1)
    if predicted.band is None:
        return f"{rate} tokens/s"
    band = predicted.band.output_tokens_per_s
    low, high = (None if value is None else figure(value, 1) for value in (band.low, band.high))
    if low == high == rate:
        return f"{rate} tokens/s"
    return f"{rate} tokens/s ({_open_range(low, high)})"


def _open_range(low: str | None, high: str | None) -> str:
    """From ``low`` to ``high``, either of which may have no value."""
    if low is None:
        return "range unknown" if high is None else f"up to {high}"
    return f"{low} or more" if high is None else f"{low} to {high}"


def _split_sentence(split: TimeSplitSection) -> str:
    parts = {
        "attention and all else outside the experts": split.base + split.attention_kv,
        "hot experts": sum(split.hot),
        "waiting for cold ones": sum(split.cold_wait),
        "copies": sum(split.transfer),
    }
    step = sum(parts.values())
    return "of a decode step: " + ", ".join(f"{percent(part / step)} {name}" for name, part in parts.items())
