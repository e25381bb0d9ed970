"""SGLang's two pools of a model with sliding windows: all tokens in some layers, a share of them in others.

Source: sglang/srt/model_executor/model_runner_kv_cache_mixin.py, set_num_tokens_hybrid_swa;
mem_cache/swa_memory_pool.py and swa_radix_cache.py.
"""

from dataclasses import dataclass

from placer.model.spec import ModelSpec
from placer.pool import Pool

_TWO_POOL_ARCHITECTURES = (
    "GptOssForCausalLM",
    "Llama4ForConditionalGeneration",
    "MiMoV2FlashForCausalLM",
    "Step3p5ForCausalLM",
)
"""is_hybrid_swa_model in sglang/srt/configs/model_config.py, without DeepSeek-V4, which has its own pools."""

_RATIO_STEPS = 1_000_000
RUNTIME_DEFAULT_RATIO = 0.8
"""``--swa-full-tokens-ratio`` unless told; for DeepSeek-V4 this very value means that none was given."""


def has_two_pools(architecture: str) -> bool:
    """Whether SGLang sizes windowed layers of this architecture apart; in others every layer keeps all tokens."""
    return architecture in _TWO_POOL_ARCHITECTURES


def window_tokens(model: ModelSpec) -> int:
    """The longest window of a model's layers; 0 where all of them see the whole context."""
    return max((group.window_tokens or 0 for group in model.cache), default=0)


def window_ratio(
    model: ModelSpec, *, tokens: int, running: int, request_tokens: int, chunk_tokens: int, page_tokens: int
) -> float:
    """The ``--swa-full-tokens-ratio`` with which ``running`` requests keep their windows among ``tokens``.

    With the prefix cache on, a running request holds W tokens of its prompt and up to a chunk C more, because
    the cache locks whole chunks; while it decodes, W to 2·W tokens, as those out of the window are let go of
    every W steps; and a page each time. One chunk more is being prefilled. No request holds more than its own
    tokens, ``request_tokens`` (0: of any length), and no pool more than all of them, a ratio of 1.
    """
    window = window_tokens(model)
    each = 3 * window + chunk_tokens + 2 * page_tokens
    if request_tokens:
        each = min(each, request_tokens + page_tokens)
    needed = running * each + chunk_tokens + page_tokens
    scale = _RATIO_STEPS
    ratio = min(scale, -(-needed * scale // tokens)) / scale
    # The runtime takes its own default for a ratio that was not given.
    return ratio if ratio != RUNTIME_DEFAULT_RATIO else ratio + 1 / scale


@dataclass(frozen=True)
class TwoPools:
    """What the two pools are made of.

    Attributes
    ----------
    full_bytes, full_layers
        Bytes of a token in all layers that see the whole context, and how many; 0 where there are none.
    window_layer_bytes, window_layers
        Bytes of a token in one windowed layer, and how many there are.
    page_tokens
        Tokens of a page.
    ratio
        ``--swa-full-tokens-ratio``: tokens of the windowed pool for every token of the full one.
    """

    full_bytes: int
    full_layers: int
    window_layer_bytes: int
    window_layers: int
    page_tokens: int
    ratio: float

    @property
    def every_bytes(self) -> int:
        """Bytes of a token in all layers, which SGLang divides its memory by."""
        return self.full_bytes + self.window_layer_bytes * self.window_layers

    def tokens(self, max_total_tokens: int) -> tuple[int, int]:
        """Tokens of the full and of the windowed pool that SGLang makes of ``--max-total-tokens``.

        It takes the flag for the tokens that would fit if every layer kept them all, and shares those bytes
        out: full·F + ratio·full·S = flag·(F + S), in floating point and rounded down, then to whole pages.
        """
        flag = self._pages(max_total_tokens)
        if not self.full_bytes:
            return 0, flag
        # The order of the products is the runtime's: the quotient is cut to a whole number.
        denominator = self.full_bytes + self.ratio * self.window_layer_bytes * self.window_layers
        full = int(flag * self.every_bytes / denominator)
        return self._pages(full), self._pages(int(full * self.ratio))

    def least_flag(self, tokens: int) -> int:
        """The least ``--max-total-tokens`` with which a request may see ``tokens``."""
        share = self.ratio + (1 - self.ratio) * self.full_bytes / self.every_bytes if self.full_bytes else 1.0
        flag = max(1, int(tokens * share) // self.page_tokens - 1) * self.page_tokens
        while max(self.tokens(flag)) < tokens:
            flag += self.page_tokens
        return flag

    def pools(self, max_total_tokens: int) -> tuple[Pool, ...]:
        """Both pools, each with a page more that padded tokens write to; one without layers is left out."""
        full, windowed = self.tokens(max_total_tokens)
        pools = (
            Pool("full", full, full + self.page_tokens, self.full_bytes, self.full_layers),
            Pool(
                "window",
                windowed,
                windowed + self.page_tokens,
                self.window_layer_bytes * self.window_layers,
                self.window_layers,
            ),
        )
        return tuple(pool for pool in pools if pool.slot_bytes)

    def _pages(self, tokens: int) -> int:
        return tokens // self.page_tokens * self.page_tokens
