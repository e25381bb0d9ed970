"""The whole GPU campaign: what is here and what is missing, every kernel that runs, and a profile for every model.

``python -m placer.examples.gpu_campaign --model DIR_OR_CONFIG... [--tp N...] [-o DIR]``; exit 4 without a GPU.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from placer.errors import BadInputError, MissingComponentError, PlacerError
from placer.examples.ending import end_with
from placer.kernels.all_reduce import all_reduce_problem
from placer.kernels.backends import GPU_BACKENDS
from placer.kernels.expert_shape import ExpertShape
from placer.model.spec import GPU_FORMAT, ModelSpec, read_model
from placer.output import output_folder, write_text
from placer.profiler.profile import write_profile
from placer.profiler.profiling import FULL_SECONDS, ProfileRequest, profile_model
from placer.profiler.timing.campaign import Progress
from placer.profiler.timing.gpu_profile import profile_gpu

KERNEL_SECONDS = 60.0
"""Wall time for one kernel at one shape, beside compiling it."""
PROBE = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=128, top_k=8)
"""Shapes that every kernel takes: a refusal of them is about the machine."""
OPTIONAL = {
    "flashinfer": "attention is timed by torch's kernels",
    "kt_kernel": "the CPU's side is timed with torch's INT4 kernel, which no hybrid server runs",
}


@dataclass(frozen=True)
class Component:
    """Something that the campaign uses: whether it is here, and what is the case where it is not."""

    name: str
    missing: str | None


def components(tp: Sequence[int]) -> list[Component]:
    """GPU, kernels, sums and optional packages, in the order that they matter; nothing native is imported."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [Component("CUDA device", None if gpus else f"torch {torch.__version__} finds none")]
    for backend in GPU_BACKENDS:
        problem = backend.problem(PROBE, 1)
        found.append(Component(f"kernel {backend.name}", None if problem is None else str(problem)))
    for size in tp:
        if size > 1:
            problem = all_reduce_problem(size)
            found.append(Component(f"sums over {size} GPUs", None if problem is None else str(problem)))
    for package, otherwise in OPTIONAL.items():
        here = importlib.util.find_spec(package) is not None
        found.append(Component(f"package {package}", None if here else f"not installed: {otherwise}"))
    return found


def jobs(models: Sequence[ModelSpec], tp: Sequence[int]) -> tuple[list[tuple[ModelSpec, int]], list[str]]:
    """(model, tp) to profile, and why the others are left out."""
    chosen, left_out = [], []
    for model in models:
        if model.expert_format["gpu"] != GPU_FORMAT:
            left_out.append(
                f"{model.name}: hot experts in {model.expert_format['gpu']}, which no kernel computes"
            )
            continue
        shape = _shape(model)
        for size in tp:
            try:
                model.weights_bytes_per_gpu(size)
                problem = model.fp8_tp_problem(size) or _partial_blocks(shape)
            except BadInputError as error:
                problem = error.what
            if problem:
                left_out.append(f"{model.name} at tp {size}: {problem}")
            else:
                chosen.append((model, size))
    return chosen, left_out


def _partial_blocks(shape: ExpertShape) -> str | None:
    sizes = (shape.hidden_size, shape.expert_intermediate_size)
    return f"sizes {sizes} leave partial FP8 blocks of 128" if any(size % 128 for size in sizes) else None


def _shape(model: ModelSpec) -> ExpertShape:
    return ExpertShape(model.expert_hidden_size, model.expert_intermediate_size, model.experts, model.top_k)


def run(model: ModelSpec, tp: int, folder: Path, *, max_seconds: float, seed: int) -> Path:
    """Time every kernel that runs, then profile the model with the first of them; the profile's path.

    Beside the profile lies what every kernel reached, with its error or with why it failed.
    """
    kernels: list[dict[str, Any]] = []
    for backend in GPU_BACKENDS:
        entry: dict[str, Any] = {"kernel": backend.name}
        try:
            timed = profile_gpu(_shape(model), tp, backend=backend.name, max_seconds=KERNEL_SECONDS, seed=seed,
                                progress=_progress(f"{model.name} tp {tp}, {backend.name}"))  # fmt: skip
            entry |= {
                "variant": timed.variant,
                "version": timed.version,
                "output_error": timed.output_error,
                "heldout": asdict(timed.report.overall),
                "achieved_bytes_per_s": timed.achieved_bytes_per_s,
                "achieved_share": timed.achieved_share,
                "points": [asdict(point) for point in timed.points],
            }
            reached = (
                f"held-out MAPE {timed.report.overall.mape:.1%}, {timed.achieved_share:.0%} of bandwidth"
            )
            print(
                f"  {backend.name}: {reached}, output off by {timed.output_error or 0:.1%}", file=sys.stderr
            )
        except PlacerError as error:
            entry["failed"] = error.what
            print(f"  {backend.name}: {error.what}", file=sys.stderr)
        kernels.append(entry)
    ran = [entry["kernel"] for entry in kernels if "failed" not in entry]
    if not ran:
        raise MissingComponentError(f"no GPU kernel ran for {model.name}", "install sglang, vllm or triton")
    request = ProfileRequest(tp=tp, gpu_kernel=ran[0], max_seconds=max_seconds, seed=seed)
    profile = profile_model(model, None, request, lambda text, share: _show(f"{model.name}: {text}", share))
    path = folder / f"{model.name}-tp{tp}-{profile.gpu.name}.json"
    write_profile(profile, path)
    write_text(path.with_suffix(".kernels.json"), json.dumps(kernels, indent=1))
    return path


def _progress(text: str) -> Any:
    def show(done: Progress) -> None:
        _show(f"{text}: {done.stage}", done.done / max(1, done.total))

    return show


def _show(text: str, share: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{text[:80]:80} {share:4.0%}", end="\r", file=sys.stderr)


def models_in(paths: Sequence[Path]) -> list[ModelSpec]:
    """Checkpoint directories, configs, and folders of configs, in order."""
    found = []
    for path in paths:
        lone = path.is_dir() and not (path / "config.json").exists()
        found += [read_model(each) for each in (sorted(path.glob("*.json")) if lone else [path])]
    if not found:
        raise BadInputError(
            "no model is given", "name checkpoint directories, or a folder of config.json files"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Say what is missing, then run; 0 done, 2 bad input, 4 no GPU or no kernel."""
    parser = argparse.ArgumentParser(description="Profile models on this machine's GPU with every kernel.")
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--tp", type=int, nargs="+", default=[1])
    parser.add_argument("-o", "--output", type=Path, default=Path("profiles"))
    parser.add_argument("--max-seconds", type=float, default=FULL_SECONDS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        found = components(options.tp)
        for each in found:
            state = "here" if each.missing is None else f"missing ({each.missing})"
            print(f"{each.name}: {state}", file=sys.stderr)
        if found[0].missing is not None:
            raise MissingComponentError(
                "no GPU is present: the campaign would time nothing", "run it on the machine that has the GPU"
            )
        chosen, left_out = jobs(models_in(options.model), options.tp)
        for reason in left_out:
            print(f"left out: {reason}", file=sys.stderr)
        output_folder(options.output)
        for model, tp in chosen:
            path = run(model, tp, options.output, max_seconds=options.max_seconds, seed=options.seed)
            print(f"wrote {path}", file=sys.stderr)
    except PlacerError as error:
        print(f"error: {error.what}\n  do: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    end_with(main)
