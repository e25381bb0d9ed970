"""One public measured point: hardware, model, settings, what was measured, and where it stands."""

import csv
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placer.cpu_datasheet import CpuAdjustment
from placer.examples import example_folder
from placer.model.spec import ModelSpec, read_model

STRATEGIES = ("random", "uniform", "front_loading", "frequency")
"""kt-kernel's, by the names of `placer.baselines`, in the order of its table."""
LAST_SEEN = 27
"""The last point that was there when factors were tuned."""

_QUANTIZATION: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "gptq4": {"quant_method": "gptq", "bits": 4, "group_size": 128},
}
_HOT_FORMATS = {"bf16": "bf16", "mxfp4": "mxfp4", "int4": "int4_g32"}
"""Of experts on the GPU, where it is not FP8."""


@dataclass(frozen=True)
class PublishedPoint:
    """One measured figure of a server.

    Attributes
    ----------
    number
        Of the first `LAST_SEEN`, odd ones may have tuned a factor and even ones only check; later ones were predicted
        blind.
    model, weights
        A model of models.json, and the precision of its weights on the GPU.
    gpu, tp
        GPU by its sheet's name, and how many.
    cpu, method, threads, adjustment
        CPU by its sheet's name, kernel, threads and differences from the sheet; ``cpu`` is empty where every
        expert is on GPUs and no CPU takes part.
    hot
        Hot experts per layer.
    running, prompt_tokens, output_tokens
        Clients of a closed loop, and their requests.
    requests
        Requests of the whole run, all of one length, whose last round may have fewer clients; None where the server is
        seen in its stride.
    kind
        What was measured: ``decode_tokens_per_s`` of one client while it decodes, ``step_ms`` of a decode step,
        ``tpot_ms``, or ``output_tokens_per_s`` of all clients.
    """

    number: int
    model: str
    weights: str
    gpu: str
    tp: int
    cpu: str
    method: str
    threads: int | None
    adjustment: CpuAdjustment
    hot: int
    running: int
    requests: int | None
    prompt_tokens: int
    output_tokens: int
    kind: str
    measured: float
    source: str
    note: str

    @property
    def tuned(self) -> bool:
        """Whether a factor may have been tuned on it."""
        return not self.blind and self.number % 2 == 1

    @property
    def blind(self) -> bool:
        """Whether it was predicted before anything in the model was looked at for it."""
        return self.number > LAST_SEEN


def published_points() -> tuple[PublishedPoint, ...]:
    """Every point of examples/published/points.csv."""
    return tuple(_point(row) for row in _rows("points.csv"))


def published_strategies() -> dict[int, dict[str, float]]:
    """kt-kernel's table: tokens per second by per cent of hot experts and strategy.

    Source: ktransformers doc/en/kt-kernel/experts-sched-Tutorial.md, Qwen3-Next-80B-A3B in FP8 on four RTX 4090 and
    Xeon Gold 6454S, ShareGPT.
    """
    return {
        int(row["hot_percent"]): {name: float(row[name]) for name in STRATEGIES}
        for row in _rows("strategies.csv")
    }


def published_model(name: str, weights: str) -> ModelSpec:
    """The model called ``name`` in bf16, fp8 or gptq4, or with its experts in mxfp4 or int4."""
    configs: dict[str, dict[str, Any]] = json.loads(
        (example_folder("published") / "models.json").read_text(encoding="utf-8")
    )
    config = configs[name]
    if weights in _QUANTIZATION:
        config = {**config, "quantization_config": _QUANTIZATION[weights]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        model = replace(read_model(Path(folder)), name=name)
    return replace(model, gpu_format=_HOT_FORMATS[weights]) if weights in _HOT_FORMATS else model


def _rows(file: str) -> list[dict[str, str]]:
    with (example_folder("published") / file).open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def _point(row: Mapping[str, str]) -> PublishedPoint:
    def number(field: str) -> int | None:
        return int(row[field]) if row[field] else None

    return PublishedPoint(
        number=int(row["id"]),
        model=row["model"],
        weights=row["weights"],
        gpu=row["gpu"],
        tp=int(row["tp"]),
        cpu=row["cpu"],
        method=row["method"],
        threads=number("threads"),
        adjustment=CpuAdjustment(cores=number("cores"), memory_mts=number("memory_mts")),
        hot=int(row["hot"]),
        running=int(row["running"]),
        requests=number("requests"),
        prompt_tokens=int(row["prompt"]),
        output_tokens=int(row["output"]),
        kind=row["kind"],
        measured=float(row["measured"]),
        source=row["source"],
        note=row["note"],
    )
