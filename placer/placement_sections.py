"""The sections of placement.json, each with the checks that it can make by itself."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, Self

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from placer.hbm import LOAD_ORDER
from placer.pool import Pool
from placer.section import Section
from placer.speculation import Speculation

CpuMethod = Literal["RAWINT4", "AMXINT4", "AMXINT8", "LLAMAFILE", "torch", "VLLM-BF16"]
"""How the CPU kernel keeps and multiplies cold experts; what ``--kt-method`` names, or torch's own kernel."""


class PlacedModel(Section):
    """The model that was placed; ``layers`` are the checkpoint indices of its MoE layers.

    ``config`` is the checkpoint's config.json.
    """

    name: str
    architecture: str
    config_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    layers: tuple[int, ...] = Field(min_length=1)
    experts: int = Field(ge=1, le=65_534)
    top_k: int = Field(ge=1)
    hidden_size: int | None = Field(default=None, ge=1)
    config: dict[str, Any] | None = None

    @field_validator("layers")
    @classmethod
    def _ascending(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if layers[0] < 0 or any(after <= before for before, after in pairwise(layers)):
            raise ValueError("layer indices are not ascending from 0 or more")
        return layers


class HbmSection(Section):
    """Bytes of one GPU by purpose; the lines sum to the budget exactly, ``unused`` included.

    ``device_bytes`` is what a process can use of the GPU, ``expert_bytes`` a whole expert on the GPU.
    """

    budget_bytes_per_gpu: int = Field(gt=0)
    ledger: dict[str, int]
    device_bytes: int | None = Field(default=None, gt=0)
    expert_bytes: int | None = Field(default=None, gt=0)

    @property
    def is_complete(self) -> bool:
        """Whether the ledger has every line that placer writes."""
        return set(LOAD_ORDER) <= set(self.ledger)

    @model_validator(mode="after")
    def _closed(self) -> Self:
        _check_lines("hbm.ledger", self.ledger)
        total = sum(self.ledger.values())
        if total != self.budget_bytes_per_gpu:
            budget = self.budget_bytes_per_gpu
            raise ValueError(f"hbm.ledger: lines sum to {total:,} bytes, budget_bytes_per_gpu is {budget:,}")
        return self


class HostSection(Section):
    """Bytes of host memory by purpose, and their sum."""

    ledger: dict[str, int]
    total_bytes: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _not_negative(self) -> Self:
        _check_lines("host.ledger", self.ledger)
        return self


class KvSection(Section):
    """The KV pool and the server settings decided with it; ``tokens`` is the pool's capacity.

    ``pools`` and ``states`` are the factors of the ledger's lines kv_pool and request_state.
    ``max_total_tokens`` is the flag that makes them: ``tokens``, or fewer where layers with a window keep only
    ``swa_full_tokens_ratio`` of them. ``claimed_bytes`` is what the runtime must find free for it,
    ``context_length`` the longest request that it takes.
    """

    dtype: Literal["bf16", "fp8"]
    bytes_per_token_per_gpu: int = Field(ge=0)
    tokens: int = Field(ge=1)
    max_running_requests: int = Field(ge=1, le=65_536)
    chunked_prefill_size: int = Field(ge=1)
    cuda_graph_max_bs: int = Field(ge=1, le=65_536)
    context_length: int | None = Field(default=None, ge=1)
    page_tokens: int | None = Field(default=None, ge=1)
    max_total_tokens: int | None = Field(default=None, ge=1)
    claimed_bytes: int | None = Field(default=None, ge=0)
    swa_full_tokens_ratio: float | None = Field(default=None, gt=0, le=1)
    max_mamba_cache_size: int | None = Field(default=None, ge=1)
    pools: tuple[Pool, ...] | None = Field(default=None, min_length=1)
    states: tuple[Pool, ...] | None = Field(default=None, min_length=1)
    speculation: Speculation | None = None


class LevelCounts(Section):
    """Levels of server settings: how many were solved, were worth trying, and miss the latency targets."""

    solved: int = Field(ge=0)
    total: int = Field(ge=0)
    missed_targets: int = Field(ge=0)


class SolverSection(Section):
    """How the plan was found and what is proven; ``gap`` is on the part that a placement can change.

    ``objective_reached`` is what the objective asked for, simulated on the reporting requests, in
    ``objective_unit``; ``objective_us`` is the mean time that stands for it on the solving steps: per output token of
    all requests together, or for latency per output token of one request.
    """

    name: str
    status: str
    objective_us: float | None
    bound_us: float | None
    gap: float | None = Field(ge=0)
    seconds: float = Field(ge=0)
    objective_name: Literal["throughput", "latency", "goodput"] | None = None
    objective_reached: float | None = Field(default=None, ge=0)
    objective_unit: str | None = None
    levels: LevelCounts | None = None

    @property
    def per_token(self) -> str:
        """What the microseconds of the objective, the bound and the sensitivity are counted by."""
        latency = self.objective_name == "latency"
        return "per output token of a request" if latency else "per output token"


class KtSection(Section):
    """Threads of kt-kernel's CPU pool and its subpools (one per NUMA node), as profiled."""

    threads: int = Field(ge=1)
    subpools: int = Field(ge=1)


class SensitivitySection(Section):
    """What room is worth at the plan, in microseconds per output token; ``value_us`` has an entry per expert.

    ``expert_bytes_per_gpu`` is what one hot expert takes of each GPU. ``value_us`` maps a layer index to what
    each of its experts saves by being hot; ``price_us_per_gib`` is the solver's multiplier of the budget.
    """

    expert_bytes_per_gpu: int = Field(gt=0)
    price_us_per_gib: float | None = Field(default=None, ge=0)
    tokens_per_s_per_gib: float | None = Field(default=None, ge=0)
    value_us: dict[str, tuple[float, ...]]


class HotPerLayerSection(Section):
    """Least and most hot experts that every layer that is not pinned had to have."""

    min: int = Field(ge=0)
    max: int = Field(ge=0)


class FrontierSection(Section):
    """The best plan for one number of running requests; ``bound_us`` bounds every plan at its settings."""

    max_running_requests: int = Field(ge=1)
    kv_tokens: int = Field(ge=1)
    kv_dtype: Literal["bf16", "fp8"]
    chunked_prefill_size: int = Field(ge=1)
    hot_experts: int = Field(ge=0)
    output_tokens_per_s: float = Field(ge=0)
    tpot_ms_p95: float | None = Field(default=None, ge=0)
    ttft_ms_p95: float | None = Field(default=None, ge=0)
    objective_us: float
    bound_us: float
    chosen: bool


class WholeLayersSection(Section):
    """What runtimes that place experts by the layer can choose between; lists follow ``model.layers``.

    Mean times of a decode step for a layer all hot and all cold, distinct experts that it uses, and what an
    expert takes in the checkpoint's own format.
    """

    all_hot_ms: tuple[float, ...]
    all_cold_ms: tuple[float, ...]
    active_experts: tuple[float, ...]
    checkpoint_format: str
    checkpoint_expert_bytes: int = Field(gt=0)


class TraceSection(Section):
    """The trace that was planned from, and how many tokens it holds."""

    source: str
    tokens: int | None = Field(default=None, ge=0)


def _check_lines(path: str, ledger: Mapping[str, int]) -> None:
    for name, size in ledger.items():
        if size < 0:
            raise ValueError(f"{path}.{name}: {size:,} bytes is negative")
