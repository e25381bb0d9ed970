"""GPU memory: what is free on each GPU now against the lines of the ledger and the memory fraction."""

import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from placer.hbm import HbmLedger, free_memory_share
from placer.placement import PlacementDocument
from placer.readiness.check import Check, Failure, Verdict
from placer.units import GIB, MIB, counted, gib

_QUERY = ("--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits")
_HOW = "nvidia-smi"
_SECONDS = 60
TIGHT_BYTES = GIB // 4


@dataclass(frozen=True)
class Gpu:
    """One GPU: its name and bytes, as its driver reports them."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Gpus:
    """The GPUs that a server started here would see, in its order; ``problem`` says why there are none to see."""

    seen: tuple[Gpu, ...]
    problem: str = ""


def gpus(command: str = "nvidia-smi") -> Gpus:
    """The GPUs of this machine, those of CUDA_VISIBLE_DEVICES where it is set.

    Asked of nvidia-smi, as sglang-kt itself does: a CUDA context would take memory of its own.
    """
    found = shutil.which(command)
    if found is None:
        return Gpus((), f"{command} is not here")
    try:
        done = subprocess.run(
            [found, *_QUERY], capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Gpus((), f"{command} does not answer: {type(error).__name__}")
    if done.returncode:
        reason = (done.stdout + done.stderr).strip().partition("\n")[0]
        return Gpus((), f"{command} fails: {reason:.120}")
    return _visible(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(listing: str, chosen: str | None) -> Gpus:
    by_name: dict[str, Gpu] = {}
    rows = []
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 5 or not cells[3].isdigit() or not cells[4].isdigit():
            continue
        gpu = Gpu(cells[2], int(cells[3]) * MIB, int(cells[4]) * MIB)
        rows.append(gpu)
        by_name |= {cells[0]: gpu, cells[1]: gpu}
    if not rows:
        return Gpus((), "nvidia-smi lists no GPU that says its memory")
    if chosen is None:
        return Gpus(tuple(rows))
    seen = []
    for name in (part.strip() for part in chosen.split(",")):
        prefixed = (uuid for uuid in by_name if name.startswith("GPU-") and uuid.startswith(name))
        found = by_name.get(name) or by_name.get(next(prefixed, ""))
        # CUDA sees none behind the first name that is no GPU.
        if found is None:
            break
        seen.append(found)
    return Gpus(tuple(seen), "" if seen else f"CUDA_VISIBLE_DEVICES={chosen!r:.80} hides all GPUs")


def check_gpus(placement: PlacementDocument, here: Gpus) -> Iterator[Check]:
    """Their number, and the free memory of the fullest one that the server would take."""
    enough = len(here.seen) >= placement.tp
    listed = ", ".join(f"{gpu.name} ({gib(gpu.total_bytes)})" for gpu in here.seen) or here.problem
    yield Check(
        "GPUs",
        Verdict.OK if enough else Verdict.FAIL,
        f"{len(here.seen)}: {listed}",
        f"{placement.tp} (tensor parallel)",
        _HOW,
        "" if enough else _too_few(len(here.seen)),
        Failure.MISSING,
    )
    if not enough:
        for name in ("free GPU memory", "memory fraction"):
            yield Check(
                name,
                Verdict.UNKNOWN,
                "too few GPUs to look at",
                counted(placement.tp, "GPU"),
                _HOW,
                _too_few(len(here.seen)),
            )
        return
    used = here.seen[: placement.tp]
    gpu = min(used, key=lambda each: each.free_bytes)
    ledger = HbmLedger(placement.hbm.budget_bytes_per_gpu, placement.hbm.ledger)
    short = ledger.needed_bytes - gpu.free_bytes
    do = "stop what runs on it, or solve again with --hbm-budget below " + gib(gpu.free_bytes).replace(
        " ", ""
    )
    yield Check(
        "free GPU memory",
        # The ledger's reserve is a rule of thumb: what is short by less than its steps may still start.
        Verdict.OK if short <= 0 else Verdict.WARN if short <= TIGHT_BYTES else Verdict.FAIL,
        f"GPU {used.index(gpu)} has the least: {gib(gpu.free_bytes)} free of {gib(gpu.total_bytes)}",
        f"{gib(ledger.needed_bytes)} on each GPU (the ledger without its line unused)",
        _HOW,
        "" if short <= 0 else do,
    )
    yield _fraction(placement, ledger, gpu)
    entry = placement.hardware.get("gpu")
    planned = entry.get("usable_bytes") if isinstance(entry, dict) else None
    if isinstance(planned, int) and gpu.total_bytes < planned:
        yield Check(
            "GPU model",
            Verdict.WARN,
            f"{gpu.name}: {gib(gpu.total_bytes)}",
            f"{entry.get('name')}: {gib(planned)}" if isinstance(entry, dict) else "",
            _HOW,
            "times were predicted for the other GPU: profile this one and solve again",
        )


def _too_few(seen: int) -> str:
    if not seen:
        return "run this on the server: a plan needs one GPU at least"
    return f"run this on the server, or solve again with --tp of at most {seen}"


def _fraction(placement: PlacementDocument, ledger: HbmLedger, gpu: Gpu) -> Check:
    """Whether the runtime finds room for the plan's tokens with its memory fraction of what is free now."""
    name = "memory fraction"
    given = placement.mem_fraction_static
    if given is None or not placement.hbm.is_complete:
        return Check(
            name,
            Verdict.UNKNOWN,
            "not said" if given is None else f"{given:g}",
            "every line of the ledger",
            "the placement",
            "solve again with this version of placer, and read max_total_num_tokens in the server's log",
        )
    if gpu.free_bytes <= ledger.lines["free_memory_loss"]:
        least, most = math.inf, 0.0
    else:
        claimed = placement.kv.claimed_bytes or 0
        least, most = free_memory_share(ledger, device_bytes=gpu.free_bytes, claimed_bytes=claimed)
    verdict, do = Verdict.OK, ""
    if least > most:
        verdict, do = (
            Verdict.WARN,
            "weights, KV and activations need more than is free: free it, or solve again",
        )
    elif least > given:
        verdict = Verdict.WARN
        do = (
            "the pool would come out smaller than planned: start with --mem-fraction-static "
            f"{math.ceil(least * 1000) / 1000:g}"
        )
    elif given > most:
        verdict = Verdict.WARN
        do = f"too little would be left for activations: start with --mem-fraction-static {least:.3f}"
    share = (
        f"{least:.3f} to {most:.3f}"
        if least <= most
        else f"{least:.3f} for weights and KV, of at most {most:.3f}"
    )
    return Check(
        name,
        verdict,
        f"--mem-fraction-static {given:g}",
        f"{share} of what is free now, less what the driver takes",
        "the ledger and nvidia-smi",
        do,
    )
