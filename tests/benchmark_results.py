"""Results as the two benchmark clients write them: the fields of real files, with figures that are easy to check."""

import json
from pathlib import Path
from typing import Any


def sglang_result(**changes: Any) -> dict[str, Any]:
    """A line of sglang-kt 0.7.2's bench_serving for two clients and four requests of 8 + 5 tokens."""
    result = {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "sharegpt",
        "request_rate": float("inf"),
        "max_concurrency": 2,
        "sharegpt_output_len": None,
        "random_input_len": 1024,
        "random_output_len": 1024,
        "random_range_ratio": 0.0,
        "server_info": None,
        "duration": 0.5,
        "completed": 4,
        "total_input_tokens": 32,
        "total_input_text_tokens": 32,
        "total_input_vision_tokens": 0,
        "total_output_tokens": 20,
        "total_output_tokens_retokenized": 20,
        "request_throughput": 8.0,
        "input_throughput": 64.0,
        "output_throughput": 40.0,
        "total_throughput": 104.0,
        "mean_ttft_ms": 30.0,
        "mean_tpot_ms": 20.0,
        "median_itl_ms": 20.0,
        "accept_length": None,
    }
    return {**result, **changes}


def vllm_result(**changes: Any) -> dict[str, Any]:
    """What vLLM 0.32.0's `bench serve --save-result` writes of the same run."""
    result = {
        "date": "20261129-233800",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "tiny-moe",
        "tokenizer_id": "/models/tiny-moe",
        "num_prompts": 4,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 2,
        "duration": 0.5,
        "completed": 4,
        "failed": 0,
        "total_input_tokens": 32,
        "total_output_tokens": 20,
        "request_throughput": 8.0,
        "request_goodput": None,
        "output_throughput": 40.0,
        "total_token_throughput": 104.0,
        "latencies": [0.11, 0.11, 0.11, 0.11],
        "queue_times": [0.0, 0.0, 0.11, 0.11],
        "max_output_tokens_per_s": 24.0,
        "max_concurrent_requests": 4,
        "rtfx": 0.0,
        "mean_ttft_ms": 30.0,
        "median_ttft_ms": 30.0,
        "mean_tpot_ms": 20.0,
        "median_tpot_ms": 20.0,
        "mean_itl_ms": 20.0,
        "median_itl_ms": 20.0,
    }
    return {**result, **changes}


def written(path: Path, *results: dict[str, Any]) -> Path:
    """``results`` as the clients append them: one JSON object on every line."""
    path.write_text("\n".join(json.dumps(result) for result in results))
    return path
