"""What a machine says of itself, read from the files of its operating system, and the speed of its products."""

import time
from pathlib import Path

import pytest
import torch

from placer.profiler.timing.machine import (
    ARITHMETIC_SECONDS,
    NumaNode,
    dense_arithmetic,
    numa_nodes,
    product_flops,
)


def test_memory_nodes_are_read_with_their_cores_and_memory(tmp_path: Path) -> None:
    for node, cores, kibibytes in ((0, "0-15,32-47", 263_000_000), (10, "16-31,48-63", 264_000_000)):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        (folder / "cpulist").write_text(cores + "\n")
        (folder / "meminfo").write_text(
            f"Node {node} MemTotal:       {kibibytes} kB\nNode {node} MemFree: 1 kB\n"
        )
    (tmp_path / "node2").mkdir()  # A node whose files cannot be read is left out.
    assert numa_nodes(tmp_path) == (
        NumaNode(0, "0-15,32-47", 263_000_000 * 1024),
        NumaNode(10, "16-31,48-63", 264_000_000 * 1024),
    )
    assert numa_nodes(tmp_path / "none") == ()


def test_products_are_timed_in_every_type_that_kernels_compute_in() -> None:
    found = dense_arithmetic(1)
    assert [(each.dtype, each.threads) for each in found] == [("float32", 1), ("bf16", 1), ("int8", 1)]
    # Any core of the last ten years does a billion operations per second, and none ten million million.
    assert 1e9 < max(each.flops for each in found) < 1e13


def test_a_slow_product_is_not_tried_at_a_larger_size() -> None:
    """A core without instructions for a type takes a minute for what one with them does in a blink."""
    sides = []

    def slow(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        sides.append(len(left))
        time.sleep(2 * ARITHMETIC_SECONDS)
        return left

    assert product_flops(slow, torch.int8) == pytest.approx(2 * 256**3 / (2 * ARITHMETIC_SECONDS), rel=0.5)
    assert set(sides) == {256}
