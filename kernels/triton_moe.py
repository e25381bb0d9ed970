"""The Triton kernels of a block-FP8 expert MLP; imported only where triton is installed.

Rows are rounded to the type of the tensor that they are written to: FP8 in use, float32 where the interpreter
runs these kernels for tests.
"""

import triton
import triton.language as tl

BLOCK = tl.constexpr(128)
LARGEST = tl.constexpr(448.0)


@triton.jit
def quantise_groups_kernel(x, values, scales, K: tl.constexpr):
    """Round one row's group of 128 to FP8: grid (rows, K/128)."""
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = group * BLOCK + tl.arange(0, BLOCK)
    wide = tl.load(x + row * K + columns).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(wide), axis=0) / LARGEST, 1e-12)
    rounded = tl.minimum(tl.maximum(wide / scale, -LARGEST), LARGEST)
    tl.store(values + row * K + columns, rounded.to(values.dtype.element_ty))
    tl.store(scales + row * (K // BLOCK) + group, scale)


@triton.jit
def gate_up_kernel(
    x, x_scale, w, w_scale, slots, experts, hidden, hidden_scale,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """FP8 silu(gate x) * (up x) of one block of rows and 128 of the expert's width: grid (blocks, WIDTH/128)."""
    block, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    places = block * ROWS + tl.arange(0, ROWS)
    slot = tl.load(slots + places)
    real = slot >= 0
    token = (tl.where(real, slot, 0) // K).to(tl.int64)
    expert = tl.load(experts + block).to(tl.int64)
    inner = tl.arange(0, BLOCK)
    columns = part * BLOCK + inner
    gate = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    up = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    gate_rows = w + expert * 2 * WIDTH * HIDDEN + columns.to(tl.int64) * HIDDEN
    gate_scales = w_scale + (expert * 2 * (WIDTH // BLOCK) + part) * (HIDDEN // BLOCK)
    for step in range(HIDDEN // BLOCK):
        depth = step * BLOCK + inner
        a = tl.load(x + token[:, None] * HIDDEN + depth[None, :], mask=real[:, None], other=0.0)
        a_scale = tl.load(x_scale + token * (HIDDEN // BLOCK) + step, mask=real, other=0.0)
        g = tl.load(gate_rows[None, :] + depth[:, None])
        u = tl.load(gate_rows[None, :] + WIDTH * HIDDEN + depth[:, None])
        g_scale = tl.load(gate_scales + step)
        u_scale = tl.load(gate_scales + (WIDTH // BLOCK) * (HIDDEN // BLOCK) + step)
        gate += tl.dot(a, g.to(a.dtype)) * (a_scale[:, None] * g_scale)
        up += tl.dot(a, u.to(a.dtype)) * (a_scale[:, None] * u_scale)
    both = gate * tl.sigmoid(gate) * up
    scale = tl.maximum(tl.max(tl.abs(both), axis=1) / LARGEST, 1e-12)
    rounded = tl.minimum(tl.maximum(both / scale[:, None], -LARGEST), LARGEST)
    tl.store(hidden + places[:, None] * WIDTH + columns[None, :], rounded.to(hidden.dtype.element_ty))
    tl.store(hidden_scale + places * (WIDTH // BLOCK) + part, scale)


@triton.jit
def down_kernel(
    hidden, hidden_scale, w, w_scale, slots, experts, weights, out,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """weight * (down hidden) of one block of rows and 128 outputs, each row to its slot: grid (blocks, HIDDEN/128)."""
    block, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    places = block * ROWS + tl.arange(0, ROWS)
    slot = tl.load(slots + places)
    real = slot >= 0
    expert = tl.load(experts + block).to(tl.int64)
    inner = tl.arange(0, BLOCK)
    columns = part * BLOCK + inner
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    rows = w + expert * HIDDEN * WIDTH + columns.to(tl.int64) * WIDTH
    scales = w_scale + (expert * (HIDDEN // BLOCK) + part) * (WIDTH // BLOCK)
    for step in range(WIDTH // BLOCK):
        depth = step * BLOCK + inner
        a = tl.load(hidden + places[:, None] * WIDTH + depth[None, :])
        a_scale = tl.load(hidden_scale + places * (WIDTH // BLOCK) + step)
        b = tl.load(rows[None, :] + depth[:, None])
        total += tl.dot(a, b.to(a.dtype)) * (a_scale[:, None] * tl.load(scales + step))
    weight = tl.load(weights + slot, mask=real, other=0.0)
    target = out + slot.to(tl.int64)[:, None] * HIDDEN + columns[None, :]
    tl.store(target, (total * weight[:, None]).to(out.dtype.element_ty), mask=real[:, None])
