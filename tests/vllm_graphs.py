"""The sizes of CUDA graphs that vLLM's own configuration chooses, as if there were a GPU.

Run by vLLM's Python. stdin is a JSON list of [--max-num-seqs, --max-num-batched-tokens]; stdout is one of sizes.
"""

import json
import sys
from types import SimpleNamespace

from vllm.config import CompilationConfig, VllmConfig
from vllm.config.compilation import CUDAGraphMode


def sizes(max_running: int, step_tokens: int) -> list[int]:
    """Sizes that are chosen where none are given."""
    compilation = CompilationConfig(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE)
    config = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=max_running, max_num_batched_tokens=step_tokens),
        uniform_decode_query_len=1,
        performance_mode="balanced",
    )
    VllmConfig._set_cudagraph_sizes(config)
    return compilation.cudagraph_capture_sizes


print(json.dumps([sizes(*asked) for asked in json.load(sys.stdin)]))
