"""Hot and cold experts at once: their sum against the reference, and that neither side waits for the other to end."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from expert_calls import random_call, relative_error
from torch import Tensor

from placer.kernels.expert_mlp import SKIP, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.joined_layer import JoinedInputs, JoinedLayer
from placer.kernels.torch_fp8 import TorchFp8
from placer.kernels.torch_int4 import TorchInt4
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.joined_step import JoinedStep, joined_routing, joined_steps

SHAPE = ExpertShape(hidden_size=128, expert_intermediate_size=64, experts=6, top_k=3)
HOT = (0, 2, 5)


def inputs(tokens: int) -> JoinedInputs:
    x, ids, weights = random_call(SHAPE, tokens, seed=tokens)
    is_hot = torch.isin(ids, torch.tensor(HOT))
    return JoinedInputs(x, weights, torch.where(is_hot, ids, SKIP), torch.where(is_hot, SKIP, ids))


def backends() -> tuple[TorchFp8, TorchInt4]:
    hot, cold = TorchFp8("cpu"), TorchInt4(1)
    hot.load_random(SHAPE, 2, seed=1, max_tokens=16)
    cold.load_random(SHAPE, 2, seed=2, max_tokens=16)
    return hot, cold


@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_the_sum_is_that_of_all_experts(tokens: int) -> None:
    hot, cold = backends()
    joined = JoinedLayer(hot, cold, device="cpu")
    given = inputs(tokens)
    found = joined.bound(1, 0, given)()
    joined.close()
    # Every slot is one side's: the two references add up to the whole layer.
    assert bool(((given.hot_ids == SKIP) ^ (given.cold_ids == SKIP)).all())
    expected = reference_forward(lambda e: hot.loaded(1, e), given.x, given.hot_ids, given.weights)
    expected += reference_forward(lambda e: cold.loaded(0, e), given.x, given.cold_ids, given.weights)
    assert relative_error(found, expected) < 0.05


def test_each_side_runs_while_the_other_does() -> None:
    # Each waits until the other has begun: one after the other they would wait for ever.
    hot_began, cold_began = threading.Event(), threading.Event()

    class WaitingHot(TorchFp8):
        def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
            call = super().bound(layer, x, ids, weights)

            def run() -> Tensor:
                hot_began.set()
                assert cold_began.wait(10)
                return call()

            return run

    class WaitingCold(TorchInt4):
        def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
            cold_began.set()
            assert hot_began.wait(10)
            return super().forward(layer, x, ids, weights)

    hot, cold = WaitingHot("cpu"), WaitingCold(1)
    for side in (hot, cold):
        side.load_random(SHAPE, 1, seed=0, max_tokens=4)
    joined = JoinedLayer(hot, cold, device="cpu")
    assert joined.bound(0, 0, inputs(4))().shape == (4, 128)
    joined.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_sum_is_that_of_all_experts() -> None:
    hot, cold = TorchFp8(), TorchInt4(1)
    hot.load_random(SHAPE, 1, seed=1, max_tokens=16)
    cold.load_random(SHAPE, 1, seed=2, max_tokens=16)
    given = inputs(16)
    run = JoinedLayer(hot, cold).bound(0, 0, given)
    expected = reference_forward(lambda e: hot.loaded(0, e), given.x, given.hot_ids, given.weights)
    expected += reference_forward(lambda e: cold.loaded(0, e), given.x, given.cold_ids, given.weights)
    for _ in range(2):
        assert relative_error(run().cpu(), expected) < 0.05


def test_layer_steps_keep_both_sides() -> None:
    # Layer 0 keeps expert 0 hot, layer 1 none: only layer 0 has both, and only where expert 0 has rows.
    rows = np.array([[[4, 1, 3], [2, 0, 6]], [[0, 5, 3], [2, 0, 6]]], dtype=np.int32)
    hot = np.array([[True, False, False], [False] * 3])
    found = joined_steps(Steps(rows, np.array([8, 8]), StepKind.DECODE), hot, seed=0)
    assert found == [JoinedStep(step=0, layer=0, hot_rows=(4,), cold_rows=(3, 1), tokens=8)]


def test_routing_gives_every_side_its_rows() -> None:
    step = JoinedStep(0, 0, hot_rows=(4, 2), cold_rows=(3, 1), tokens=4)
    hot_ids, cold_ids = joined_routing(step, SHAPE, np.random.default_rng(0))
    for ids, rows in ((hot_ids, [4, 2]), (cold_ids, [3, 1])):
        experts, counts = torch.unique(ids[ids != SKIP], return_counts=True)
        assert sorted(counts.tolist(), reverse=True) == rows
        # No token names an expert twice.
        assert all(int((ids == expert).sum(dim=1).max()) == 1 for expert in experts)
    assert set(hot_ids.flatten().tolist()) & set(cold_ids.flatten().tolist()) == {SKIP}
    with pytest.raises(ValueError, match="do not fit 4 tokens"):
        joined_routing(JoinedStep(0, 0, (5,), (1,), 4), SHAPE, np.random.default_rng(0))
