"""sglang-kt's own timing of MoE layers, from the log of a server with SGLANG_KT_HYBRID_TIMING set.

The lines are those of kt_ep_wrapper.apply in sglang-kt 0.7.2, which times layers 0, 5, 20 and 35 on the first GPU's
process: the first 16 calls of each, then every 16th. The stages are parts of one call and follow each other. Only
with SGLANG_KT_HYBRID_TIMING_DEEP=1 does a stage end when its work is done, rather than when it was started.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.units import counted, duration

ENVIRONMENT = "SGLANG_KT_HYBRID_TIMING=1 SGLANG_KT_HYBRID_TIMING_DEEP=1"
FLAGS = "--log-level debug --disable-cuda-graph"
"""A replayed CUDA graph runs no Python, so nothing is timed; and the lines are written at level debug."""
CURE = f"start the server with {ENVIRONMENT} and {FLAGS}, send requests, and give its log"
MOST_LINE_CHARACTERS = 4096
MOST_CALLS = 5_000_000
_UNREADABLE_SHARE = 0.01
_ROUNDING_US = 100.0
"""Six times of two decimals of a millisecond are off by less."""
_MARK = "[kt-time]"
_MS = r"(\d{1,9}\.\d+)"
_LINE = re.compile(
    rf"\[kt-time\] layer=(\d{{1,6}}) step=(\d{{1,12}}) total={_MS}ms submit={_MS} mask={_MS} gpu={_MS} "
    rf"sync={_MS} merge={_MS} cpu_wait={_MS}ms num_tokens=(\d{{1,9}})(?!\d)"
)


@dataclass(frozen=True)
class KtTiming:
    """One call of a layer's experts, in microseconds.

    Attributes
    ----------
    layer
        Its index in the checkpoint.
    step
        Number of the call of this layer, from 1.
    tokens
        Tokens of the call.
    total_us
        The whole call.
    submit_us
        Hidden states copied to the host and handed to the CPU's queue.
    mask_us
        Ids of cold experts taken out for the GPU.
    gpu_us
        The hot experts' kernels.
    sync_us
        Waiting for the CPU put into the stream's queue.
    merge_us
        What is left of the cold experts' time, the copy back, and the sum of both sides.
    """

    layer: int
    step: int
    tokens: int
    total_us: float
    submit_us: float
    mask_us: float
    gpu_us: float
    sync_us: float
    merge_us: float

    @property
    def after_submit_us(self) -> float:
        """From the hand-over to the CPU to the end of the call: the slower of both sides."""
        return self.mask_us + self.gpu_us + self.sync_us + self.merge_us

    @property
    def contradicts_itself(self) -> bool:
        """Whether its stages together are more than twice the call, or less than half, beyond their rounding."""
        stages_us = self.submit_us + self.after_submit_us
        low, high = sorted((self.total_us, stages_us))
        return high > 2 * low + _ROUNDING_US

    @property
    def cold_ends_last(self) -> bool:
        """Whether the cold side took clearly longer than the hot side, so that its time is seen."""
        return self.sync_us + self.merge_us > 0.2 * self.after_submit_us


@dataclass(frozen=True)
class KtTimingLog:
    """The timed calls of a server's log, in its order.

    ``unreadable`` lines had the mark but not the form, or stages that contradict their total.
    """

    path: Path
    sha256: str
    calls: tuple[KtTiming, ...]
    unreadable: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of figures from this log."""
        launches = (
            "the log times layers that run without CUDA graphs and wait after each stage: its hot and copy times hold "
            "launches that a server with graphs does not pay"
        )
        if not self.unreadable:
            return (launches,)
        return (launches, f"left out: {counted(self.unreadable, 'line')} of the log without a readable time")


def read_kt_timing_log(path: Path) -> KtTimingLog:
    """The timed calls in the log at ``path``, whatever else it holds.

    A few lines that cannot be read are left out and counted: processes write into each other's lines.

    Raises
    ------
    BadInputError
        When the file cannot be read, holds no timed call, or more than one in a hundred cannot be read or has
        stages that contradict its total.
    """
    checked_input(path, what="log", cure=f"check the path, or {CURE}")
    digest = hashlib.sha256()
    calls: list[KtTiming] = []
    unreadable = 0
    contradicting: list[KtTiming] = []
    try:
        with path.open("rb") as file:
            while line := file.readline(MOST_LINE_CHARACTERS):
                digest.update(line)
                text = line.decode("utf-8", errors="replace")
                if _MARK not in text:
                    continue
                match = _LINE.search(text)
                if match is None or int(match.group(10)) == 0:
                    unreadable += 1
                elif len(calls) < MOST_CALLS:
                    call = _call(match)
                    (contradicting if call.contradicts_itself else calls).append(call)
    except OSError as error:
        raise BadInputError(f"cannot read log {path}: {error.strerror or error}", "check the path") from None
    if len(contradicting) > max(1, _UNREADABLE_SHARE * len(calls)) or (contradicting and not calls):
        first = contradicting[0]
        raise BadInputError(
            f"log {path}: in {len(contradicting)} of {len(contradicting) + len(calls)} calls the stages do not add up "
            f"to the total (layer {first.layer}, step {first.step}: {duration(first.total_us)} in all, "
            f"{duration(first.submit_us + first.after_submit_us)} in stages)",
            CURE,
        )
    if not calls and not unreadable:
        raise BadInputError(f"log {path} holds no line of {_MARK}", CURE)
    if unreadable > max(1, _UNREADABLE_SHARE * len(calls)) or not calls:
        raise BadInputError(
            f"log {path}: {unreadable} of {unreadable + len(calls)} lines of {_MARK} are not as sglang-kt 0.7.2 "
            "writes them",
            CURE,
        )
    return KtTimingLog(path, digest.hexdigest(), tuple(calls), unreadable + len(contradicting))


def _call(match: re.Match[str]) -> KtTiming:
    total, submit, mask, gpu, sync, merge = (float(match.group(number)) * 1e3 for number in range(3, 9))
    return KtTiming(
        layer=int(match.group(1)),
        step=int(match.group(2)),
        tokens=int(match.group(10)),
        total_us=total,
        submit_us=submit,
        mask_us=mask,
        gpu_us=gpu,
        sync_us=sync,
        merge_us=merge,
    )
