"""Runs vLLM's own scheduler on requests whose model is never called; prints what each step holds.

Run by vLLM's Python. stdin is a JSON list of cases {model, max_running, blocks, block_tokens, step_tokens,
clients, prompts, outputs}; stdout is a JSON list of {steps, retractions}: a step is [decoding requests, prompt tokens].
"""

import json
import sys

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager


def scheduler(asked: dict) -> Scheduler:
    """A scheduler with ``blocks`` usable KV blocks; vLLM keeps one more for itself."""
    blocks = asked["blocks"] + 1
    cache = CacheConfig(block_size=asked["block_tokens"], enable_prefix_caching=False)
    cache.num_gpu_blocks = blocks
    config = VllmConfig(
        model_config=ModelConfig(model=asked["model"], dtype="float32", seed=0, max_model_len=2048),
        cache_config=cache,
        scheduler_config=SchedulerConfig(
            max_num_seqs=asked["max_running"],
            max_num_batched_tokens=asked["step_tokens"],
            max_model_len=2048,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            async_scheduling=False,
        ),
    )
    spec = FullAttentionSpec(
        block_size=asked["block_tokens"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=asked["block_tokens"],
    )


def play(asked: dict) -> dict:
    """Serve every request of a case."""
    played = scheduler(asked)
    requests = [
        Request(
            request_id=str(number),
            prompt_token_ids=[1] * prompt,
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
            pooling_params=None,
        )
        for number, (prompt, output) in enumerate(zip(asked["prompts"], asked["outputs"], strict=True))
    ]
    sent = min(asked["clients"], len(requests))
    for request in requests[:sent]:
        played.add_request(request)
    steps = []
    while played.has_requests():
        step = played.schedule()
        tokens = step.num_scheduled_tokens
        decoding = sum(
            n == 1
            and requests[int(key)].num_output_tokens > 0
            and requests[int(key)].num_computed_tokens == requests[int(key)].num_tokens
            for key, n in tokens.items()
        )
        steps.append([decoding, sum(tokens.values()) - decoding])
        keys = list(tokens)
        # A request whose known tokens are all computed by this step gets its next one.
        sampled = [
            [1] if requests[int(k)].num_computed_tokens == requests[int(k)].num_tokens else [] for k in keys
        ]
        played.update_from_output(
            step,
            ModelRunnerOutput(
                req_ids=keys, req_id_to_index={k: i for i, k in enumerate(keys)}, sampled_token_ids=sampled
            ),
        )
        finished = sum(request.is_finished() for request in requests)
        while sent < min(len(requests), finished + asked["clients"]):
            played.add_request(requests[sent])
            sent += 1
    # The call that only reports the last finished requests holds no tokens.
    return {
        "steps": [step for step in steps if step != [0, 0]],
        "retractions": [request.num_preemptions for request in requests],
    }


if __name__ == "__main__":
    json.dump([play(case) for case in json.load(sys.stdin)], sys.stdout)
