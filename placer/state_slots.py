"""Slots for the recurrent states of linear attention: how many SGLang wants for its running requests.

Source: sglang/srt/model_executor/model_runner_kv_cache_mixin.py (init_memory_pool), mem_cache/memory_pool.py
(MambaPool) and server_args.py (_handle_mamba_radix_cache).
"""

from placer.model.spec import ModelSpec
from placer.pool import Pool
from placer.speculation import Speculation

_SLOTS_WITH_PREFIX_CACHE = 3
"""A running request's own state, the copy that the prefix cache keeps of it, and one being replaced."""
_WITHOUT_PREFIX_CACHE = ("KimiLinearForCausalLM",)
"""Architectures of recurrent states whose prefix cache SGLang switches off."""


def keeps_states(model: ModelSpec) -> bool:
    """Whether the model has recurrent states; the rings of a compressed cache are part of its pool."""
    return bool(model.states) and not any(group.tokens_per_entry > 1 for group in model.cache)


def state_slots(model: ModelSpec, running: int, speculation: Speculation | None) -> int:
    """The ``--max-mamba-cache-size`` with which ``running`` requests run together; 0 without such states.

    With the prefix cache on, SGLang runs a third as many requests as there are slots; it switches the cache
    off for drafting, and one slot each is enough then.
    """
    if not keeps_states(model):
        return 0
    cached = speculation is None and model.architecture not in _WITHOUT_PREFIX_CACHE
    return running * (_SLOTS_WITH_PREFIX_CACHE if cached else 1)


def state_pools(
    model: ModelSpec, *, running: int, attention_tp: int, speculation: Speculation | None
) -> tuple[Pool, ...]:
    """Pools of states: a slot more than asked for, and one per drafted token to go back to."""
    slots = state_slots(model, running, speculation)
    if not slots:
        return ()
    each = sum(state.bytes_per_gpu(attention_tp) for state in model.states)
    layers = max(state.layers for state in model.states)
    pools = [Pool("states", 0, slots + 1, each, layers)]
    if speculation is not None:
        drafts = (running + 1) * speculation.draft_tokens
        pools.append(Pool("draft_states", 0, drafts, each, layers))
    return tuple(pools)
