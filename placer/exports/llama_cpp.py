"""Export to llama.cpp and ik_llama.cpp: the layers whose experts stay on the CPU, as one tensor override."""

import shlex
from pathlib import Path

from placer.errors import BadInputError
from placer.exports.folder import ExportFile, write_folder
from placer.exports.gguf_experts import expert_layer_bytes
from placer.exports.layer_choice import LayerChoice, best_layers, room_bytes
from placer.exports.readme import one_line
from placer.exports.result import ExportResult
from placer.exports.runtime_scheduler import scheduler_note
from placer.exports.script import filled, launch_line
from placer.placement import PlacementDocument
from placer.units import gib

LLAMA_CPP = "llama.cpp and ik_llama.cpp"

_LAUNCH = """#!/usr/bin/env bash
# Starts llama.cpp's server with the placement in this folder (written by placer; README.md says what it holds).
#
#   [MODEL_PATH=FILE.gguf] [LLAMA_SERVER=llama-server] ./launch.sh [more flags of llama-server]
set -euo pipefail

DEFAULT_MODEL_PATH=@MODEL_PATH@
MODEL_PATH="${MODEL_PATH:-$DEFAULT_MODEL_PATH}"
LLAMA_SERVER="${LLAMA_SERVER:-llama-server}"
refuse() { printf 'launch.sh: %s\\n' "$1" >&2; exit 2; }

[ -n "$MODEL_PATH" ] || refuse "set MODEL_PATH to the GGUF file (the first of them where it is split)"
[ -f "$MODEL_PATH" ] || refuse "MODEL_PATH=$MODEL_PATH is not a file"
command -v "$LLAMA_SERVER" > /dev/null || refuse "LLAMA_SERVER=$LLAMA_SERVER is not found"

exec "$LLAMA_SERVER" --model "$MODEL_PATH" @FLAGS@ "$@"
"""


def export_llama_cpp(
    placement: PlacementDocument, out_dir: Path, *, model_path: str | None = None
) -> ExportResult:
    """Write ``launch.sh`` and ``README.md`` to ``out_dir``.

    ``model_path`` is a GGUF file; where it is on this machine, its own tensors say what each layer takes.

    Raises
    ------
    BadInputError
        When the placement says too little, plans for several GPUs, or the GGUF file is of another model; nothing
        is written then.
    """
    _check_one_gpu(placement)
    known = model_path is not None and Path(model_path).is_file()
    layer_bytes = (
        expert_layer_bytes(Path(model_path), placement.model) if known and model_path else _assumed(placement)
    )
    choice = best_layers(placement, layer_bytes)
    cold = tuple(layer for layer in placement.model.layers if layer not in choice.hot_layers)
    flags = llama_flags(placement, cold)
    notes = _notes(placement, choice, cold, layer_bytes, known=known)
    script = filled(_LAUNCH, {"FLAGS": shlex.join(flags), "MODEL_PATH": shlex.quote(model_path or "")})
    files = [
        ExportFile("README.md", _readme(placement, choice, flags, notes).encode()),
        ExportFile("launch.sh", script.encode(), executable=True),
    ]
    write_folder(out_dir, files, check=lambda _staged: None)
    line = launch_line(out_dir, {"MODEL_PATH=FILE.gguf": model_path})
    return ExportResult(LLAMA_CPP, Path(out_dir), tuple(file.name for file in files), line, notes)


def check_llama_cpp(placement: PlacementDocument) -> None:
    """Raise BadInputError when the export would refuse ``placement``, whatever the GGUF file."""
    _check_one_gpu(placement)
    best_layers(placement, _assumed(placement))


def _check_one_gpu(placement: PlacementDocument) -> None:
    if placement.tp != 1:
        raise BadInputError(
            f"the plan is for {placement.tp} GPUs under tensor parallelism, which llama.cpp does not split experts by",
            "solve again with --tp 1",
        )


def _assumed(placement: PlacementDocument) -> list[int]:
    """Bytes of each layer's experts where no GGUF file tells: those of the plan's own precision."""
    whole = placement.hbm.expert_bytes
    if whole is None:
        raise BadInputError(
            "the placement does not say what an expert takes (field hbm.expert_bytes)",
            "give the GGUF file with --model-path, or solve again",
        )
    return [placement.model.experts * whole] * len(placement.model.layers)


def override(cold: tuple[int, ...]) -> str:
    """The --override-tensor value that leaves the experts of ``cold`` layers on the CPU.

    Names of tensors are those of the GGUF format: blk.N.ffn_{up,down,gate,gate_up}_exps.weight; biases, which are
    small, stay on the GPU.
    """
    layers = "|".join(str(layer) for layer in cold)
    return rf"blk\.({layers})\.ffn_(up|down|gate|gate_up)_exps\.weight=CPU"


def llama_flags(placement: PlacementDocument, cold: tuple[int, ...]) -> list[str]:
    """Flags of llama-server that both projects take."""
    kv = placement.kv
    flags = ["--n-gpu-layers", "999"]
    if cold:
        flags += ["--override-tensor", override(cold)]
    flags += [
        *("--ctx-size", str(kv.tokens)),
        *("--parallel", str(kv.max_running_requests)),
        *("--batch-size", str(kv.chunked_prefill_size), "--ubatch-size", str(kv.chunked_prefill_size)),
    ]
    if kv.dtype == "fp8":
        flags += ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on"]
    if placement.kt is not None:
        flags += ["--threads", str(placement.kt.threads)]
    return flags


def first_cold(placement: PlacementDocument, cold: tuple[int, ...]) -> int | None:
    """N of the shorter --n-cpu-moe N, where the cold layers are exactly the MoE layers below N; else None."""
    if not cold or cold != placement.model.layers[: len(cold)]:
        return None
    return cold[-1] + 1


def _notes(
    placement: PlacementDocument,
    choice: LayerChoice,
    cold: tuple[int, ...],
    layer_bytes: list[int],
    *,
    known: bool,
) -> tuple[str, ...]:
    planned = placement.predicted.decode_step_ms
    notes = [
        "llama.cpp keeps all experts of a layer in one tensor, so layers are hot or cold as a whole: it does not "
        "follow the plan's hot experts"
    ]
    if not known:
        notes.append(
            f"no GGUF file was read: layers are counted at the plan's {placement.hbm.expert_bytes:,} bytes an expert "
            "(FP8); give the file with --model-path, as other quantisations fit more or fewer layers"
        )
    if not cold:
        notes.append("every layer fits on the GPU: no tensor is overridden")
    elif not choice.hot_layers:
        notes.append(f"no layer's experts fit into {gib(room_bytes(placement))}: all stay on the CPU")
    if choice.decode_step_ms is None:
        notes.append(f"the loss against the plan is not stated: {choice.reason}")
    else:
        lost = choice.decode_step_ms - planned
        notes.append(
            f"predicted decode step {choice.decode_step_ms:,.1f} ms against {planned:,.1f} ms of the plan, "
            f"{abs(lost):,.1f} ms {'slower' if lost >= 0 else 'faster'}, with the kernels that were profiled; "
            "llama.cpp runs its own, so measure it"
        )
    if (scheduler := scheduler_note(placement, "llama.cpp")) is not None:
        notes.append(scheduler)
    if placement.kv.dtype == "fp8":
        notes.append(
            "the KV pool is planned in fp8; q8_0 takes 8.5 bits a value, so the same tokens take 6 % more"
        )
    if (n := first_cold(placement, cold)) is not None:
        notes.append(f"the cold layers are the first: --n-cpu-moe {n} says the same as the tensor override")
    notes.append("newer llama.cpp fits layers by itself unless -fit off is given; the override decides here")
    used = sum(
        size
        for layer, size in zip(placement.model.layers, layer_bytes, strict=True)
        if layer in choice.hot_layers
    )
    notes.append(f"hot layers take {gib(used)} of the plan's {gib(room_bytes(placement))} for experts")
    return tuple(notes)


def _readme(
    placement: PlacementDocument, choice: LayerChoice, flags: list[str], notes: tuple[str, ...]
) -> str:
    hot = ", ".join(str(layer) for layer in choice.hot_layers) or "none"
    return "\n".join(
        [
            f"# {one_line(placement.model.name)} on {LLAMA_CPP}",
            "",
            f"{len(choice.hot_layers)} of {len(placement.model.layers)} MoE layers whole on the GPU, "
            f"{placement.kv.tokens:,} KV tokens.",
            "",
            "    MODEL_PATH=/path/to/model.gguf ./launch.sh",
            "",
            "The same by hand, for either project's `llama-server` or `llama-cli`:",
            "",
            f"    llama-server --model MODEL.gguf {shlex.join(flags)}",
            "",
            f"Layers on the GPU: {hot}.",
            "",
            "## What differs from the plan",
            "",
            *(f"- {note}" for note in notes),
            "",
            "## Check",
            "",
            "With `--verbose`, llama.cpp names every overridden tensor "
            "(`tensor blk.N.ffn_up_exps.weight ... buffer type overridden to CPU`).",
            "",
        ]
    )
