"""The base of a step, timed part by part: on CPU tensors here, where only sizes and sums can be checked."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from shared_data import SHARED_DATA, needs_shared_data
from tiny_model import tiny_model

from placer.errors import MissingComponentError
from placer.kernels.attention import Attention, AttentionShape
from placer.kernels.dense_product import ProductShape
from placer.kernels.torch_attention import TorchAttention
from placer.model.spec import read_model
from placer.profiler.attention_layers import AttentionLayers, attention_layers
from placer.profiler.base import step_weights_bytes
from placer.profiler.base_cost import AttentionFit, AttentionPart, BaseCost, BasePart, TokenCurve
from placer.profiler.step_load import StepLoad
from placer.profiler.timing.base_fit import fit_shape
from placer.profiler.timing.base_plan import BaseGrid, BasePlan, base_plan
from placer.profiler.timing.base_points import AttentionSize, attention_sizes
from placer.profiler.timing.base_timing import Device, checked_attention, time_base
from placer.profiler.timing.stopwatch import wall_clock

GRID = BaseGrid(
    tokens=(1, 4, 16),
    heldout_tokens=(2,),
    decode=((1, 8), (2, 16), (4, 8), (4, 64)),
    heldout_decode=((3, 20),),
    prefill=((4, 4), (4, 16), (16, 16), (16, 64)),
    heldout_prefill=((8, 20),),
)


def cpu(*kernels: Attention) -> Device:
    """Wall-clock times of CPU kernels: for the code's sake, no profile is made of them."""
    return Device("cpu", "a CPU", wall_clock, 1, 1 << 26, kernels or (TorchAttention("cpu"),))


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> tuple[BasePlan, BaseCost]:
    plan = replace(base_plan(tiny_model(tmp_path_factory.mktemp("tiny")), 1, grid=GRID), rounds=1)
    return plan, time_base(plan, cpu())


def test_every_weight_is_timed_or_counted(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    plan = base_plan(model, 1, grid=GRID)
    products = [(part.count, part.work) for part in plan.parts if isinstance(part.work, ProductShape)]
    # q [256, 256], k and v [128, 256], o, all FP8; the router [8, 256] and the head [512, 256] in bf16.
    assert sorted((count, each.rows, each.columns, each.fp8) for count, each in products) == [
        (1, 512, 256, False), (4, 8, 256, False), (4, 256, 256, True), (4, 256, 256, True), (8, 128, 256, True),
    ]  # fmt: skip
    timed_bytes = sum(count * each.bytes for count, each in products)
    assert timed_bytes + plan.untimed_weights_bytes == step_weights_bytes(model, 1)
    # Norms and scales are what is left.
    assert plan.untimed_weights_bytes < 0.02 * timed_bytes


def test_tp_cuts_products_and_heads(tmp_path: Path) -> None:
    plan = base_plan(tiny_model(tmp_path, num_key_value_heads=2), 2, grid=GRID)
    (attention,) = plan.attention
    assert attention.decode == AttentionShape(2, 1, 64, 64)
    assert {(part.work.rows, part.work.columns) for part in plan.parts if isinstance(part.work, ProductShape)} == {
        (128, 256), (64, 256), (256, 128), (8, 256), (256, 256),
    }  # fmt: skip


@needs_shared_data
@pytest.mark.parametrize("path", sorted((SHARED_DATA / "model_configs").glob("*.json")), ids=lambda p: p.stem)
def test_a_published_model_can_be_planned(path: Path) -> None:
    model = read_model(path)
    plan = base_plan(model, 1)
    for each in plan.attention:
        assert (each.decode is None) == (each.prefill is None) == (each.layers.kind == "other")
    timed_bytes = sum(p.count * p.work.bytes for p in plan.parts if isinstance(p.work, ProductShape))
    # Scales of FP8 and small tensors apart, every byte that a step reads is a product's; hyper-connections of
    # DeepSeek-V4 are float32 and are not.
    assert timed_bytes > 0.9 * step_weights_bytes(model, 1)
    assert TypeAdapter(BasePlan).validate_json(json.dumps(asdict(plan))) == plan


def test_parts_are_timed_and_add_up(timed: tuple[BasePlan, BaseCost]) -> None:
    _, cost = timed
    assert cost.device == "cpu"
    assert all(us > 0 for part in cost.parts for us in part.curve.us)
    (attention,) = cost.attention
    assert attention.decode is not None
    assert attention.prefill is not None
    assert cost.all_reduce is None
    load = StepLoad(4, 32)
    by_hand = (
        sum(part.count * part.curve.at(4) for part in cost.parts)
        + 4 * attention.decode.at(4, 32)
        + cost.untimed_weights_bytes / cost.bytes_per_s * 1e6
    )
    assert cost.step_us(load, kv_dtype="bf16") == pytest.approx(by_hand)


def test_a_base_survives_its_file(timed: tuple[BasePlan, BaseCost]) -> None:
    cost = timed[1]
    assert TypeAdapter(BaseCost).validate_json(json.dumps(asdict(cost))) == cost


def test_a_curve_is_straight_between_and_goes_on_beyond() -> None:
    curve = TokenCurve((1, 4, 8), (10.0, 16.0, 20.0))
    # 10 at one token, 2 more per token up to 4, then 1 more per token.
    assert [curve.at(tokens) for tokens in (0, 1, 3, 4, 6, 8, 18)] == [
        0.0,
        10.0,
        14.0,
        16.0,
        18.0,
        20.0,
        30.0,
    ]


def test_a_step_by_hand() -> None:
    # Two layers of grouped attention: entries of one head of 4 bytes, a window of 10 tokens.
    layers = AttentionLayers("grouped", 2, 1, 1, 1, 1, 1, 1, 10, 1, None, True, 4, 2)
    cost = BaseCost(
        device="cuda", machine="a GPU", kernels="k", tp=1, layers=2,
        parts=(
            BasePart("projection", 2, False, TokenCurve((1, 101), (5.0, 105.0)), 0.0),
            BasePart("output head", 1, True, TokenCurve((1, 101), (7.0, 7.0)), 0.0),
        ),
        attention=(AttentionPart(layers, AttentionFit(1.0, 0.5, 0.1, 10, 0.0), None),),
        all_reduce=TokenCurve((1,), (3.0,)), assumed_layer_us=0.0, untimed_weights_bytes=2_000_000,
        state_request_bytes=1_000_000, bytes_per_s=1e12, bf16_flops=1e12, notes=(),
    )  # fmt: skip
    # Three requests: projections 2·7, head 7, attention 2·(1 + 0.5·3 + 0.1·3·10), sums 2·2·3; 2 MB of weights and
    # 3·2·1 MB of states read and written at a byte per picosecond.
    assert cost.step_us(StepLoad(3, 1000), kv_dtype="bf16") == pytest.approx(14 + 7 + 2 * 5.5 + 12 + 2 + 6)
    # A chunk of 100 tokens: projections 2·104, one sampled token, no fit of its attention: 2·2·(1 + 1)·100·10
    # operations at a million per microsecond.
    assert cost.step_us(StepLoad(0, 0, 100, 1000), kv_dtype="bf16") == pytest.approx(208 + 7 + 0.008 + 12 + 2)


def test_attention_is_fitted_to_what_it_is() -> None:
    shape = AttentionShape(2, 1, 8, 8)

    def truth(size: AttentionSize) -> float:
        tokens = size.requests * size.queries
        return 4.0 + 0.25 * tokens + 0.01 * tokens * (size.entries - (size.queries - 1) / 2)

    for decoding in (True, False):
        fitting, judging = attention_sizes(GRID, decoding=decoding)
        times = {(shape, size): truth(size) for size in (*fitting, *judging)}
        fit = fit_shape(shape, GRID, times, decoding=decoding)
        assert (fit.fixed_us, fit.token_us, fit.pair_us) == pytest.approx((4.0, 0.25, 0.01))
        assert fit.heldout_mape == pytest.approx(0.0, abs=1e-9)


class Wrong(TorchAttention):
    """Twice the right answer."""

    name = "wrong"

    def bound(self, shape: AttentionShape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):  # type: ignore[no-untyped-def]
        right = super().bound(shape, q, k, v)
        return lambda: right() * 2


def test_a_kernel_with_wrong_numbers_is_passed_over_and_never_the_last() -> None:
    shape = AttentionShape(4, 2, 64, 64)
    assert checked_attention(shape, cpu(Wrong("cpu"), TorchAttention("cpu")), 0).name == "torch"
    with pytest.raises(MissingComponentError, match=r"no attention kernel computes.*wrong is off by 100"):
        checked_attention(shape, cpu(Wrong("cpu")), 0)


@needs_shared_data
def test_latent_layers_decode_shared_and_prefill_whole_heads() -> None:
    model = read_model(SHARED_DATA / "model_configs" / "DeepSeek-V3.json")
    (planned,) = base_plan(model, 8).attention
    assert planned.decode == AttentionShape(16, 1, 576, 512, shared=True)
    assert planned.prefill == AttentionShape(16, 16, 192, 128)
    assert np.isclose(attention_layers(model)[0].pair_flops(8), 2 * 61 * 16 * 320)
