"""Deferred experts: CPU work that runs beside the next layer, and which experts that is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import token_trace

from placer.deferral import deferred_layers_us
from placer.profiler.deferred import immediate_experts


def test_two_layers() -> None:
    # Layer 0: the GPU takes 10, the CPU 20 at once and 30 deferred; 5 lie between the layers; layer 1 takes 50.
    hot, immediate = np.array([[10.0, 10.0]]), np.array([[20.0, 50.0]])
    deferred = np.array([[30.0, 0.0]])
    layers = deferred_layers_us(hot, immediate, deferred, np.array([5.0, 0.0]))
    # Layer 0 merges at 20. The CPU is free at 50, so layer 1, which starts at 25, merges at 100.
    assert layers.tolist() == [[20.0, 75.0]]
    # With all work at once it would be 50 + 5 + 50.
    at_once = deferred_layers_us(hot, immediate + deferred, np.zeros((1, 2)), np.array([5.0, 0.0]))
    assert at_once.tolist() == [[50.0, 50.0]]


def test_a_long_gap_hides_what_is_deferred() -> None:
    layers = deferred_layers_us(
        np.full((1, 2), 10.0), np.full((1, 2), 20.0), np.array([[30.0, 0.0]]), np.array([100.0, 0.0])
    )
    assert layers.tolist() == [[20.0, 20.0]]


@settings(max_examples=80, deadline=None)
@given(
    layers=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_deferring_is_never_slower_and_never_beats_either_side(layers: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    hot, immediate, deferred = random.uniform(0, 100, size=(3, 4, layers))
    deferred[:, -1] = 0.0
    gap = random.uniform(0, 30, size=layers)
    found = deferred_layers_us(hot, immediate, deferred, gap)
    at_once = np.maximum(hot, immediate + deferred).sum(axis=1)
    assert (found.sum(axis=1) <= at_once + 1e-9).all()
    assert (found >= np.maximum(hot, immediate) - 1e-9).all()
    # The CPU does all of its work by the last merge.
    busy = (immediate + deferred).sum(axis=1)
    assert (found.sum(axis=1) + gap[:-1].sum() >= busy - 1e-9).all()


def test_the_weakest_selection_is_deferred_unless_another_token_keeps_the_expert() -> None:
    # Two tokens of top-2 in one layer; both choose expert 1, the second one mainly.
    trace = replace(
        token_trace([[[0, 1]], [[1, 2]]], experts=4),
        topk_weights=np.array([[[0.9, 0.1]], [[0.6, 0.4]]], dtype=np.float16),
    )
    alone = immediate_experts(trace, np.array([[0]]), 1)
    assert alone.tolist() == [[[True, False, False, False]]]
    together = immediate_experts(trace, np.array([[0, 1]]), 1)
    assert together.tolist() == [[[True, True, False, False]]]


def test_weights_decide_and_not_the_order_of_the_selections() -> None:
    trace = replace(
        token_trace([[[0, 1]]], experts=2), topk_weights=np.array([[[0.2, 0.8]]], dtype=np.float16)
    )
    assert immediate_experts(trace, np.array([[0]]), 1).tolist() == [[[False, True]]]


@pytest.mark.parametrize("deferred", [2, 5])
def test_all_selections_can_be_deferred(deferred: int) -> None:
    assert not immediate_experts(token_trace([[[0, 1]]], experts=2), np.array([[0]]), deferred).any()
