"""Zipf traces: routing at a model's shape whose experts are chosen by rank alone, to test costs and plans on."""

import numpy as np

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.synth import MOST_TOKENS
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader

_MOST_EXPONENT = 8.0


def zipf_trace(
    model: KnownModel,
    exponent: float,
    *,
    requests: int = 64,
    prompt_tokens: int = 128,
    output_tokens: int = 256,
    seed: int = 0,
) -> TokenTrace:
    """Tokens that draw their experts without replacement, with weights rank^-``exponent``.

    Ranks are shuffled for each layer; tokens, prompts and requests are alike and independent. A draw without
    replacement takes the largest of log-weight plus Gumbel noise.

    Raises
    ------
    BadInputError
        When the model's shape is not known, or a number makes no trace.
    """
    if model.layers is None or model.experts is None or model.top_k is None:
        raise BadInputError("the model's layers, experts and top-k are not known", "give --model DIR")
    if not 0 <= exponent <= _MOST_EXPONENT:
        raise BadInputError(f"--zipf is {exponent:g}", f"give an exponent from 0 to {_MOST_EXPONENT:g}")
    length = prompt_tokens + output_tokens
    if min(requests, output_tokens) < 1 or prompt_tokens < 0 or requests * length > MOST_TOKENS:
        raise BadInputError(
            f"a trace of {requests} requests of {prompt_tokens} + {output_tokens} tokens",
            "give at least one of each (prompt tokens may be 0), and fewer than 100 million tokens",
        )
    random = np.random.default_rng(seed)
    T, L, E, K = requests * length, len(model.layers), model.experts, model.top_k
    log_weight = (-exponent * np.log(np.arange(1, E + 1))).astype(np.float32)
    ids = np.empty((T, L, K), dtype=np.uint16)
    for layer in range(L):
        expert = random.permutation(E).astype(np.uint16)
        keys = random.standard_exponential((T, E), dtype=np.float32)
        # -log of an exponential draw is Gumbel noise; a draw of 0 comes first.
        with np.errstate(divide="ignore"):
            np.log(keys, out=keys)
        keys -= log_weight
        ids[:, layer] = expert[np.argpartition(keys, K - 1, axis=1)[:, :K]]
    phase = np.full(length, Phase.DECODE, dtype=np.uint8)
    phase[:prompt_tokens] = Phase.PREFILL
    return TokenTrace(
        header=TraceHeader(
            model=model.name or "unnamed",
            layers=tuple(model.layers),
            experts=E,
            top_k=K,
            source=f"synthetic: Zipf with exponent {exponent:g}, seed {seed}",
            notes=("synthetic: no model routed these tokens",),
        ),
        topk_ids=ids,
        request=np.repeat(np.arange(requests, dtype=np.int32), length),
        position=np.tile(np.arange(length, dtype=np.int32), requests),
        phase=np.tile(phase, requests),
    )
