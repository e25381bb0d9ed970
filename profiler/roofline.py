"""The hot side and the rest of a layer from a GPU's datasheet: a roofline with stated efficiency factors."""

from placer.datasheet import GpuDatasheet
from placer.model.spec import ModelSpec
from placer.profiler.cost import GpuRates, Provenance, Regime, SideCost

BANDWIDTH_EFFICIENCY = 0.75
"""Share of peak bandwidth that a fused FP8 expert kernel reaches on weights it reads once (assumed)."""
COMPUTE_EFFICIENCY = 0.5
"""Share of the dense tensor peak that it reaches once rows fill its tiles (assumed)."""
MOE_CALL_US = 35.0
LAYER_CALL_US = 65.0
"""Kernels of one fused-MoE call, and of the rest of a layer, inside a CUDA graph and without their bytes.

Tuned together on the odd points of docs/published.md: at small batches SGLang and vLLM take 90 to 117 µs per layer
beyond what they read, on A100, H100 and H200, over four kinds of attention. How the sum divides is assumed.
"""
TRANSFER_CALL_US = 30.0
"""Two host copies and two host callbacks of one hybrid layer, without their bytes (assumed)."""
NVLINK_SUM_US = 5.0
"""Latency of one sum over GPUs on NVLink: 4 to 6 µs on 2 to 8 H100 (sglang pull request 2904)."""
PCIE_SUM_US = 2.0
PCIE_SUM_STEP_US = 3.0
"""Latency of one sum over PCIe, by NCCL: of the call, and of each of the 2·(n - 1) steps of a ring over n GPUs.

Through what was timed: 19 to 22 µs on four GPUs, in a CUDA graph (haohervchb/sglang-V100 pull request 2), 42 on eight
RTX 4090 (nccl issue 1530) and 45 on eight RTX 6000D (sglang pull request 32479).
"""
PCIE_RING_GPUS = 8
"""GPUs beyond which NCCL sums in trees: sixteen take 36 µs (b12x pull request 139), no more than eight."""
EFFICIENCY = {
    "share of peak bandwidth": BANDWIDTH_EFFICIENCY,
    "share of peak arithmetic": COMPUTE_EFFICIENCY,
}
"""The two factors by name."""
MAX_ROWS = 65536
"""A roofline has no measured range; everything it says is marked datasheet."""


def roofline_hot(gpu: GpuDatasheet, model: ModelSpec, tp: int) -> SideCost:
    """Hot side of one GPU under tp: h(m) = max(weight bytes / bandwidth, m · flops / peak), h0 = one call.

    6·H·I flops per row: two for each weight of gate, up and down; at the FP8 peak for FP8 weights, at the bf16
    peak for smaller ones, which kernels widen before the product.
    """
    share_bytes = model.expert_bytes(model.expert_format["gpu"]) / tp
    peak = gpu.fp8_flops if model.expert_format["gpu"].startswith("fp8") else gpu.bf16_flops
    row_flops = 6 * model.expert_hidden_size * model.expert_intermediate_size / tp
    regime = Regime(
        min_tokens=1,
        max_tokens=None,
        fixed_us=MOE_CALL_US,
        token_us=0.0,
        expert_us=0.0,
        tile=1,
        tile_us=row_flops / (peak * COMPUTE_EFFICIENCY) * 1e6,
        residue_us=(0.0,),
        heaviest_factor=0.0,
        max_rows=MAX_ROWS,
        floor_us=share_bytes / (gpu.bandwidth_bytes_per_s * BANDWIDTH_EFFICIENCY) * 1e6,
    )
    return SideCost((regime,), Provenance.DATASHEET)


def roofline_rates(gpu: GpuDatasheet, model: ModelSpec, tp: int) -> GpuRates:
    """What the rest of a layer and the transfers cost, from the datasheet and the stated factors."""
    token_bytes = 2 * model.hidden_size * 2
    return GpuRates(
        bytes_per_s=gpu.bandwidth_bytes_per_s * BANDWIDTH_EFFICIENCY,
        bf16_flops=gpu.bf16_flops * COMPUTE_EFFICIENCY,
        layer_call_us=LAYER_CALL_US + sums_us(gpu, tp),
        transfer_call_us=TRANSFER_CALL_US,
        transfer_token_us=token_bytes / (gpu.pcie_bytes_per_s * BANDWIDTH_EFFICIENCY) * 1e6,
        provenance=Provenance.DATASHEET,
        layer_token_us=2 * all_reduce_us(2 * model.hidden_size, gpu, tp),
    )


def all_reduce_us(count_bytes: int, gpu: GpuDatasheet, gpus: int) -> float:
    """Sum of ``count_bytes`` over ``gpus`` beside its latency: a ring sends 2·(n − 1)/n of them from each GPU.

    Over NVLink where the GPU has it, else over PCIe, which takes about twice as long between GPUs that cannot
    read each other's memory (consumer cards).
    """
    link = gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s
    return 2 * (gpus - 1) / gpus * count_bytes / (link * BANDWIDTH_EFFICIENCY) * 1e6


def sums_us(gpu: GpuDatasheet | None, tp: int) -> float:
    """Latency of the two sums over ``tp`` GPUs of one layer; a GPU without a sheet is taken to have PCIe alone.

    NVLink's switches make it the same for any number of GPUs, over PCIe it grows with each.
    """
    if tp == 1:
        return 0.0
    if gpu is not None and gpu.nvlink_bytes_per_s:
        return 2 * NVLINK_SUM_US
    steps = 2 * (min(tp, PCIE_RING_GPUS) - 1)
    return 2 * (PCIE_SUM_US + PCIE_SUM_STEP_US * steps)
