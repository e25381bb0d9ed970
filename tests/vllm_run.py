"""Runs engines one after the other in one process of vLLM's own environment, and writes down what they said.

    python vllm_run.py JOB.json OUT.json

A job holds ``prompts`` (token ids) and ``runs``: each a name, a model, a placement or null, and how it runs.
"""

import gc
import json
import os
import sys
from typing import Any

NEW_TOKENS = 12


def main() -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    answers = {}
    # Once the plugin is switched on in a process it stays: the engines without it come first.
    for run in sorted(job["runs"], key=lambda run: run["placement"] is not None):
        print(f"=== {run['name']}", flush=True)
        answers[run["name"]] = answer(job["prompts"], **run)
        with open(sys.argv[2], "w") as file:
            json.dump(answers, file)


def answer(
    prompts: list[list[int]],
    *,
    name: str,
    model: str,
    placement: str | None = None,
    cold: str = "exact",
    eager: bool = True,
    change: str | None = None,
) -> dict[str, Any]:
    """Tokens and log-probabilities of every prompt, and the bytes of the routed experts on the device."""
    if placement is not None:
        os.environ |= {"PLACER_PLACEMENT": placement, "PLACER_COLD": cold}
        from placer.runtime.vllm.entry import register

        register()
    changed = {None: lambda: None, "dropped": drop_cold, "int4 in float": round_cold}[change]()
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=model,
        dtype="float32",
        enforce_eager=eager,
        block_size=32,
        max_model_len=256,
        max_num_seqs=32,
        max_num_batched_tokens=256,
        enable_prefix_caching=False,
        seed=0,
        disable_log_stats=True,
        skip_tokenizer_init=True,
    )
    sampling = SamplingParams(
        max_tokens=NEW_TOKENS, temperature=0, logprobs=2, prompt_logprobs=0, detokenize=False
    )
    outputs = engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
    said = {
        "tokens": [list(each.outputs[0].token_ids) for each in outputs],
        "logprobs": [
            [
                sorted((entry.logprob for entry in step.values()), reverse=True)
                for step in each.outputs[0].logprobs
            ]
            for each in outputs
        ],
        "prompt_logprobs": [
            [step[token].logprob for step, token in zip(each.prompt_logprobs[1:], ids[1:], strict=True)]
            for each, ids in zip(outputs, prompts, strict=True)
        ],
        "device_bytes": engine.apply_model(device_bytes)[0],
    }
    engine.llm_engine.engine_core.shutdown()
    del engine
    gc.collect()
    if changed is not None:
        changed()
    return said


def device_bytes(model: Any) -> dict[int, int]:
    """Bytes of the experts' matrices of each MoE layer, the plugin's or the engine's own."""
    held: dict[int, int] = {}
    for name, parameter in model.named_parameters():
        path, _, matrix = name.rpartition(".")
        if path.endswith("routed_experts") and matrix.startswith(("w13_", "w2_")):
            layer = int(path.partition("layers.")[2].partition(".")[0])
            held[layer] = held.get(layer, 0) + parameter.nbytes
    return held


def drop_cold() -> Any:
    """Cold experts answer with zeros: what must be noticed."""
    from placer.runtime.vllm.cold_exact import ColdExact

    collect = ColdExact.collect
    ColdExact.collect = lambda self: collect(self) * 0
    return lambda: setattr(ColdExact, "collect", collect)


def round_cold() -> Any:
    """The exact cold path on weights that went through INT4: what an INT4 kernel should say but for its own error."""
    from placer.kernels.int4 import quantise_int4
    from placer.runtime.vllm.cold_exact import ColdExact

    copy = ColdExact._copy
    ColdExact._copy = lambda self, matrix: copy(self, quantise_int4(matrix).dequantise())
    return lambda: setattr(ColdExact, "_copy", copy)


if __name__ == "__main__":
    main()
