"""Rows sorted by expert in whole blocks: a worked call, and what holds for every call."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from placer.kernels.row_blocks import row_blocks


def test_a_worked_call() -> None:
    # Slots 0..5 of three tokens: expert 2 has slots 0, 3 and 5, expert 0 has slot 1, slots 2 and 4 are skipped.
    blocks = row_blocks(torch.tensor([[2, 0], [-1, 2], [-1, 2]]), experts=4, block_rows=2)
    assert blocks.experts.tolist() == [0, 2, 2]
    assert blocks.slots.tolist() == [1, -1, 0, 3, 5, -1]


def test_a_call_without_rows_has_no_blocks() -> None:
    blocks = row_blocks(torch.full((3, 2), -1), experts=4, block_rows=16)
    assert blocks.slots.numel() == 0
    assert blocks.experts.numel() == 0


@given(
    ids=st.lists(st.lists(st.integers(-1, 5), min_size=3, max_size=3), min_size=1, max_size=12),
    block_rows=st.sampled_from([1, 2, 4, 16]),
)
def test_every_slot_is_served_once_by_its_own_expert(ids: list[list[int]], block_rows: int) -> None:
    call = torch.tensor(ids)
    blocks = row_blocks(call, experts=6, block_rows=block_rows)
    owners = blocks.experts.repeat_interleave(block_rows)
    real = blocks.slots >= 0
    assert torch.equal(owners[real].long(), call.flatten()[blocks.slots[real].long()])
    expected = torch.nonzero(call.flatten() >= 0).flatten()
    assert torch.equal(blocks.slots[real].long().sort().values, expected)
    # No block is only padding.
    assert bool(real.reshape(-1, block_rows).any(dim=1).all())
