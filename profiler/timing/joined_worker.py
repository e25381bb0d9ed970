"""The process that runs both sides: ``python -m placer.profiler.timing.joined_worker SPEC.json OUT``.

Lines of JSON are appended to OUT, each with an ``event``; the last one is ``done`` with all samples, or ``error``.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from pydantic import TypeAdapter

from placer.errors import BadInputError, PlacerError
from placer.kernels.backends import CPU_BACKENDS, GPU_BACKENDS
from placer.kernels.expert_mlp import ExpertMLP
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.joined_layer import JoinedInputs, JoinedLayer
from placer.kernels.output_check import check_output
from placer.kernels.torch_fp8 import TorchFp8
from placer.profiler.timing.joined_step import joined_routing
from placer.profiler.timing.joined_timing import LEAST_ROUNDS, ROUNDS, JoinedSpec
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.residency import choose_residency
from placer.profiler.timing.stopwatch import wall_clock
from placer.profiler.timing.worker import ResultFile


def main(arguments: list[str]) -> int:
    """Run the spec of ``SPEC.json`` into ``OUT``; 0 when the last line is the event ``done``."""
    spec_path, out_path = (Path(argument) for argument in arguments)
    results = ResultFile(out_path)
    try:
        _run(TypeAdapter(JoinedSpec).validate_json(spec_path.read_bytes()), results)
    except PlacerError as error:
        results.write("error", kind=type(error).__name__, what=error.what, hint=error.hint)
        return error.exit_code
    return 0


def _run(spec: JoinedSpec, results: ResultFile) -> None:
    deadline = time.monotonic() + spec.max_seconds
    machine = this_machine()
    cold_kind = next(kind for kind in CPU_BACKENDS if kind.name == spec.cold_backend)
    cold = cold_kind.open(spec.threads, spec.subpools)
    # TorchFp8 on the CPU takes a GPU's place in tests alone: `verify_joined` asks for a device first.
    hot: ExpertMLP = TorchFp8("cpu") if spec.device == "cpu" else _hot_kind(spec).open(1, 1)
    most_tokens = max(step.tokens for step in spec.steps)
    layers = []
    for side, backend, shape in (("cold", cold, spec.cold_shape), ("hot", hot, spec.hot_shape)):
        results.progress(f"loading {side} experts", 0, 1)
        on_gpu = side == "hot" and spec.device == "cuda"
        cache = (
            torch.cuda.get_device_properties(0).L2_cache_size if on_gpu else machine.last_level_cache_bytes
        )
        free = torch.cuda.mem_get_info()[0] if on_gpu else machine.available_bytes
        layer_bytes = shape.experts * backend.bytes_per_expert(shape)
        residency = choose_residency(layer_bytes, cache, free, spec.resident_bytes)
        backend.load_random(shape, residency.layers, seed=spec.seed, max_tokens=most_tokens)
        check_output(backend, shape, most_tokens, spec.seed)
        layers.append(residency.layers)
    joined = JoinedLayer(hot, cold, device=spec.device)
    try:
        times = _rounds(spec, joined, layers[1], layers[0], deadline, results)
    finally:
        joined.close()
    results.write("done", times_us=times, kernels=[backend.variant() for backend in (hot, cold)])


def _hot_kind(spec: JoinedSpec) -> type[ExpertMLP]:
    return next(kind for kind in GPU_BACKENDS if kind.name == spec.hot_backend)


def _rounds(
    spec: JoinedSpec,
    joined: JoinedLayer,
    hot_layers: int,
    cold_layers: int,
    deadline: float,
    results: ResultFile,
) -> list[list[float]]:
    """Samples [rounds][steps]: every step once per round in random order, on experts and layers drawn anew."""
    generator = np.random.default_rng(spec.seed)
    hidden = spec.cold_shape.hidden_size
    # Ids of both sides are drawn over all of the model's experts; widths play no part in them.
    shape: ExpertShape = spec.cold_shape
    rounds: list[list[float]] = []
    while len(rounds) <= LEAST_ROUNDS or (len(rounds) <= ROUNDS and time.monotonic() < deadline):
        if rounds and len(rounds) < LEAST_ROUNDS and time.monotonic() > deadline + spec.max_seconds:
            raise BadInputError(
                f"{len(spec.steps)} layer-steps do not fit into the time", "run fewer, or give more seconds"
            )
        times = [0.0] * len(spec.steps)
        for done, index in enumerate(generator.permutation(len(spec.steps)).tolist()):
            step = spec.steps[index]
            hot_ids, cold_ids = joined_routing(step, shape, generator)
            x = torch.randn(step.tokens, hidden).to(torch.bfloat16)
            weights = torch.full((step.tokens, shape.top_k), 1.0 / shape.top_k)
            run = joined.bound(
                int(generator.integers(hot_layers)),
                int(generator.integers(cold_layers)),
                JoinedInputs(x, weights, hot_ids, cold_ids),
            )
            times[index] = wall_clock(run)
            results.progress(
                "running both sides", len(rounds) * len(times) + done + 1, (ROUNDS + 1) * len(times)
            )
        rounds.append(times)
    return rounds[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
