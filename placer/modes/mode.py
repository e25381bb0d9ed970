"""Ways of running a model: GPU-only, experts streamed from host memory, hot and cold experts apart."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from placer.hbm import HbmLedger, ServerSettings
from placer.parallelism import Parallelism
from placer.workload import Workload

if TYPE_CHECKING:
    # Whether a model fits a way of running it is told without predicting anything.
    from placer.band import FigureBands
    from placer.serving import ServingFigures


class Mode(StrEnum):
    """Where routed experts are kept and computed."""

    GPU_ONLY = "gpu-only"
    """All on GPUs."""
    STREAMED = "streamed"
    """In host memory; GPUs compute, and fetch what a step needs over PCIe."""
    HOT_COLD = "hot-cold"
    """Hot ones on GPUs, the others computed by the CPU."""


class Cache(StrEnum):
    """What a streamed mode keeps of the experts on its GPUs."""

    NONE = "none"
    """Nothing: kernels read host memory in place (vLLM's UVA offload)."""
    LRU = "lru"
    """So many slots per layer, least recently used first out (SGLang's paged experts)."""


@dataclass(frozen=True)
class Way:
    """One way of running a model on some GPUs."""

    mode: Mode
    parallel: Parallelism
    cache: Cache | None = None

    @property
    def spread(self) -> str:
        """The flags of its parallelism in short: tp4, or tp4+ep2 for experts in two groups of two GPUs."""
        parallel = self.parallel
        return f"tp{parallel.tp}" + (f"+ep{parallel.ep}" if parallel.ep > 1 else "")


@dataclass(frozen=True)
class ModeFigures:
    """What clients see, and between what it lies as far as the error of the times is known."""

    mid: "ServingFigures"
    bands: "FigureBands"

    def keeps_slow(self, workload: Workload) -> bool:
        """Whether requests are kept up with, and targets kept, at the slow end of the band."""
        reached = (
            (workload.slo_tpot_ms, self.bands.tpot_ms_p95.high),
            (workload.slo_ttft_ms, self.bands.ttft_ms_p95.high),
        )
        return all(math.isfinite(high) and (target is None or high <= target) for target, high in reached)


@dataclass(frozen=True)
class Obstacle:
    """Why a way does not fit: the line that breaks, one sentence, and single changes that would do."""

    line: str
    reason: str
    cures: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModeRow:
    """A way of running the model, what it takes, and what it delivers.

    Attributes
    ----------
    obstacle
        Why it does not fit; None where it does.
    settings, figures
        At which it is best under the workload; None where nothing fits.
    hot_experts
        Experts that GPUs hold, over all layers.
    most_kv_tokens
        KV tokens that fit beside the fewest experts that the mode can run with.
    hbm
        The ledger of one GPU at these settings, or the smallest that breaks.
    host
        Host bytes by purpose; None where that was not looked at because something else breaks.
    provenance
        Origin of each kind of figure.
    stopper
        Why no runtime runs it though it may fit, or None: such a row is what one would give, and never wins.
    unstreamed
        Why a streamed row serves as gpu-only does, or None: it is that with pinned host memory beside it.
    """

    way: Way
    obstacle: Obstacle | None
    settings: ServerSettings | None
    hot_experts: int
    most_kv_tokens: int
    figures: ModeFigures | None
    hbm: HbmLedger | None
    host: Mapping[str, int] | None = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    stopper: str | None = None
    unstreamed: str | None = None

    @property
    def runs(self) -> bool:
        """Whether it fits and a runtime runs it."""
        return self.fits and self.stopper is None

    @property
    def fits(self) -> bool:
        """Whether HBM and host memory hold it."""
        return self.obstacle is None


def falls_behind(row: ModeRow) -> bool:
    """Whether requests arrive as fast as ``row`` serves them, or faster."""
    return row.figures is not None and row.figures.mid.falls_behind
