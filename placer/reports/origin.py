"""Every number of a placement with where it comes from."""

from collections.abc import Iterator
from dataclasses import dataclass

from placer.open_loop import ttft_without_value
from placer.placement import PlacementDocument
from placer.predicted_sections import Figures
from placer.profiler.profile import Profile
from placer.units import counted, duration, figure, gap_percent, gib, percent

SIZES = "computed from the model's shapes and formats and the server's settings"
DECIDED = "decided by placer solve"
GIVEN = "given to placer solve"
ASKED = "of the placement: given to placer solve, or its default"


@dataclass(frozen=True)
class Origin:
    """A number as it is shown, and where it comes from."""

    what: str
    value: str
    origin: str


def origins(document: PlacementDocument, profile: Profile | None) -> tuple[Origin, ...]:
    """Numbers of ``document`` and, where given, of the ``profile`` behind it."""
    return (
        *_given(document),
        *_decided(document),
        *_predicted(document),
        *_baselines(document),
        *_heldout(document),
        *_solved(document),
        *_sizes(document),
        *_hardware(document),
        *(() if profile is None else _profiled(profile)),
    )


def _given(document: PlacementDocument) -> Iterator[Origin]:
    work = document.workload
    yield Origin(
        "workload",
        f"{counted(work.concurrency, 'client')}, {work.prompt_tokens:,} prompt and "
        f"{work.output_tokens:,} output tokens",
        ASKED,
    )
    for name, target in (("TPOT", work.slo.tpot_ms), ("TTFT", work.slo.ttft_ms)):
        reason = document.null_reasons.get(f"workload.slo.{name.lower()}_ms", "no target was given")
        yield Origin(
            f"{name} target, p95",
            "none" if target is None else duration(1e3 * target, 3),
            GIVEN if target else reason,
        )
    yield Origin("HBM budget per GPU", gib(document.hbm.budget_bytes_per_gpu), ASKED)
    yield Origin("tensor-parallel size", f"{document.tp:,}", ASKED)


def _decided(document: PlacementDocument) -> Iterator[Origin]:
    kv, returned = document.kv, document.heldout.chosen
    how = (
        DECIDED
        if returned == "plan"
        else f"{DECIDED}; the hot set is the baseline {returned}'s, which was faster"
    )
    yield Origin("hot experts", f"{document.hot_total:,} of {document.total_experts:,}", how)
    yield Origin("KV tokens", f"{kv.tokens:,} ({kv.dtype})", DECIDED)
    # A placement does not say which of its settings were asked for.
    yield Origin(
        "running requests", f"{kv.max_running_requests:,}", f"{DECIDED}, or given to it (--max-running)"
    )
    yield Origin(
        "prefill chunk", f"{kv.chunked_prefill_size:,} tokens", f"{DECIDED}, or given to it (--chunk)"
    )


def _predicted(document: PlacementDocument) -> Iterator[Origin]:
    said = document.predicted.provenance
    parts = [f"{name}: {said[name]}" for name in ("cold", "hot", "base", "routing") if name in said]
    step = "; ".join(parts) or "; ".join(f"{name}: {origin}" for name, origin in said.items())
    served = "; ".join(filter(None, (said.get("latencies", ""), "from the decode step's parts above")))
    figures = document.predicted
    yield Origin("decode step", duration(1e3 * figures.decode_step_ms), step)
    yield Origin("output tokens/s", figure(figures.output_tokens_per_s, 1), served)
    for name, spread in (("tpot_ms", figures.tpot_ms), ("ttft_ms", figures.ttft_ms)):
        for part, value in (("mean", spread.mean), ("p95", spread.p95)):
            label = f"{name.removesuffix('_ms').upper()} {part}"
            yield (
                Origin(label, duration(1e3 * value), served)
                if value is not None
                else Origin(
                    label, ttft_without_value(document), _reason(document, f"predicted.{name}.{part}")
                )
            )
    yield from _bands(document)
    yield Origin("cold share of selections", percent(figures.cold_share), said.get("routing", step))


def _bands(document: PlacementDocument) -> Iterator[Origin]:
    band = document.predicted.band
    if band is None:
        return
    rests_on = "; ".join(f"{part}: {reason}" for part, reason in band.rests_on.items())
    origin = f"simulated again with every part of the cost model at its low and high factor; {rests_on}"
    for name, each in (
        ("output tokens/s", band.output_tokens_per_s),
        ("TPOT p95, ms", band.tpot_ms.p95),
        ("TTFT p95, ms", band.ttft_ms.p95),
    ):
        ends = (
            ttft_without_value(document) if end is None else figure(end, 1) for end in (each.low, each.high)
        )
        yield Origin(f"band of {name}", " to ".join(ends), origin)


def _baselines(document: PlacementDocument) -> Iterator[Origin]:
    names = ", ".join(document.baselines)
    if names and not document.every_expert_hot:
        plain: Figures = document.predicted
        yield Origin(
            "figures of the baselines",
            names,
            f"predicted as the plan's {duration(1e3 * plain.decode_step_ms)} are, on the same bytes and requests",
        )


def _heldout(document: PlacementDocument) -> Iterator[Origin]:
    held = document.heldout
    for name, value in (("coverage", held.coverage), ("uniform_null", held.uniform_null)):
        label = {"coverage": "selections that hot experts serve", "uniform_null": "the same by chance"}[name]
        if value is None:
            yield Origin(label, "unknown", _reason(document, f"heldout.{name}"))
        elif name == "coverage":
            yield Origin(label, percent(value), "counted on requests that took no part in the solve")
        else:
            yield Origin(label, percent(value), "hot experts as a share of all experts")
    if held.gains:
        over = "" if held.requests is None else f" over {held.requests:,} reported requests"
        yield Origin("gains and intervals", f"{len(held.gains)} baselines", f"predicted; bootstrap{over}")


def _solved(document: PlacementDocument) -> Iterator[Origin]:
    solver = document.solver
    for label, value, path in (
        ("objective", solver.objective_us, "objective_us"),
        ("bound on every plan", solver.bound_us, "bound_us"),
    ):
        yield (
            Origin(
                f"{label}, µs {solver.per_token}",
                figure(value, 1),
                f"solver {solver.name}, on the solving requests",
            )
            if value is not None
            else Origin(f"{label}, µs {solver.per_token}", "none", _reason(document, f"solver.{path}"))
        )
    yield (
        Origin("gap", "none", _reason(document, "solver.gap"))
        if solver.gap is None
        else Origin("gap", gap_percent(solver.gap), "proven, on the part of the time that a plan can change")
    )
    if document.sensitivity is not None:
        yield Origin(
            "value of an expert (heat map)",
            f"{document.total_experts:,} numbers",
            "the cost model on the solving steps: what the objective loses by this expert's place alone",
        )


def _sizes(document: PlacementDocument) -> Iterator[Origin]:
    yield Origin("HBM ledger", gib(sum(document.hbm.ledger.values())), SIZES)
    yield Origin("host ledger", gib(sum(document.host.ledger.values())), SIZES)
    if document.mem_fraction_static is not None:
        yield Origin(
            "mem_fraction_static", f"{document.mem_fraction_static:g}", "follows from the HBM ledger"
        )


def _hardware(document: PlacementDocument) -> Iterator[Origin]:
    hardware = document.hardware
    for name, part in hardware.items():
        if isinstance(part, dict):
            source = f" ({part['source']})" if part.get("source") else ""
            yield Origin(
                name.upper(), str(part.get("name", "unnamed")), f"{part.get('provenance', '')}{source}"
            )
    if "provenance" in hardware:
        yield Origin("hardware", str(hardware.get("name", "")), str(hardware["provenance"]))


def _profiled(profile: Profile) -> Iterator[Origin]:
    made = f"profile of {profile.created}, placer {profile.placer_version}"
    yield Origin("CPU cost model", profile.cpu.device, f"{profile.cpu.provenance_text}; {made}")
    error = profile.heldout_error
    if error is not None:
        calls = f"{error.calls:,} held-out calls; {made}"
        yield Origin("its mean error", percent(error.mape), calls)
        yield Origin("its error, 90th percentile", percent(error.p90_error), calls)
    yield Origin("GPU cost model", profile.gpu.name, profile.gpu.provenance_text)
    yield Origin("rest of a layer", profile.gpu.name, profile.gpu.base_provenance_text)
    known = profile.uncertainty
    for side, (low, high) in (("cold", known.cold), ("hot", known.hot), ("base", known.base)):
        yield Origin(f"{side} times may be", f"{low:.2f} to {high:.2f} of those stated", known.reasons[side])
    for note in profile.calibration_notes:
        yield Origin("calibration", "", note)


def _reason(document: PlacementDocument, path: str) -> str:
    """Why the number at ``path`` is null."""
    reasons = document.null_reasons
    while path not in reasons and "." in path:
        path = path.rpartition(".")[0]
    return reasons.get(path, "not stated")
