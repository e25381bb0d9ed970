"""Batches that a server captures as CUDA graphs: a decode step runs in the next larger one."""

from bisect import bisect_left


def captured_batches(largest: int) -> tuple[int, ...]:
    """Decode batches to capture as CUDA graphs: sglang-kt's own steps up to ``largest``, and ``largest``.

    Steps of _generate_cuda_graph_batch_sizes in server_args.py of sglang-kt 0.7.2. They stop at the last step that is
    not above the maximum, so a maximum of 5 captures 1, 2 and 4 and runs batches of 5 without a graph.
    """
    steps = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32))
    return tuple(sorted({step for step in steps if step <= largest} | {largest}))


def padded_batch(requests: int, captured: tuple[int, ...]) -> int:
    """Tokens of the call that a decode step of ``requests`` makes; beyond the largest graph it runs without one.

    ``captured`` ascends.
    """
    place = bisect_left(captured, requests)
    return captured[place] if place < len(captured) else requests
