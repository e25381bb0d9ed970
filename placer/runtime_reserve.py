"""What the runtimes themselves keep free beside weights and KV, and what is left of a GPU under their rules."""

from placer.units import MIB

_DRAFT_MIB = 2048
_LARGE_GPU_MIB = 60 * 1024
_LARGE_GPU_RESERVE_MIB = 10 * 1024


def sglang_reserve_bytes(
    *,
    device_bytes: int,
    chunk_tokens: int,
    graph_batch: int,
    gpus: int,
    dp: int = 1,
    speculative: bool = False,
) -> int:
    """What SGLang keeps outside its memory fraction unless told one.

    In MiB: 512 + 1.5·max(chunk, 2048) + 2·graph batch + 128·GPUs; with data-parallel attention 3 (above a
    graph batch of 300: 4.5) more per batch and group; at least 10,240 on GPUs above 60 GiB; 2,048 more for a
    draft. ``gpus`` is tp·pp. Source: sglang/srt/server_args.py, _handle_gpu_memory_settings; without
    piecewise CUDA graphs and multimodal towers, which reserve more.
    """
    reserve = 512 + 1.5 * max(chunk_tokens, 2048) + 2 * graph_batch + 128 * gpus
    if dp > 1:
        reserve += (4.5 if graph_batch > 300 else 3.0) * graph_batch * dp
    if device_bytes > _LARGE_GPU_MIB * MIB:
        reserve = max(reserve, _LARGE_GPU_RESERVE_MIB)
    return int((reserve + (_DRAFT_MIB if speculative else 0)) * MIB)


def sglang_default_fraction(device_bytes: int, reserve_bytes: int) -> float:
    """The ``--mem-fraction-static`` that SGLang chooses: what its reserve leaves of the whole device.

    SGLang asks nvidia-smi for the device, which reports a little more than a process can use (81,559 MiB
    against 81,080 on an 80 GB H100); the third decimal depends on that.
    """
    return round((device_bytes - reserve_bytes) / device_bytes, 3)


def sglang_profiled_tokens(
    fraction: float, *, free_bytes: int, weights_bytes: int, state_bytes: int, token_bytes: int
) -> int:
    """KV tokens that SGLang finds room for at a memory fraction; 0 when it refuses to start.

    fraction·free − weights − request state, over the bytes of a token; ``free_bytes`` is what was free before
    the weights were loaded (sglang/srt/model_executor/model_runner_kv_cache_mixin.py, profile_max_num_token).
    """
    left = int(fraction * free_bytes) - weights_bytes - state_bytes
    return max(0, left // token_bytes)
