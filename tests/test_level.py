"""Memory levels: which settings are tried, and what an impossible request is told."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hbm import QWEN3_235B
from test_model import FP8
from test_remedy import model_of
from tiny_model import tiny_model

from placer.errors import BadInputError, InfeasibleError
from placer.level import Level, chunk_grid, levels, running_grid
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.profiler.serving.server import Scheduler
from placer.units import GIB
from placer.workload import Workload

WORKLOAD = Workload(prompt_tokens=512, output_tokens=128, concurrency=6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def every_level(
    model: ModelSpec,
    workload: Workload = WORKLOAD,
    *,
    budget_bytes: int = 8 * GIB,
    max_running: int | None = None,
    min_kv_tokens: int = 0,
    kv_dtypes: tuple[str, ...] = ("bf16",),
    **options: Any,
) -> tuple[Level, ...]:
    return levels(
        model,
        workload,
        tp=1,
        budget_bytes=budget_bytes,
        max_running=max_running,
        min_kv_tokens=min_kv_tokens,
        kv_dtypes=kv_dtypes,
        **options,
    )


def test_running_requests_are_powers_of_two_halves_between_and_the_clients() -> None:
    assert running_grid(1) == (1,)
    assert running_grid(6) == (1, 2, 3, 4, 6)
    assert running_grid(64) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    assert running_grid(5_000)[-2:] == (768, 1024)


@pytest.mark.parametrize(("prompt", "output"), [(512, 128), (1, 2), (600, 2), (2, 700)])
def test_a_lone_request_is_neither_refused_nor_cut(tiny: ModelSpec, prompt: int, output: int) -> None:
    # sglang-kt: max_req_len = pool - 1; prompts below max_req_len - 5; output at most max_req_len - prompt - 1.
    for level in every_level(tiny, Workload(prompt, output, 1)):
        max_req_len = level.settings.kv_tokens - 1
        assert prompt < max_req_len - 5
        assert output <= max_req_len - prompt - 1


def test_no_chunk_exceeds_the_prompt_by_more_than_one_step() -> None:
    assert chunk_grid(512, 4) == (512,)
    assert chunk_grid(1024, 4) == (512, 1024)
    assert chunk_grid(8192, 4) == (1024, 2048, 4096, 8192)
    assert chunk_grid(100_000, 4) == (8192,)


def test_a_vllm_step_holds_a_whole_prompt_beside_the_requests_that_decode() -> None:
    assert chunk_grid(512, 1, Scheduler.VLLM) == (512,)
    assert chunk_grid(512, 16, Scheduler.VLLM) == (512, 1024)
    assert chunk_grid(497, 16, Scheduler.VLLM) == (512,)


def test_no_chunk_is_smaller_than_the_decode_batch() -> None:
    assert chunk_grid(512, 600) == (1024,)
    assert chunk_grid(512, 10_000) == (10_000,)


def test_each_level_holds_the_kv_of_its_running_requests(tiny: ModelSpec) -> None:
    for level in every_level(tiny):
        running = level.settings.max_running_requests
        # A lone request needs five tokens beyond its own, or the runtime cuts its output.
        assert level.settings.kv_tokens == (645 if running == 1 else running * 640)
        spare = level.ledger.unused_bytes - level.room_experts * expert_share_bytes(tiny, 1)
        assert spare >= 0


def test_the_most_requests_beside_which_every_expert_is_hot_are_a_level(tiny: ModelSpec) -> None:
    every = len(tiny.moe_layers) * tiny.experts
    clients = Workload(512, 128, 8)
    # What five requests and all experts take; six would push experts to the CPU, and the grid has 4, 6 and 8.
    (least, *_) = every_level(tiny, replace(clients, concurrency=5), max_running=5)
    budget = least.ledger.needed_bytes + every * expert_share_bytes(tiny, 1)
    room = {
        level.settings.max_running_requests: level.room_experts
        for level in every_level(tiny, clients, budget_bytes=budget)
        if level.settings.chunk_tokens == least.settings.chunk_tokens
    }
    assert room[5] == every
    assert room[6] < every
    assert list(room) == [1, 2, 3, 4, 5, 6]
    fixed = every_level(tiny, clients, budget_bytes=budget, max_running=4)
    assert {level.settings.max_running_requests for level in fixed} == {4}


def test_least_kv_tokens_are_kept(tiny: ModelSpec) -> None:
    assert {level.settings.kv_tokens for level in every_level(tiny, min_kv_tokens=50_000)} == {50_000}


def test_more_kv_never_leaves_room_for_more_experts(tiny: ModelSpec) -> None:
    budget = int(3.2 * GIB)
    rooms = [
        every_level(tiny, budget_bytes=budget, max_running=1, min_kv_tokens=tokens)[0].room_experts
        for tokens in (1_000, 10_000, 20_000)
    ]
    assert rooms == sorted(rooms, reverse=True)


@settings(max_examples=40, deadline=None)
@given(
    budget=st.integers(3 * GIB, 4 * GIB),
    larger=st.integers(0, GIB),
    tokens=st.integers(0, 50_000),
    more=st.integers(0, 50_000),
    running=st.integers(1, 6),
)
def test_room_grows_with_the_budget_and_shrinks_with_the_context(
    tiny: ModelSpec, budget: int, larger: int, tokens: int, more: int, running: int
) -> None:
    def room(budget_bytes: int, least: int) -> int:
        try:
            return every_level(tiny, budget_bytes=budget_bytes, max_running=running, min_kv_tokens=least)[
                0
            ].room_experts
        except InfeasibleError:
            return -1

    assert room(budget, tokens + more) <= room(budget, tokens) <= room(budget + larger, tokens)


def test_an_impossible_budget_names_the_line_and_what_would_fit(tiny: ModelSpec) -> None:
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, budget_bytes=2 * GIB)
    assert caught.value.exit_code == 3
    assert "breaks at line 'fragmentation'" in caught.value.what
    assert "--hbm-budget of at least" in caught.value.hint


def test_the_budget_that_is_advised_fits(tiny: ModelSpec) -> None:
    # At one running request of 640 tokens every line but the experts is known, so the sum is the answer.
    least = every_level(tiny, max_running=1)[0].ledger
    needed = least.budget_bytes - least.unused_bytes
    assert every_level(tiny, budget_bytes=needed, max_running=1)[0].room_experts == 0
    with pytest.raises(InfeasibleError):
        every_level(tiny, budget_bytes=needed - 1, max_running=1)


def test_no_budget_beyond_the_gpu_is_advised(tiny: ModelSpec) -> None:
    whole = 2 * GIB
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, budget_bytes=whole, device_bytes=whole)
    assert "--hbm-budget" not in caught.value.hint
    assert "a GPU with 3." in caught.value.hint
    # A share of a GPU that would do as a whole may grow; where nothing known bounds it, it may grow as well.
    for device_bytes in (8 * GIB, None):
        with pytest.raises(InfeasibleError, match=r"--hbm-budget of at least 3\.\d\dGiB"):
            every_level(tiny, budget_bytes=whole, device_bytes=device_bytes)


def test_a_budget_that_rounds_beyond_the_gpu_is_all_of_it(tiny: ModelSpec) -> None:
    needed = every_level(tiny)[0].ledger.needed_bytes
    with pytest.raises(InfeasibleError, match="--hbm-budget 100%"):
        every_level(tiny, budget_bytes=GIB, device_bytes=needed, max_running=1)


def test_more_gpus_need_a_profile_of_their_own(tmp_path: Path) -> None:
    qwen235b = model_of(tmp_path, {**QWEN3_235B, "quantization_config": FP8})
    with pytest.raises(InfeasibleError, match=r"--tp 4 \(4 GPUs\) and a profile of that tp"):
        every_level(qwen235b, budget_bytes=int(23.5 * GIB), min_hot_per_layer=32)


def test_a_pool_that_is_too_large_is_told_how_many_tokens_fit(tiny: ModelSpec) -> None:
    budget = int(3.2 * GIB)
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, budget_bytes=budget, max_running=1, min_kv_tokens=10_000_000)
    assert "kv_pool" in caught.value.what
    advised = int(caught.value.hint.split("--min-kv-tokens of at most ")[1].split(";")[0])
    assert every_level(tiny, budget_bytes=budget, max_running=1, min_kv_tokens=advised)


def test_a_fixed_chunk_is_the_only_one(tiny: ModelSpec) -> None:
    assert {level.settings.chunk_tokens for level in every_level(tiny, chunk_tokens=256)} == {256}
    # A decode step larger than the chunk is refused by kt-kernel, so such levels are left out.
    assert {level.settings.max_running_requests for level in every_level(tiny, chunk_tokens=4)} == {
        1,
        2,
        3,
        4,
    }
    with pytest.raises(BadInputError, match="--chunk 2"):
        every_level(tiny, max_running=6, chunk_tokens=2)


def test_levels_leave_room_for_the_least_hot_experts(tiny: ModelSpec) -> None:
    least = every_level(tiny, max_running=1)[0].ledger
    budget = least.needed_bytes + 4 * 3 * expert_share_bytes(tiny, 1)
    level = every_level(tiny, max_running=1, budget_bytes=budget, min_hot_per_layer=3)[0]
    assert level.room_experts == 12
    # The ledger of a level holds no hot experts: the solver decides how many there are.
    assert level.ledger.lines["hot_experts"] == 0
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, max_running=1, budget_bytes=budget, min_hot_per_layer=4)
    assert "4 hot experts per layer" in caught.value.what
    assert "--min-hot of at most 3 per layer" in caught.value.hint
    with pytest.raises(BadInputError, match="--min-hot"):
        every_level(tiny, min_hot_per_layer=9)


def test_fewer_running_requests_are_advised_only_where_they_were_asked_for(tiny: ModelSpec) -> None:
    budget = every_level(tiny, max_running=4)[0].ledger.needed_bytes
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, max_running=6, budget_bytes=budget)
    assert "--max-running of at most 4" in caught.value.hint
    assert every_level(tiny, budget_bytes=budget)


def test_free_memory_that_was_measured_replaces_the_table(tiny: ModelSpec) -> None:
    (level,) = every_level(tiny, max_running=1, loss_bytes=GIB)
    assert level.ledger.lines["free_memory_loss"] == GIB


def test_a_request_beyond_the_context_is_refused(tiny: ModelSpec) -> None:
    with pytest.raises(BadInputError, match="context"):
        every_level(tiny, Workload(4000, 200, 1))


@pytest.mark.parametrize(
    ("workload", "said", "cure"),
    [
        (
            Workload(4000, 200, 1),
            "a request of 4,200 tokens exceeds",
            "lower --prompt-tokens or --output-tokens",
        ),
        (
            Workload(512, 128, 1, length_variation=2.5),
            "tokens (the longest of 640 on average with --length-variation 2.5) exceeds",
            "lower --length-variation, --prompt-tokens or --output-tokens",
        ),
        (
            Workload(512, 128, 1, arrivals_s=(0.0, 1.0), request_lengths=((8, 8), (4000, 200))),
            "a request of 4,200 tokens exceeds",
            "leave longer requests out of --arrivals",
        ),
    ],
)
def test_what_made_a_request_too_long_is_to_be_lowered(
    tiny: ModelSpec, workload: Workload, said: str, cure: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        every_level(tiny, workload)
    assert said in caught.value.what
    assert caught.value.hint == cure


def test_a_least_pool_is_not_advised_below_what_the_longest_request_takes(tiny: ModelSpec) -> None:
    varied = Workload(512, 128, 1, length_variation=0.5)
    budget = every_level(tiny, Workload(512, 128, 1))[0].ledger.needed_bytes
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, varied, budget_bytes=budget)
    assert "--min-kv-tokens" not in caught.value.hint
    with pytest.raises(InfeasibleError, match=r"--min-kv-tokens of at most \d+;"):
        every_level(tiny, varied, budget_bytes=budget + 2**27, min_kv_tokens=10_000_000)


def test_shorter_requests_are_advised_by_the_options_they_come_from(tiny: ModelSpec) -> None:
    budget = every_level(tiny, max_running=6, chunk_tokens=512)[0].ledger.needed_bytes
    long = Workload(2048, 1024, 6)
    with pytest.raises(InfeasibleError) as caught:
        every_level(tiny, long, max_running=6, budget_bytes=budget, chunk_tokens=512)
    match = re.search(r"--prompt-tokens and --output-tokens of at most (\d+) together", caught.value.hint)
    assert match is not None
    shorter = replace(long, prompt_tokens=int(match[1]) - 64, output_tokens=64)
    assert every_level(tiny, shorter, max_running=6, budget_bytes=budget, chunk_tokens=512)


def test_tp_that_cuts_fp8_blocks_is_refused(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    with pytest.raises(BadInputError, match="128"):
        levels(
            model,
            WORKLOAD,
            tp=2,
            budget_bytes=8 * GIB,
            max_running=None,
            min_kv_tokens=0,
            kv_dtypes=("bf16",),
        )
