"""The HBM ledger: what every byte of one GPU's budget is for, however the server is spread over GPUs."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.kv_pool import KvPlan, draft_cache_bytes, sglang_kv_plan
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.model.weights import WeightGroup, class_bytes_per_gpu
from placer.parallelism import Parallelism
from placer.pool import pools_bytes
from placer.speculation import MTP_SPECULATION, Speculation
from placer.state_slots import state_pools
from placer.units import GIB


@dataclass(frozen=True)
class ServerSettings:
    """The serving settings that cost HBM: a point of the grid that `placer.level` searches.

    Attributes
    ----------
    max_running_requests
        Requests that run together (R); also the largest captured CUDA-graph batch.
    kv_tokens
        Capacity of the KV pool.
    chunk_tokens
        Prefill chunk (C).
    kv_dtype
        "bf16" or "fp8".
    speculative
        Whether the model's MTP layer drafts tokens: its experts are all on the GPU, and it caches too.
    window_ratio
        Tokens that layers with a window keep for every token of the pool (``--swa-full-tokens-ratio``); None
        where the runtime lets them keep all.
    """

    max_running_requests: int
    kv_tokens: int
    chunk_tokens: int
    kv_dtype: str
    speculative: bool = False
    window_ratio: float | None = None

    @property
    def speculation(self) -> Speculation | None:
        """How the MTP layer drafts, or None."""
        return MTP_SPECULATION if self.speculative else None


WEIGHT_CLASSES = ("attention", "router", "shared_experts", "dense", "embedding", "norms", "other")
"""Non-expert weight classes of `ModelSpec.weights_bytes_per_gpu` that a server without drafting loads."""

LOAD_ORDER = (
    "free_memory_loss",
    *WEIGHT_CLASSES,
    "hot_experts",
    "repacking",
    "mtp",
    "cuda_graphs",
    "activations",
    "fragmentation",
    "runtime_staging",
    "request_table",
    "request_state",
    "kv_pool",
)
"""Lines in the order that a budget is used up: what cannot be changed first, the KV pool last."""


@dataclass(frozen=True)
class HbmLedger:
    """Bytes of one GPU by purpose; ``lines`` sum to ``budget_bytes`` exactly, ``unused`` included.

    ``unused`` may be negative in a ledger that does not fit.
    """

    budget_bytes: int
    lines: dict[str, int]

    @property
    def unused_bytes(self) -> int:
        """Bytes that no line claims."""
        return self.lines["unused"]

    @property
    def needed_bytes(self) -> int:
        """Sum of all lines but ``unused``: the smallest budget that fits."""
        return self.budget_bytes - self.unused_bytes

    @property
    def weights_bytes(self) -> int:
        """Bytes of the model's weights, without the MTP layer, which is loaded after the KV pool is sized."""
        return sum(self.lines[name] for name in ("hot_experts", "repacking", *WEIGHT_CLASSES))

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV pool and of per-request state."""
        return self.lines["kv_pool"] + self.lines["request_state"]

    @property
    def reserve_bytes(self) -> int:
        """Bytes beside weights, KV and what the driver takes: activations, graphs, fragmentation, tables."""
        names = ("activations", "cuda_graphs", "fragmentation", "runtime_staging", "request_table")
        return sum(self.lines[name] for name in names)

    @property
    def binding_line(self) -> str | None:
        """The line at which the budget runs out when lines are filled in `LOAD_ORDER`; None when all fit."""
        filled = 0
        for name in LOAD_ORDER:
            filled += self.lines[name]
            if filled > self.budget_bytes:
                return name
        return None


_PROCESS_GROUP_LOSS_GIB = {1: 0.0, 2: 1.0, 4: 1.6, 8: 2.0}
_DRIVER_LOSS_GIB = 0.6


def free_memory_loss_bytes(gpus: int) -> int:
    """Device memory gone once the driver, the CUDA context and the process group of ``gpus`` are up.

    0.6 GiB plus 0, 1.0, 1.6 or 2.0 GiB for 1, 2, 4, 8 GPUs: read off public server logs of H100 and H200
    (78.4-78.8 GiB free of 79.18 on one, 76.98 on four); sizes between take the next larger entry, larger
    ones the last.
    """
    group = next((loss for size, loss in _PROCESS_GROUP_LOSS_GIB.items() if gpus <= size), 2.0)
    return int((_DRIVER_LOSS_GIB + group) * GIB)


def given_loss_bytes(*, device_bytes: int, gpu_free_bytes: int | None) -> int | None:
    """Loss when ``gpu_free_bytes`` of ``device_bytes`` were seen free after start; None keeps the table.

    Raises
    ------
    BadInputError
        When more is said to be free than the device has.
    """
    if gpu_free_bytes is None:
        return None
    if gpu_free_bytes > device_bytes:
        raise BadInputError(
            f"--gpu-free is {gpu_free_bytes / GIB:,.2f} GiB, more than the {device_bytes / GIB:,.2f} GiB of the GPU",
            "give what is free per GPU once the process group is up, as the server logs it",
        )
    return device_bytes - gpu_free_bytes


def activation_bytes(model: ModelSpec, chunk_tokens: int, expert_tp: int) -> int:
    """Activations of one prefill chunk: C·k·(3·I/tp + H)·2 for the fused MoE, and 8·C·H·2 beside it.

    The buffers of SGLang's Triton fused MoE (gate and up, their product, and the down result), in bf16. Under
    expert parallelism an expert is cut over fewer GPUs, ``expert_tp``, and a chunk may go to one GPU whole.
    """
    inner = -(-model.expert_intermediate_size // expert_tp)
    moe = chunk_tokens * model.top_k * (3 * inner + model.expert_hidden_size) * 2
    return moe + 8 * chunk_tokens * model.hidden_size * 2


def staging_bytes(model: ModelSpec, chunk_tokens: int) -> int:
    """kt-kernel's hidden-state staging buffer on rank 0: C·H·2 (sglang-kt, layers/moe/kt_ep_wrapper.py)."""
    return chunk_tokens * model.hidden_size * 2


def kv_plan(
    model: ModelSpec, settings: ServerSettings, parallel: Parallelism, layers: int | None = None
) -> KvPlan:
    """The KV pool of a GPU whose stage holds ``layers`` layers (None: all), as SGLang allocates it.

    Under data-parallel attention every group caches its own share of the tokens.
    """
    return sglang_kv_plan(
        model,
        tokens=-(-settings.kv_tokens // parallel.dp),
        ratio=settings.window_ratio,
        attention_tp=parallel.attention_tp,
        kv_dtype=settings.kv_dtype,
        layers=layers,
        speculative=settings.speculative,
    )


def request_state_bytes(
    model: ModelSpec, settings: ServerSettings, parallel: Parallelism, layers: int
) -> int:
    """Recurrent states, with the spare slots that the runtime keeps; windows are part of the KV pool."""
    pools = state_pools(
        model,
        running=-(-settings.max_running_requests // parallel.dp),
        attention_tp=parallel.attention_tp,
        speculation=settings.speculation,
    )
    return -(-pools_bytes(pools) * layers // model.num_layers)


def context_tokens(model: ModelSpec, settings: ServerSettings, parallel: Parallelism) -> int:
    """The longest request: what positions reach, or the whole pool where that is smaller."""
    return min(model.max_context_tokens, -(-settings.kv_tokens // parallel.dp))


def request_table_bytes(running: int, context: int) -> int:
    """SGLang's table of the slots that every running request's tokens are in, int32 [R, context + 4].

    Drafting makes it longer, which line ``mtp`` counts. Source: sglang/srt/mem_cache/memory_pool.py
    (ReqToTokenPool) and model_executor/model_runner_kv_cache_mixin.py (init_memory_pool).
    """
    return running * (context + _SPARE_CONTEXT_TOKENS) * _TABLE_ENTRY_BYTES


_SPARE_CONTEXT_TOKENS = 4
_TABLE_ENTRY_BYTES = 4


def hot_experts_bytes(
    model: ModelSpec, hot_experts: int, parallel: Parallelism, moe_layers: int, expert_format: str | None
) -> int:
    """Hot experts of a GPU whose stage holds ``moe_layers`` MoE layers, hot ones spread evenly over layers."""
    stage = -(-hot_experts * moe_layers // len(model.moe_layers))
    return -(-stage // parallel.ep) * expert_share_bytes(model, parallel.expert_tp, expert_format)


def mtp_bytes(model: ModelSpec, settings: ServerSettings, parallel: Parallelism) -> int:
    """The MTP layer when it drafts: its weights, all its experts included, the cache of one layer, and a table.

    Its own copies of embedding and head count as stored; SGLang lets go of them once it shares the model's.

    Raises
    ------
    BadInputError
        When the checkpoint holds no MTP layer.
    """
    if settings.speculation is None:
        return 0
    weights = class_bytes_per_gpu(model.weights, tp=parallel.tp, kv_heads=model.kv_heads)["mtp"]
    if not weights:
        raise BadInputError(
            f"{model.name} holds no MTP layer that could draft tokens", "leave --speculative out"
        )
    cache = draft_cache_bytes(
        model,
        tokens=-(-settings.kv_tokens // parallel.dp),
        ratio=settings.window_ratio,
        attention_tp=parallel.attention_tp,
        kv_dtype=settings.kv_dtype,
    )
    running = -(-settings.max_running_requests // parallel.dp)
    return weights + cache + running * settings.speculation.draft_tokens * _TABLE_ENTRY_BYTES


REPACKING_PERCENT = 6
"""What DeepSeek-V4's weights grow by once SGLang has repacked them, in percent of their bytes.

Read off one public server log: DeepSeek-V4-Pro on eight H200 holds 125.65 GiB where its tensors make 118.8.
"""
REPACKING_NOTE = (
    f"line 'repacking' is {REPACKING_PERCENT} % of the weights, read off one public server log (DeepSeek-V4-Pro "
    "on eight H200): SGLang repacks this model's weights after loading"
)


def repacks(model: ModelSpec) -> bool:
    """Whether SGLang repacks the model's weights into a larger form after loading (DeepSeek-V4)."""
    return any(group.tokens_per_entry > 1 for group in model.cache)


def repacking_bytes(model: ModelSpec, weights_bytes: int) -> int:
    """What repacking adds to ``weights_bytes``; 0 for models that are not repacked."""
    return -(-weights_bytes * REPACKING_PERCENT // 100) if repacks(model) else 0


_CUDA_GRAPHS_BYTES = GIB
_FRAGMENTATION_BYTES = GIB // 2
_RESERVE_FLOOR_BYTES = int(2.5 * GIB)


def hbm_ledger(
    model: ModelSpec,
    *,
    parallel: Parallelism,
    budget_bytes: int,
    settings: ServerSettings,
    hot_experts: int,
    loss_bytes: int | None = None,
    expert_format: str | None = None,
) -> HbmLedger:
    """Ledger of the fullest GPU for a server with ``hot_experts`` resident experts (over all layers).

    The reserve beside weights and KV is max(2.5 GiB, 1.5·activations + 1.0 GiB CUDA graphs +
    0.5 GiB fragmentation) plus kt-kernel's staging buffer; ``fragmentation`` takes the rest of the floor.
    ``loss_bytes`` replaces `free_memory_loss_bytes`, ``expert_format`` the precision of hot experts.

    Raises
    ------
    BadInputError
        When ``parallel`` does not divide the model's heads, or it is to draft without an MTP layer.
    """
    ledgers = stage_ledgers(
        model,
        parallel=parallel,
        budget_bytes=budget_bytes,
        settings=settings,
        hot_experts=hot_experts,
        loss_bytes=loss_bytes,
        expert_format=expert_format,
    )
    return min(ledgers, key=lambda ledger: ledger.unused_bytes)


def stage_ledgers(
    model: ModelSpec,
    *,
    parallel: Parallelism,
    budget_bytes: int,
    settings: ServerSettings,
    hot_experts: int,
    loss_bytes: int | None = None,
    expert_format: str | None = None,
) -> tuple[HbmLedger, ...]:
    """As `hbm_ledger`, for a GPU of every pipeline stage."""
    activations = activation_bytes(model, settings.chunk_tokens, parallel.expert_tp) * 3 // 2
    reserve = {
        "activations": activations,
        "cuda_graphs": _CUDA_GRAPHS_BYTES,
        "fragmentation": max(_FRAGMENTATION_BYTES, _RESERVE_FLOOR_BYTES - activations - _CUDA_GRAPHS_BYTES),
        "runtime_staging": staging_bytes(model, settings.chunk_tokens),
        "request_table": request_table_bytes(
            -(-settings.max_running_requests // parallel.dp),
            context_tokens(model, settings, parallel),
        ),
        "free_memory_loss": free_memory_loss_bytes(parallel.gpus) if loss_bytes is None else loss_bytes,
    }
    ledgers = []
    for stage in parallel.stage_layers(model.num_layers):
        moe_layers = sum(layer in stage for layer in model.moe_layers)
        last = stage.stop == model.num_layers
        hot_bytes = hot_experts_bytes(model, hot_experts, parallel, moe_layers, expert_format)
        weights = _stage_weights(model, parallel, stage)
        lines = {
            "hot_experts": hot_bytes,
            **weights,
            "repacking": repacking_bytes(model, hot_bytes + sum(weights.values())),
            "mtp": mtp_bytes(model, settings, parallel) if last else 0,
            "kv_pool": kv_plan(model, settings, parallel, len(stage)).total_bytes,
            "request_state": request_state_bytes(model, settings, parallel, len(stage)),
            **reserve,
        }
        lines["unused"] = budget_bytes - sum(lines.values())
        ledgers.append(HbmLedger(budget_bytes, lines))
    return tuple(ledgers)


def _stage_weights(model: ModelSpec, parallel: Parallelism, stage: range) -> dict[str, int]:
    """Weight classes of a stage: attention by its own cut, the rest by tp, each by the layers that hold it."""
    attention = model.weights_bytes_per_gpu(parallel.attention_tp)["attention"]
    whole = class_bytes_per_gpu(model.weights, tp=parallel.tp, kv_heads=model.kv_heads)
    moe, all_moe = sum(layer in stage for layer in model.moe_layers), len(model.moe_layers)
    held = {
        "router": (moe, all_moe),
        "shared_experts": (moe, all_moe),
        "dense": (len(stage) - moe, model.num_layers - all_moe),
        "norms": (len(stage), model.num_layers),
        # No rule says which layer unknown tensors belong to.
        "other": (1, 1),
    }
    shares = {name: -(-whole[name] * part // of) if of else whole[name] for name, (part, of) in held.items()}
    shares["attention"] = -(-attention * len(stage) // model.num_layers)
    shares["embedding"] = _vocabulary_bytes(
        model, parallel, first=stage.start == 0, last=stage.stop == model.num_layers
    )
    return {name: shares[name] for name in WEIGHT_CLASSES}


def _vocabulary_bytes(model: ModelSpec, parallel: Parallelism, *, first: bool, last: bool) -> int:
    """Embedding on the first stage, cut by attention's tp; head on the last, cut by tp.

    Without ``--enable-dp-lm-head`` the head stays cut by tp under data-parallel attention. A head that is
    tied to the embedding is the same table where both are on one stage, and a copy of it otherwise.
    """
    groups = [group for group in model.weights if group.weight_class == "embedding"]
    tables = [group for group in groups if len(group.shape) > 1]
    vectors = [group for group in groups if len(group.shape) <= 1]
    tied = sum(group.count for group in tables) == 1
    total = 0
    if first:
        total += _one_of_each(tables, parallel.attention_tp, model.kv_heads)
    if last:
        if not tied:
            total += sum(group.bytes_per_gpu(parallel.tp, model.kv_heads) for group in tables)
            total -= _one_of_each(tables, parallel.tp, model.kv_heads)
        elif not first:
            total += _one_of_each(tables, parallel.tp, model.kv_heads)
        total += sum(group.bytes_per_gpu(parallel.tp, model.kv_heads) for group in vectors)
    return total


def _one_of_each(tables: list[WeightGroup], tp: int, kv_heads: int | None) -> int:
    """Bytes of one table: the largest where they differ."""
    return max((group.bytes_per_gpu(tp, kv_heads) // group.count for group in tables), default=0)


def free_memory_share(ledger: HbmLedger, *, device_bytes: int, claimed_bytes: int = 0) -> tuple[float, float]:
    """Least and largest ``--mem-fraction-static``: what weights and KV need, and what the reserve leaves.

    SGLang sizes its pool as fraction·free − weights (model_runner_kv_cache_mixin.py), so a smaller value
    refuses the plan's KV tokens; a drafting layer is loaded once the pool exists and lies outside the
    fraction. ``claimed_bytes`` is what SGLang must find free for the pool (`placer.kv_pool.KvPlan`) where that
    is more than it allocates. Shares of what is free after start.
    """
    free = device_bytes - ledger.lines["free_memory_loss"]
    kv = max(ledger.lines["kv_pool"], claimed_bytes) + ledger.lines["request_state"]
    reserve = ledger.reserve_bytes + ledger.lines["mtp"]
    return (ledger.weights_bytes + kv) / free, 1 - reserve / free


def mem_fraction_static(ledger: HbmLedger, *, device_bytes: int, claimed_bytes: int = 0) -> float:
    """The ``--mem-fraction-static`` that lets SGLang start: the least, rounded up to three decimals.

    Arguments as for `free_memory_share`.
    """
    free = device_bytes - ledger.lines["free_memory_loss"]
    kv = max(ledger.lines["kv_pool"], claimed_bytes) + ledger.lines["request_state"]
    return -(-(ledger.weights_bytes + kv) * 1000 // free) / 1000
