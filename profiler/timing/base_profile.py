"""Profile the base of a step: what surrounds the routed experts, timed on this machine's GPU in its own process."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

import placer.errors
from placer.errors import MissingComponentError, PlacerError
from placer.kernels.gpu_needs import ELSEWHERE
from placer.model.spec import ModelSpec
from placer.output import write_text
from placer.profiler.base_cost import BaseCost
from placer.profiler.timing.base_plan import BasePlan, base_plan
from placer.profiler.timing.campaign import POLL_SECONDS, Progress

MAX_SECONDS = 60.0
"""Wall time of the rounds unless the caller says otherwise."""
STALL_SECONDS = 300.0
"""Silence after which the process counts as hung: FlashInfer compiles a kernel for every shape, a minute each."""


def profile_base(
    model: ModelSpec,
    tp: int,
    *,
    max_seconds: float = MAX_SECONDS,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    stall_seconds: float = STALL_SECONDS,
) -> BaseCost:
    """Time ``model``'s layers outside their routed experts, on one GPU of ``tp``, inside CUDA graphs.

    Raises
    ------
    BadInputError
        When ``tp`` does not divide the heads, or time or memory is too short.
    MissingComponentError
        When there is no GPU, no attention kernel computes what it should, or the process crashes or hangs.
    """
    if not torch.cuda.is_available():
        raise MissingComponentError(f"torch {torch.__version__} finds no CUDA device", ELSEWHERE)
    return run_plan(
        base_plan(model, tp, seed=seed, max_seconds=max_seconds),
        progress=progress,
        stall_seconds=stall_seconds,
    )


def run_plan(
    plan: BasePlan,
    *,
    progress: Callable[[Progress], None] | None = None,
    stall_seconds: float = STALL_SECONDS,
) -> BaseCost:
    """Run the worker for ``plan``; raises what `profile_base` raises."""
    with tempfile.TemporaryDirectory(prefix="placer-base-") as folder:
        plan_path, out_path, log_path = (Path(folder) / name for name in ("plan.json", "out.jsonl", "log"))
        write_text(plan_path, json.dumps(asdict(plan)))
        out_path.touch()
        with log_path.open("wb") as log:
            # -P keeps the working folder off the module path, where a folder may be called like a package.
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "placer.profiler.timing.base_worker",
                    str(plan_path),
                    str(out_path),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then kills the worker.
            )
            try:
                last = _followed(process, out_path, progress, stall_seconds)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if last.get("event") == "done":
            return TypeAdapter(BaseCost).validate_python(last["cost"])
        raise _failure(last, process.returncode, log_path.read_text(encoding="utf-8", errors="replace"))


def _followed(
    process: subprocess.Popen[bytes],
    out_path: Path,
    progress: Callable[[Progress], None] | None,
    stall_seconds: float,
) -> dict[str, Any]:
    """The last whole event once the process has ended, or has been silent too long."""
    last: dict[str, Any] = {}
    last_sign = time.monotonic()
    with out_path.open("rb") as out:
        while True:
            ended = process.poll() is not None
            position = out.tell()
            line = out.readline()
            if line.endswith(b"\n"):
                last, last_sign = json.loads(line), time.monotonic()
                if progress is not None and last["event"] == "progress":
                    progress(Progress(last["stage"], last["done"], last["total"]))
                continue
            out.seek(position)  # A line still being written: read it whole next time.
            if ended:
                return last
            if time.monotonic() > last_sign + stall_seconds:
                return {"event": "stalled", "stage": last.get("stage"), "seconds": stall_seconds}
            time.sleep(POLL_SECONDS)


def _failure(last: dict[str, Any], code: int, log: str) -> PlacerError:
    if last.get("event") == "error":
        kind: type[PlacerError] = getattr(placer.errors, last["kind"])
        return kind(last["what"], last["hint"])
    where = f"while {last['stage']}" if last.get("stage") else "while starting"
    if last.get("event") == "stalled":
        what = f"no sign of life for {last['seconds']:.0f} s"
    else:
        lines = [line for line in log.splitlines() if line.strip()]
        what = f"ended with code {code}: {lines[-1] if lines else 'no message'}"
    return MissingComponentError(
        f"timing attention and projections {where}: {what}", "try again; if it repeats, use --gpu NAME"
    )
