"""Whole layers: what a decode step pays for a layer all hot, and all cold."""

import numpy as np

from placer.level_cost import StepCosts
from placer.profiler.steps import StepKind
from placer.whole_layers import whole_layers


def test_each_layer_is_priced_all_hot_and_all_cold() -> None:
    # One layer of two experts. Step 1 uses both, step 2 the first alone: 10 µs an expert on the GPU, 100 on the CPU.
    costs = StepCosts(
        kind=StepKind.DECODE,
        tokens=2,
        hot_us=np.array([[[10, 10]], [[10, 0]]], dtype=np.float32),
        cold_us=np.array([[[100, 100]], [[100, 0]]], dtype=np.float32),
        hot_fixed_us=np.array([5.0, 5.0]),
        cold_fixed_us=np.array([7.0, 7.0]),
        cold_idle_us=np.zeros(2),
        heaviest_factor=np.zeros(2),
        base_us=1000.0,
        extrapolated_share=0.0,
    )
    whole = whole_layers(costs)
    # All hot: 5 + 20 and 5 + 10, above the 7 µs that the runtime pays for the CPU call all the same.
    assert whole.all_hot_ms == ((25 + 15) / 2 / 1e3,)
    assert whole.all_cold_ms == ((207 + 107) / 2 / 1e3,)
    assert whole.active_experts == (1.5,)
