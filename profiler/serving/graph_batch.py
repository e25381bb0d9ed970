"""Batches that a server captures as CUDA graphs: a decode step runs in the next larger one."""

from bisect import bisect_left

from placer.profiler.serving.server import Scheduler

_VLLM_LARGEST = 512
"""Most tokens of a graph of vLLM's; on data-centre Blackwell GPUs 1,024, which is not modelled."""


def decode_graphs(scheduler: Scheduler, max_running: int, step_tokens: int) -> tuple[int, ...]:
    """Batches that a server with ``scheduler``'s rules captures by default; a step holds at most ``step_tokens``."""
    if scheduler is Scheduler.SGLANG:
        return captured_batches(max_running)
    return vllm_captured_batches(max_running, step_tokens)


def captured_batches(largest: int) -> tuple[int, ...]:
    """Decode batches to capture as CUDA graphs: sglang-kt's own steps up to ``largest``, and ``largest``.

    Steps of _generate_cuda_graph_batch_sizes in server_args.py of sglang-kt 0.7.2. They stop at the last step that is
    not above the maximum, so a maximum of 5 captures 1, 2 and 4 and runs batches of 5 without a graph.
    """
    steps = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32))
    return tuple(sorted({step for step in steps if step <= largest} | {largest}))


def vllm_captured_batches(max_running: int, step_tokens: int) -> tuple[int, ...]:
    """Tokens of the graphs that vLLM captures for --max-num-seqs and --max-num-batched-tokens, without drafting.

    Those of _set_cudagraph_sizes in config/vllm.py of vLLM 0.32: up to twice the requests, 512 and the tokens of a
    step, with the requests and the tokens of a step themselves where they are not above that.
    """
    default = min(2 * max_running, _VLLM_LARGEST)
    largest = min(default, step_tokens)
    steps = {step for step in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if step <= largest}
    if step_tokens <= largest:
        steps.add(step_tokens)
    if max_running <= min(default, step_tokens):
        steps.add(max_running)
    return tuple(sorted(steps))


def padded_batch(requests: int, captured: tuple[int, ...]) -> int:
    """Tokens of the call that a decode step of ``requests`` makes; beyond the largest graph it runs without one.

    ``captured`` ascends.
    """
    place = bisect_left(captured, requests)
    return captured[place] if place < len(captured) else requests
