"""What a server asks of one GPU's memory: the model, the settings and the least that must fit."""

import math
from dataclasses import dataclass
from functools import cached_property

from placer.errors import BadInputError
from placer.hbm import HbmLedger, ServerSettings, hbm_ledger, repacking_bytes
from placer.kv_pool import sglang_kv_plan, sglang_page_tokens, sglang_pool_tokens, sglang_window_ratio
from placer.model.config import MAX_TOKENS
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.parallelism import Parallelism
from placer.profiler.serving.new_token_ratio import NEW_TOKEN_RATIO

SPARE_TOKENS = 5
"""Tokens that the pool must hold beyond one request, or the runtime cuts its output or refuses its prompt.

sglang-kt 0.7.2 takes at most pool - 2 - prompt output tokens (managers/scheduler.py, init_req_max_new_tokens), and
prompts below pool - 6 tokens (managers/tp_worker.py, max_req_input_len); two output tokens are the fewest.
"""


def _spare_tokens(running: int, page: int) -> int:
    """What a pool of pages holds beyond ``running`` requests, or the last of them waits until another has ended.

    SGLang lets a request in where a page is left over, and counts the last pages of the others whole and, beside them,
    a share of what those still have to produce (managers/schedule_policy.py, PrefillAdder): half a page on average.
    """
    if page == 1 or running == 1:
        return 0
    return sglang_pool_tokens(page + math.ceil(NEW_TOKEN_RATIO * (running - 1) * page / 2), page)


@dataclass(frozen=True)
class MemoryDemand:
    """A server that must fit a budget.

    Attributes
    ----------
    budget_bytes
        Device memory per GPU that the process may use.
    hot_per_layer
        Hot experts that must fit, of every MoE layer.
    running, chunk_tokens, kv_dtype, speculative
        As in `placer.hbm.ServerSettings`.
    min_kv_tokens, request_tokens
        Least KV tokens in all, and what one running request holds at its end: the pool must hold both.
    loss_bytes
        Device memory gone after start, or None for the table of `placer.hbm`.
    device_bytes
        What a process can use of one GPU, None where the GPU is not known: no budget can be more.
    """

    model: ModelSpec
    parallel: Parallelism
    budget_bytes: int
    running: int
    chunk_tokens: int
    kv_dtype: str
    min_kv_tokens: int
    request_tokens: int = 0
    hot_per_layer: int = 0
    speculative: bool = False
    loss_bytes: int | None = None
    device_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.min_kv_tokens > MAX_TOKENS:
            raise BadInputError(
                f"{self.min_kv_tokens:,} KV tokens are more than any GPU holds", "ask for fewer"
            )

    @cached_property
    def settings(self) -> ServerSettings:
        """Server settings of the demand, the KV pool as the runtime rounds it."""
        page = sglang_page_tokens(self.model)
        # No two requests share a page.
        request = sglang_pool_tokens(self.request_tokens, page)
        alone = sglang_pool_tokens(self.request_tokens + SPARE_TOKENS, page) if self.request_tokens else 0
        spare = self.parallel.dp * _spare_tokens(-(-self.running // self.parallel.dp), page) if request else 0
        tokens = max(1, self.min_kv_tokens, self.running * request + spare, alone)
        share = -(-tokens // self.parallel.dp)
        ratio = sglang_window_ratio(
            self.model,
            tokens=share,
            running=-(-self.running // self.parallel.dp),
            request_tokens=request,
            chunk_tokens=self.chunk_tokens,
        )
        held = sglang_kv_plan(
            self.model,
            tokens=share,
            ratio=ratio,
            attention_tp=self.parallel.attention_tp,
            kv_dtype=self.kv_dtype,
            speculative=self.speculative,
        ).tokens
        return ServerSettings(
            max_running_requests=self.running,
            kv_tokens=held * self.parallel.dp,
            chunk_tokens=self.chunk_tokens,
            kv_dtype=self.kv_dtype,
            speculative=self.speculative,
            window_ratio=ratio,
        )

    @property
    def hot_experts(self) -> int:
        """Hot experts over all layers."""
        return self.hot_per_layer * len(self.model.moe_layers)

    def ledger(self, *, hot_experts: int | None = None) -> HbmLedger:
        """The ledger of the fullest GPU; ``hot_experts`` over all layers replaces the demand's own."""
        return hbm_ledger(
            self.model,
            parallel=self.parallel,
            budget_bytes=self.budget_bytes,
            settings=self.settings,
            hot_experts=self.hot_experts if hot_experts is None else hot_experts,
            loss_bytes=self.loss_bytes,
        )

    @property
    def fits(self) -> bool:
        """Whether the ledger leaves nothing negative."""
        return self.ledger().unused_bytes >= 0

    @property
    def room_experts(self) -> int:
        """Hot experts over all layers that fit beside the rest, on one stage's GPUs without ep."""
        every = len(self.model.moe_layers) * self.model.experts
        unused = self.ledger(hot_experts=0).unused_bytes
        share = expert_share_bytes(self.model, self.parallel.expert_tp)
        return min(every, max(0, unused) // (share + repacking_bytes(self.model, share)))
