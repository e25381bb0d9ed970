"""Rows of a call sorted by expert and padded to whole blocks: what grouped GPU kernels take."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Blocks of R rows, each of one expert.

    Attributes
    ----------
    slots
        int32 [blocks · R], which slot t·k + j of the call a row serves; -1 for padding.
    experts
        int32 [blocks], the expert of each block.
    """

    slots: Tensor
    experts: Tensor


def row_blocks(ids: Tensor, experts: int, block_rows: int) -> RowBlocks:
    """Blocks of ``block_rows`` rows for int64 ``ids`` [q, k] in -1..``experts``-1, on the CPU; -1 is left out."""
    flat = ids.reshape(-1).cpu()
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat + 1, minlength=experts + 1)
    rows = counts[1:]
    blocks = (rows + block_rows - 1) // block_rows
    slots = torch.full((int(blocks.sum()) * block_rows,), -1, dtype=torch.int32)
    sorted_slots = order[int(counts[0]) :]
    # A row's place: where its expert's blocks begin, and its rank among that expert's rows.
    first_block = (torch.cumsum(blocks, 0) - blocks) * block_rows
    first_row = torch.cumsum(rows, 0) - rows
    owner = torch.repeat_interleave(torch.arange(experts), rows)
    places = first_block[owner] + torch.arange(len(sorted_slots)) - first_row[owner]
    slots[places] = sorted_slots.to(torch.int32)
    return RowBlocks(slots, torch.repeat_interleave(torch.arange(experts, dtype=torch.int32), blocks))
