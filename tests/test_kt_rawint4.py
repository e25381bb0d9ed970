"""kt-kernel's RAWINT4 against the float32 sum over the same dequantised weights, and what it must refuse."""

import importlib.util

import pytest
import torch
from expert_calls import random_call, relative_error

from placer.errors import MissingComponentError
from placer.kernels.backends import choose_cpu_backend
from placer.kernels.cores import usable_cores
from placer.kernels.expert_mlp import SKIP, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import random_int4
from placer.kernels.kt_rawint4 import KtRawInt4, Words

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(
        importlib.util.find_spec("kt_kernel") is None,
        reason="kt-kernel is not installed (pip install --no-deps)",
    ),
]

SHAPE = ExpertShape(hidden_size=256, expert_intermediate_size=128, experts=8, top_k=4)
BORDER = 8
"""4·E/k tokens: RAWINT4 changes its algorithm above this."""
PRECISION = 0.02
"""RAWINT4 rounds activations to int8: 0.012-0.013 relative on random weights."""


@pytest.fixture(scope="module")
def loaded() -> KtRawInt4:
    if usable_cores() < 2:
        pytest.skip("kt-kernel spins one thread more than it is given: it needs two cores")
    backend = KtRawInt4(threads=1)
    backend.load(SHAPE, 2, random_int4(SHAPE, seed=5), max_tokens=64)
    return backend


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("tokens", [1, 3, BORDER, BORDER + 1, 33])
def test_agrees_with_the_reference_on_both_sides_of_its_border(
    loaded: KtRawInt4, tokens: int, layer: int
) -> None:
    weights = random_int4(SHAPE, seed=5)
    x, ids, gate_weights = random_call(SHAPE, tokens, seed=tokens)
    expected = reference_forward(lambda e: weights(layer, e).dequantise(), x, ids, gate_weights)
    found = loaded.forward(layer, x, ids, gate_weights).float()
    assert relative_error(found, expected) < PRECISION


def test_skipped_slots_add_nothing(loaded: KtRawInt4) -> None:
    weights = random_int4(SHAPE, seed=5)
    x, ids, gate_weights = random_call(SHAPE, 12, seed=1)
    ids[:, 1] = SKIP
    ids[3] = SKIP
    out = loaded.forward(0, x, ids, gate_weights).float()
    assert torch.all(out[3] == 0)
    expected = reference_forward(lambda e: weights(0, e).dequantise(), x, ids, gate_weights)
    assert relative_error(out, expected) < PRECISION


def test_the_variant_names_the_class_that_runs(loaded: KtRawInt4) -> None:
    assert "MOE" in loaded.variant()
    assert loaded.version().startswith("kt-kernel ")


def test_sizes_that_it_would_overrun_are_refused_by_name() -> None:
    with pytest.raises(
        MissingComponentError, match=r"2880 is not a multiple of 128.*out of the bounds"
    ) as caught:
        choose_cpu_backend("kt", ExpertShape(2880, 2880, 32, 4))
    assert "--cpu-kernel torch" in caught.value.hint


def test_as_many_threads_as_cores_are_refused() -> None:
    with pytest.raises(MissingComponentError, match="one more thread spinning"):
        choose_cpu_backend("kt", SHAPE, threads=usable_cores())


def test_auto_takes_it_where_it_runs() -> None:
    if usable_cores() < 2:
        pytest.skip("kt-kernel needs two cores")
    backend, _ = choose_cpu_backend("auto", SHAPE, threads=1)
    assert backend is KtRawInt4


def test_the_border_is_said_to_lie_at_four_times_experts_over_top_k() -> None:
    assert KtRawInt4.border_hint(SHAPE) == BORDER
    assert KtRawInt4.border_hint(ExpertShape(2048, 768, 128, 8)) == 64


@pytest.mark.parametrize("counts", [(1,), (13, 5), (3, 14, 6)])
def test_layers_of_any_number_of_experts_run_queued_or_not(counts: tuple[int, ...]) -> None:
    # Native code held 13, 14, 5 or 6 experts in buffers that it then read past the ends of, and crashed.
    if usable_cores() < 2:
        pytest.skip("kt-kernel spins one thread more than it is given: it needs two cores")
    backend = KtRawInt4(threads=1)
    backend.begin(SHAPE.hidden_size, max_tokens=32)
    weights = random_int4(SHAPE, seed=5)
    for layer, count in enumerate(counts):
        experts = [weights(layer, expert) for expert in range(count)]
        words = [tuple(Words(m) for m in (each.gate, each.up, each.down)) for each in experts]
        assert backend.add_layer(SHAPE, words, max_tokens=32) == layer
    for layer, count in enumerate(counts):
        x, ids, gate_weights = random_call(SHAPE, 9, seed=layer)
        ids[ids >= count] = SKIP
        expected = reference_forward(lambda e, n=layer: weights(n, e).dequantise(), x, ids, gate_weights)
        now = backend.forward(layer, x, ids, gate_weights).clone()
        assert relative_error(now.float(), expected) < PRECISION
        out, tokens = torch.zeros_like(x), torch.tensor([9], dtype=torch.int32)
        backend.submit(layer, tokens, x, ids, gate_weights, out)
        backend.wait()
        assert torch.equal(out, now)
