"""What an sglang-kt 0.7.2 server applied, by its log or its dumped mask, held against the plan."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from placer.errors import BadInputError
from placer.exports.applied import Applied, Comparison
from placer.exports.kt_arguments import agrees, planned_arguments
from placer.exports.kt_selection import RUNTIME, kt_layout
from placer.exports.kt_server_log import ServerLog, read_server_log
from placer.hbm import WEIGHT_CLASSES
from placer.input import checked_input
from placer.placement import PlacementDocument
from placer.profiler.trace.recorder_dump import load_dump
from placer.solvers.problem import Mask
from placer.units import GIB, gib

MEMORY_SHARE, MEMORY_BYTES = 0.02, GIB // 4
"""Memory is as planned within 2 % or a quarter of a GiB, whichever is more: allocators round, logs too."""

_LAUNCH = "start with launch.sh, with no flags behind it that the plan decides"
_SMALL = "less memory was free than planned: free the GPU, raise --mem-fraction-static, or solve again"
_WEIGHTS = "the ledger counts other weights: solve for this checkpoint, or tell --hbm-budget what is left"
_MASK_CURE = (
    "give a gpu_expert_distribution_*.pt, which a server of an export that has record.sh leaves at its dump"
)
_SHOWN = 6


def check_log(placement: PlacementDocument, path: Path) -> Applied:
    """The plan against the server log at ``path``.

    Hot experts of each layer, KV tokens and running requests must be in the log; memory and the server's
    arguments are compared where they are.

    Raises
    ------
    BadInputError
        When the file is no log of a starting server.
    """
    log = read_server_log(path)
    rows = (
        *_experts(placement, log),
        *_capacity(placement, log),
        *_memory(placement, log),
        *_arguments(placement, log),
    )
    return Applied(RUNTIME, str(path), rows)


def check_dump(placement: PlacementDocument, path: Path) -> Applied:
    """The plan against the mask that the server dumped: every expert of every recorded pass.

    ``path`` is a gpu_expert_distribution_*.pt of a server with --record-kt-gpu-expert-distribution. Only plain
    tensors are loaded. Passes without any hot expert cannot be told from unused rows of the buffer.

    Raises
    ------
    BadInputError
        When the file is no such dump, of another model, or holds no pass.
    """
    masks = _masks(path)
    planned, layers = placement.hot_mask(), list(placement.model.layers)
    config = placement.model.config
    total = None if config is None else kt_layout(config).num_layers
    if (
        masks.shape[2] != placement.model.experts
        or masks.shape[1] <= layers[-1]
        or total not in (None, masks.shape[1])
    ):
        raise BadInputError(
            f"{path}: its masks are of {masks.shape[1]} layers with {masks.shape[2]} experts; the plan is for "
            f"{placement.model.experts} experts in layers up to {layers[-1]}"
            + ("" if total is None else f" of {total}"),
            "give a dump of the server that runs this placement",
        )
    passes = masks[masks.any(axis=(1, 2))][:, layers]
    if planned.any() and not len(passes):
        raise BadInputError(
            f"{path}: no pass was recorded", "send requests between ./record.sh start and ./record.sh dump"
        )
    rows = [_mask_row(layer, planned[row], passes[:, row]) for row, layer in enumerate(layers)]
    if total is None and masks.shape[1] != layers[-1] + 1:
        why = f"the dump has {masks.shape[1]}, and the placement carries no model config that says how many"
        rows.append(Comparison("layers of the model", f"{layers[-1] + 1} or more", None, None, why))
    return Applied(RUNTIME, str(path), tuple(rows))


def _masks(path: Path) -> Mask:
    """The dumped masks: bool [passes, num_layers, E]."""
    masks = load_dump(checked_input(path, what="mask dump", cure=_MASK_CURE)).get("gpu_expert_masks")
    if (
        not isinstance(masks, torch.Tensor)
        or masks.dtype != torch.bool
        or masks.layout != torch.strided
        or masks.ndim != 3
        or masks.numel() > masks.untyped_storage().nbytes()
    ):
        raise BadInputError(f"{path}: it holds no masks [passes, layers, experts]", _MASK_CURE)
    found: Mask = masks.numpy()
    return found


def _mask_row(layer: int, planned: Mask, passes: Mask) -> Comparison:
    """``planned`` is bool [E], ``passes`` bool [passes, E]: the masks of one layer."""
    what, hot = f"layer {layer}: hot experts", int(planned.sum())
    wrong = np.flatnonzero((passes != planned).any(axis=1))
    if not len(wrong):
        return Comparison(what, str(hot), f"{hot}, the same ones in {len(passes)} passes", True)
    found = passes[wrong[0]]
    missing, extra = np.flatnonzero(planned & ~found), np.flatnonzero(found & ~planned)
    difference = "; ".join(
        f"{name} {_some(ids.tolist())}"
        for name, ids in (("not hot:", missing), ("also hot:", extra))
        if len(ids)
    )
    moves = (passes != passes[0]).any()
    do = (
        "the hot set changes while serving: leave --kt-enable-dynamic-expert-update unset"
        if moves
        else f"the server runs another plan: {_LAUNCH}"
    )
    seen = f"{int(found.sum())} in {len(wrong)} of {len(passes)} passes ({difference})"
    return Comparison(what, str(hot), seen, False, do)


def _some(ids: list[int]) -> str:
    shown = ", ".join(str(each) for each in ids[:_SHOWN])
    return shown + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


def _experts(placement: PlacementDocument, log: ServerLog) -> Iterator[Comparison]:
    for complaint in log.complaints:
        yield Comparison("warnings of the server", "none", complaint, False, _LAUNCH)
    if not log.hot:
        yield Comparison(
            "hot experts",
            f"{placement.hot_total:,} in {len(placement.model.layers)} layers",
            None,
            False,
            "no line 'KT GPU experts': KT is off and every expert is on the GPU, or the log ends before",
        )
        return
    if log.strategy not in (None, "frequency"):
        yield Comparison("strategy", "frequency", log.strategy, False, _LAUNCH)
    planned = {layer: len(placement.hot.get(str(layer), ())) for layer in placement.model.layers}
    for layer in placement.model.layers:
        found = log.hot.get(layer)
        same = found == planned[layer]
        yield Comparison(
            f"layer {layer}: hot experts",
            str(planned[layer]),
            None if found is None else str(found),
            same,
            "" if same else _LAUNCH,
        )
    for layer in sorted(set(log.hot) - set(planned)):
        # Layers that are dense in truth are ranked last: the runtime counts them and finds none hot.
        if log.hot[layer]:
            yield Comparison(
                f"layer {layer}: hot experts", "0 (a dense layer)", str(log.hot[layer]), False, _LAUNCH
            )


def _capacity(placement: PlacementDocument, log: ServerLog) -> Iterator[Comparison]:
    for what, planned, found in (
        ("KV tokens", placement.kv.tokens, log.kv_tokens),
        ("running requests", placement.kv.max_running_requests, log.running),
    ):
        do = ""
        if found is None:
            do = "no line 'max_total_num_tokens=': the server did not finish starting, or the log is cut"
        elif found < planned and log.profiled_tokens is not None:
            do = f"the server found room for {log.profiled_tokens:,} tokens: {_SMALL}"
        elif found != planned:
            do = _SMALL if found < planned else _LAUNCH
        yield Comparison(what, f"{planned:,}", None if found is None else f"{found:,}", found == planned, do)
    states = placement.kv.max_mamba_cache_size
    if states is not None and log.states is not None:
        same = log.states == states
        yield Comparison(
            "slots for recurrent states", f"{states:,}", f"{log.states:,}", same, "" if same else _LAUNCH
        )


def _memory(placement: PlacementDocument, log: ServerLog) -> Iterator[Comparison]:
    ledger = placement.hbm.ledger
    weights = (
        sum(ledger[name] for name in ("hot_experts", "repacking", *WEIGHT_CLASSES))
        if placement.hbm.is_complete
        else None
    )
    for what, planned, found, do in (
        ("memory of the weights, per GPU", weights, log.weights_bytes, _WEIGHTS),
        ("memory of the KV pool, per GPU", ledger.get("kv_pool"), log.cache_bytes, _SMALL),
    ):
        if planned is None:
            continue
        if not found:
            yield Comparison(what, gib(planned), None, None, "the log does not say")
            continue
        rank, worst = max(found.items(), key=lambda item: abs(item[1] - planned))
        same = abs(worst - planned) <= max(MEMORY_SHARE * planned, MEMORY_BYTES)
        named = f" (rank {rank})" if len(found) > 1 else ""
        yield Comparison(what, gib(planned), f"{gib(worst)}{named}", same, "" if same else do)


def _arguments(placement: PlacementDocument, log: ServerLog) -> Iterator[Comparison]:
    """The server's own arguments, after its adjustments."""
    if not log.arguments:
        yield Comparison(
            "arguments",
            "those of config.yaml",
            None,
            None,
            "no readable line 'server_args=ServerArgs(...)'; keep the log from its first line: "
            "./launch.sh 2>&1 | tee server.log",
        )
        return
    missing = []
    for name, accepted in planned_arguments(placement).items():
        found, flag = log.arguments.get(name), f"--{name.replace('_', '-')}"
        if found is None:
            missing.append(flag)
            continue
        same = agrees(found, accepted)
        yield Comparison(flag, accepted[0], found, same, "" if same else _LAUNCH)
    if missing:
        yield Comparison(
            "arguments", ", ".join(missing), None, None, f"the log does not show {', '.join(missing)}"
        )
