"""Remedies: each single change that is advised fits, and the next smaller one does not."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from family_configs import FP8
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hbm import QWEN3_235B
from test_model import QWEN3_CODER_480B
from tiny_model import tiny_model

from placer.demand import MemoryDemand
from placer.errors import BadInputError
from placer.memory_plan import PLAN_FLAGS
from placer.model.spec import ModelSpec, read_model
from placer.parallelism import Parallelism
from placer.remedy import KINDS, Remedy, largest, remedies
from placer.units import GIB, parse_size

FLAGS = {**PLAN_FLAGS, "request_tokens": "--prompt-tokens"}
STEPS = {"kv_tokens": 1, "request_tokens": 1, "hot_per_layer": 1, "running": 1, "chunk_tokens": 64}
FIELDS = {"kv_tokens": "min_kv_tokens"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def model_of(folder: Path, config: dict[str, object]) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(config))
    return read_model(folder)


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return model_of(tmp_path_factory.mktemp("coder"), QWEN3_CODER_480B)


@pytest.fixture(scope="module")
def qwen235b(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return model_of(tmp_path_factory.mktemp("qwen"), {**QWEN3_235B, "quantization_config": FP8})


def on_h100(model: ModelSpec, *, hot: int, tokens: int, parallel: Parallelism) -> MemoryDemand:
    return MemoryDemand(
        model=model,
        parallel=parallel,
        budget_bytes=int(79.18 * GIB),
        running=64,
        chunk_tokens=8192,
        kv_dtype="bf16",
        min_kv_tokens=tokens,
        hot_per_layer=hot,
    )


def fits(demand: MemoryDemand) -> bool:
    try:
        return demand.parallel.problem(demand.model) is None and demand.fits
    except BadInputError:
        return False


def most_useful(demand: MemoryDemand, kind: str) -> float:
    """No chunk is asked for more than one prompt."""
    return demand.model.max_context_tokens if kind == "chunk_tokens" else math.inf


def assert_is_the_smallest(demand: MemoryDemand, remedy: Remedy) -> None:
    """The change fits, changes one thing only, and one step less of it does not fit."""
    assert fits(remedy.demand)
    field = FIELDS.get(remedy.kind, remedy.kind)
    if remedy.kind in STEPS:
        assert isinstance(remedy.value, int)
        assert remedy.demand == replace(demand, **{field: remedy.value})  # type: ignore[arg-type]
        assert remedy.value < getattr(demand, field)
        nearer = remedy.value + STEPS[remedy.kind]
        if nearer < getattr(demand, field) and nearer <= most_useful(demand, remedy.kind):
            assert not fits(replace(demand, **{field: nearer}))  # type: ignore[arg-type]
    elif remedy.kind == "budget_bytes":
        assert isinstance(remedy.value, int)
        assert not fits(replace(demand, budget_bytes=remedy.value - 1))
        # The size as it is written, rounded up to a hundredth of a GiB, is enough.
        assert fits(replace(demand, budget_bytes=parse_size(remedy.advice.split()[-1])))
    elif remedy.kind == "tp":
        for tp in range(demand.parallel.tp + 1, remedy.demand.parallel.tp):
            try:
                between = replace(demand, parallel=replace(demand.parallel, tp=tp))
            except BadInputError:
                continue
            assert not fits(between)
    elif remedy.kind == "kv_dtype":
        assert demand.kv_dtype == "bf16"


def test_a_number_is_found_where_fitting_ends() -> None:
    assert largest(0, 100, lambda number: number <= 37) == 37
    assert largest(5, 5, lambda number: number <= 37) == 5
    assert largest(0, 10, lambda _: True) == 10
    assert largest(0, 10, lambda _: False) is None
    assert largest(3, 2, lambda _: True) is None


def test_what_fits_needs_no_remedy(coder: ModelSpec) -> None:
    assert remedies(on_h100(coder, hot=96, tokens=40_960, parallel=Parallelism(4)), FLAGS) == ()


def test_131072_tokens_beside_96_hot_experts(coder: ModelSpec) -> None:
    demand = on_h100(coder, hot=96, tokens=131_072, parallel=Parallelism(4))
    assert demand.ledger().binding_line == "kv_pool"
    found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
    # tp 8 would cut FP8 blocks, and no chunk or number of requests saves the missing 3.7 GiB.
    assert set(found) == {"kv_tokens", "kv_dtype", "hot_per_layer", "budget_bytes"}
    for remedy in found.values():
        assert_is_the_smallest(demand, remedy)
    assert found["hot_per_layer"].advice == "--plan of at most 90 per layer"


def test_every_expert_hot_needs_more_gpus_in_a_shape_that_keeps_blocks_whole(coder: ModelSpec) -> None:
    demand = on_h100(coder, hot=160, tokens=131_072, parallel=Parallelism(4))
    found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
    # Plain tp 8 is impossible: 2,560 / 8 = 320. Two groups of four, or two stages of four, are not.
    assert "tp" not in found
    assert found["ep"].demand.parallel == Parallelism(8, ep=2)
    assert found["pp"].demand.parallel == Parallelism(4, pp=2)
    for remedy in found.values():
        assert_is_the_smallest(demand, remedy)


class TestExpertsLoadedWithoutRegardForKv:
    """Qwen3-235B, 32 hot experts per layer and 40,000 tokens: a user's request that ran out of memory."""

    def demand(self, model: ModelSpec, gib: float, parallel: Parallelism, hot: int = 32) -> MemoryDemand:
        return MemoryDemand(
            model=model,
            parallel=parallel,
            budget_bytes=int(gib * GIB),
            running=8,
            chunk_tokens=2048,
            kv_dtype="bf16",
            min_kv_tokens=40_000,
            hot_per_layer=hot,
        )

    def test_one_gpu_of_24_gb_is_told_what_would_fit(self, qwen235b: ModelSpec) -> None:
        demand = self.demand(qwen235b, 23.5, Parallelism())
        assert not demand.fits
        assert demand.ledger().binding_line == "hot_experts"
        found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
        # KV alone cannot pay for 53 GiB of experts; fewer experts or more GPUs do.
        assert set(found) == {"hot_per_layer", "tp", "budget_bytes"}
        assert found["tp"].value == 4
        for remedy in found.values():
            assert_is_the_smallest(demand, remedy)

    def test_kv_and_experts_trade_against_each_other(self, qwen235b: ModelSpec) -> None:
        most = 0
        for tokens in (80_000, 40_000, 20_000, 1_000):
            demand = replace(self.demand(qwen235b, 23.5, Parallelism(4), hot=128), min_kv_tokens=tokens)
            found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
            count = found["hot_per_layer"].value
            assert isinstance(count, int)
            assert count > most
            most = count

    def test_eight_gpus_of_24_and_of_48_gb_differ(self, qwen235b: ModelSpec) -> None:
        # tp 8 would cut 1,536 to 192, so eight GPUs are two stages of four.
        parallel = Parallelism(4, pp=2)
        rooms = [
            largest(
                0,
                128,
                lambda count, gib=gib: self.demand(qwen235b, gib, parallel, count).fits,  # type: ignore[misc]
            )
            for gib in (23.5, 47.3)
        ]
        assert rooms[0] is not None
        assert rooms[1] is not None
        assert rooms[0] < rooms[1]


@settings(max_examples=60, deadline=None)
@given(
    budget=st.integers(GIB // 2, 4 * GIB),
    running=st.integers(1, 300),
    chunk=st.integers(1, 16).map(lambda steps: steps * 512),
    tokens=st.integers(1, 2_000_000),
    request=st.integers(0, 4096),
    hot=st.integers(0, 8),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
def test_every_remedy_fits_and_is_the_smallest_of_its_kind(
    tiny: ModelSpec, budget: int, running: int, chunk: int, tokens: int, request: int, hot: int, dtype: str
) -> None:
    demand = MemoryDemand(
        model=tiny,
        parallel=Parallelism(),
        budget_bytes=budget,
        running=running,
        chunk_tokens=max(chunk, running),
        kv_dtype=dtype,
        min_kv_tokens=tokens,
        request_tokens=request,
        hot_per_layer=hot,
    )
    found = remedies(demand, FLAGS)
    assert bool(found) != demand.fits
    assert [remedy.kind for remedy in found] == [
        kind for kind in KINDS if kind in {remedy.kind for remedy in found}
    ]
    for remedy in found:
        assert_is_the_smallest(demand, remedy)


def test_a_smaller_chunk_is_advised_where_activations_break_the_budget(coder: ModelSpec) -> None:
    # 98 of 160 experts leave 0.1 GiB at a chunk of 8,192; a chunk of 32,768 wants 7.9 GiB more.
    demand = replace(on_h100(coder, hot=98, tokens=40_960, parallel=Parallelism(4)), chunk_tokens=32_768)
    found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
    chunk = found["chunk_tokens"].value
    assert isinstance(chunk, int)
    assert 8192 <= chunk < 32_768
    assert_is_the_smallest(demand, found["chunk_tokens"])


def test_fewer_requests_are_advised_where_they_fill_the_pool(coder: ModelSpec) -> None:
    demand = replace(
        on_h100(coder, hot=96, tokens=0, parallel=Parallelism(4)), running=128, request_tokens=1024
    )
    found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
    running = found["running"].value
    assert isinstance(running, int)
    # The pool that fits beside 96 experts holds 68,187 tokens (131,072 do not fit): 66 requests of 1,024.
    assert running == 66
    assert_is_the_smallest(demand, found["running"])


def test_a_pool_may_hold_more_than_the_running_requests_can_fill(coder: ModelSpec) -> None:
    # One running request of at most 1,000 tokens; prefixes of earlier ones use the rest of the pool.
    short = replace(coder, max_context_tokens=1000)
    demand = replace(on_h100(short, hot=1, tokens=10**9, parallel=Parallelism(4)), running=1)
    found = {remedy.kind: remedy for remedy in remedies(demand, FLAGS)}
    tokens = found["kv_tokens"].value
    assert isinstance(tokens, int)
    assert tokens > 100_000
    assert_is_the_smallest(demand, found["kv_tokens"])


def test_no_chunk_is_advised_beyond_the_longest_prompt(coder: ModelSpec) -> None:
    short = replace(coder, max_context_tokens=1000)
    wide = replace(on_h100(short, hot=1, tokens=1000, parallel=Parallelism(4)), chunk_tokens=10**6)
    found = {remedy.kind: remedy for remedy in remedies(wide, FLAGS)}
    assert found["chunk_tokens"].value == 960
