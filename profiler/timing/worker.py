"""The process that loads a kernel and times it: ``python -m placer.profiler.timing.worker SPEC.json OUT [KEPT]``.

Native code may crash and writes to stdout, so a campaign runs here and reports through lines of JSON appended
to OUT. Every line has an ``event``; what was written before a crash stays readable. KEPT is the journal of an
earlier run that this one goes on with.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from placer.errors import MissingComponentError, PlacerError
from placer.kernels.backends import CPU_BACKENDS, GPU_BACKENDS
from placer.kernels.expert_mlp import ExpertMLP
from placer.kernels.output_check import check_output
from placer.profiler.timing.border import Border, probe_border, probe_rows
from placer.profiler.timing.call import Call, Role, least_tokens, routing
from placer.profiler.timing.journal import earlier_rounds, read_events
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.machine_speed import dense_arithmetic, gpu_bandwidth, read_bandwidth_bytes_per_s
from placer.profiler.timing.plan import affordable_calls, all_calls, essential_calls, price_regimes
from placer.profiler.timing.residency import Residency, choose_residency
from placer.profiler.timing.rounds import Tally, run_rounds
from placer.profiler.timing.samples import Event, planned_calls
from placer.profiler.timing.spec import CampaignSpec
from placer.profiler.timing.stopwatch import Stopwatch, cuda_graph_stopwatch, wall_clock

PROBE_SAMPLES = 9
"""Samples of each call that prices a grid."""
PROGRESS_SECONDS = 0.2
"""Least time between two progress lines."""


class ResultFile:
    """Appends events to the result file, each on a line of its own and at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._parent = os.getppid()
        self._last_progress = 0.0

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Append how far a stage is, unless the last such line is very recent; end when nobody reads."""
        if os.getppid() != self._parent:
            sys.exit(1)
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_SECONDS:
            self._last_progress = now
            self.write("progress", stage=stage, done=done, total=total)


def main(arguments: list[str]) -> int:
    """Run the campaign of ``SPEC.json`` into ``OUT``; 0 when the last line is the event ``done``."""
    spec_path, out_path, *kept = (Path(argument) for argument in arguments)
    results = ResultFile(out_path)
    try:
        _run(CampaignSpec.read(spec_path), results, read_events(kept[0]) if kept else [])
    except PlacerError as error:
        results.write("error", kind=type(error).__name__, what=error.what, hint=error.hint)
        return error.exit_code
    return 0


def _run(spec: CampaignSpec, results: ResultFile, earlier: list[Event]) -> None:
    deadline = time.monotonic() + spec.max_seconds
    machine = this_machine()
    results.write("machine", **asdict(machine))
    results.progress("measuring memory bandwidth", 0, 1)
    cache_bytes = machine.last_level_cache_bytes if spec.resident_bytes is None else 0
    for threads in sorted({1, spec.threads, machine.usable_cores}):
        speed = read_bandwidth_bytes_per_s(threads, cache_bytes)
        results.write("bandwidth", device="cpu", threads=threads, bytes_per_s=speed)
    if not spec.only_extra and spec.device == "cpu":
        for product in dense_arithmetic(spec.threads):
            results.write("arithmetic", **asdict(product))
    if spec.device == "gpu":
        results.write("bandwidth", **asdict(gpu_bandwidth()))
    backend = _build(spec)
    hint = type(backend).border_hint(spec.shape)
    residency = _residency(spec, backend, machine.last_level_cache_bytes, machine.available_bytes)
    max_tokens = _most_tokens(spec, hint)
    results.write("progress", stage="loading", done=0, total=residency.layers)
    backend.load_random(spec.shape, residency.layers, seed=spec.seed, max_tokens=max_tokens)
    results.write("progress", stage="checking", done=0, total=1)
    error = check_output(backend, spec.shape, max_tokens, spec.seed)
    results.write(
        "loaded",
        method=backend.method,
        variant=backend.variant(),
        version=backend.version(),
        layers=residency.layers,
        resident_bytes=residency.resident_bytes,
        bytes_per_expert=backend.bytes_per_expert(spec.shape),
        output_error=error,
        note=residency.note,
    )
    done = earlier_rounds(earlier)
    generator = np.random.default_rng((spec.seed, len(done.times_us) if done else 0))
    time_us = sampler(spec, backend, residency.layers, max_tokens, generator)
    plan = next((event for event in earlier if event["event"] == "plan"), None)
    if plan is None:
        border = Border(None, "one algorithm for all calls, as its source says")
        if hint is not None and not spec.only_extra:
            border = _probe(spec, hint, time_us, results)
        calls, notes = _plan(spec, border.tokens, max_tokens, time_us, deadline - time.monotonic())
        plan = {
            "border": border.tokens,
            "how": border.how,
            "contrast": border.contrast,
            "calls": [asdict(call) for call in calls],
        }
        results.write("plan", **plan, notes=notes)
    else:
        border = Border(plan["border"], plan["how"], plan.get("contrast"))
        calls = planned_calls(plan)
    tally = run_rounds(
        calls,
        time_us,
        deadline=deadline,
        rounds=spec.rounds,
        min_rounds=spec.min_rounds,
        # Of calls in order of preference the first is timed whatever it costs.
        essential=frozenset({0}) if spec.only_extra else essential_calls(calls, border.tokens),
        earlier=done,
        generator=generator,
        on_round=lambda tally: _write_round(tally, results),
        on_progress=lambda done, total: results.progress("timing", done, total),
    )
    results.write("done", notes=tally.notes)


def _build(spec: CampaignSpec) -> ExpertMLP:
    backends = CPU_BACKENDS if spec.device == "cpu" else GPU_BACKENDS
    chosen = next(backend for backend in backends if backend.name == spec.backend)
    problem = chosen.problem(spec.shape, spec.threads)
    if problem is not None:
        raise MissingComponentError(f"kernel {spec.backend} cannot run: {problem}", problem.cure)
    return chosen.open(spec.threads, spec.subpools)


def _residency(spec: CampaignSpec, backend: ExpertMLP, cache_bytes: int, free_bytes: int) -> Residency:
    if backend.device == "cuda":
        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        free_bytes = torch.cuda.mem_get_info()[0]
    layer_bytes = spec.shape.experts * backend.bytes_per_expert(spec.shape)
    return choose_residency(layer_bytes, cache_bytes, free_bytes, spec.resident_bytes)


def _plan(
    spec: CampaignSpec,
    border: int | None,
    max_tokens: int,
    time_us: Callable[[Call], float],
    seconds: float,
) -> tuple[tuple[Call, ...], list[str]]:
    """The calls to time and a note on what was thinned."""
    if spec.only_extra:
        return spec.extra_calls, []

    def quartile_us(call: Call) -> float:
        return float(np.quantile([time_us(call) for _ in range(PROBE_SAMPLES)], 0.25))

    prices = price_regimes(spec.shape, border, quartile_us)
    calls, note = affordable_calls(spec, border, prices, seconds)
    return tuple(call for call in calls if call.tokens <= max_tokens), [note] if note else []


def _most_tokens(spec: CampaignSpec, hint: int | None) -> int:
    # Memory for the largest call is set aside before the border is known: plan for both outcomes.
    probe = 0 if hint is None else 2 * hint + 2
    planned = spec.extra_calls
    if not spec.only_extra:
        planned = (*all_calls(spec, None, 0), *all_calls(spec, hint, 0))
    return max(probe, *(call.tokens for call in planned))


def sampler(
    spec: CampaignSpec, backend: ExpertMLP, layers: int, max_tokens: int, generator: np.random.Generator
) -> Callable[[Call], float]:
    """Time of one call on experts and a layer drawn anew."""
    device = backend.device
    drawn = torch.Generator().manual_seed(spec.seed)
    inputs = torch.randn(max_tokens, spec.shape.hidden_size, generator=drawn).to(torch.bfloat16).to(device)
    weights = torch.full((max_tokens, spec.shape.top_k), 1.0 / spec.shape.top_k)
    stopwatch: Stopwatch = cuda_graph_stopwatch() if device == "cuda" else wall_clock

    def sample(call: Call) -> float:
        ids = torch.from_numpy(routing(call, spec.shape, generator))
        layer = int(generator.integers(layers))
        return stopwatch(backend.bound(layer, inputs[: call.tokens], ids, weights[: call.tokens]))

    return sample


def _probe(spec: CampaignSpec, hint: int, time_us: Callable[[Call], float], results: ResultFile) -> Border:
    """The border, from the same rows in calls of different token counts."""
    rows = probe_rows(spec.shape, hint)
    least = least_tokens(rows, spec.shape.top_k)

    def sample_us(tokens: int) -> float:
        results.progress("finding where it changes its algorithm", 0, 1)
        return time_us(Call(rows, tokens, Role.GRID, "border"))

    return probe_border(sample_us, hint, least, 2 * hint + 1)


def _write_round(tally: Tally, results: ResultFile) -> None:
    results.write(
        "round",
        index=len(tally.times_us),
        kept=list(tally.kept),
        times_us=tally.times_us[-1],
        anchor_us=tally.anchor_us[-1],
        used=asdict(tally.used[-1]),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
