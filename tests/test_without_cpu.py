"""A plan with every expert hot says what the server gives without CPU experts, and compares no placements."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import placer
from placer.answer.detail import Detail
from placer.answer.part import chosen_parts
from placer.answer.placement import placement_answer
from placer.placement import PlacementDocument
from placer.profiler.profile import Profile

MODEL = Path(__file__).parents[1] / "examples" / "tiny-moe"
TRACE = MODEL / "traces" / "heldout.safetensors"
TRAFFIC = {"concurrency": 4, "prompt_tokens": 64, "output_tokens": 64}
Solve = Callable[..., PlacementDocument]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return placer.profile(MODEL, cpu="xeon-8480+", gpu="rtx-4090")


@pytest.fixture(scope="module")
def all_hot(profile: Profile) -> PlacementDocument:
    return placer.solve(MODEL, trace=None, profile=profile, hbm_budget="4GiB", **TRAFFIC)


def shown(document: PlacementDocument) -> str:
    """The answer as one line, without the wrapping."""
    console = Console(width=400)
    with console.capture() as capture:
        for part in chosen_parts(placement_answer(document, "plan.json"), Detail.USUAL):
            console.print(part)
    return " ".join(capture.get().split())


def test_the_figures_are_those_of_a_comparison(all_hot: PlacementDocument, profile: Profile) -> None:
    compared = placer.compare(
        MODEL, gpus=(1,), profile=profile, trace=None, hbm_budget="4GiB", kv_dtype="bf16", **TRAFFIC
    )
    row = next(row for row in compared.comparison.rows if row.way.mode == "gpu-only")
    assert row.figures is not None
    assert row.settings is not None
    found = all_hot.gpu_only
    assert found is not None
    assert found.fits
    assert found.output_tokens_per_s is not None
    assert found.ttft_ms_p95 is not None
    assert found.output_tokens_per_s.mid == row.figures.mid.output_tokens_per_s
    assert found.ttft_ms_p95.mid == row.figures.mid.ttft_ms.p95
    assert found.kv_tokens == row.settings.kv_tokens
    # The CPU side costs copies even where nothing is cold.
    assert found.output_tokens_per_s.mid > all_hot.predicted.output_tokens_per_s


def test_the_answer_offers_no_choice_of_placements_and_no_runtime_for_cold_experts(
    all_hot: PlacementDocument,
) -> None:
    said = shown(all_hot)
    assert "every expert fits on the GPU: placement has nothing to decide" in said
    assert "tokens/s without CPU experts" in said
    assert "next: placer export plan.json --runtime vllm -o DIR" in said
    for needless in ("same bytes, other placements", "is a sort", "default placement", "a GiB more"):
        assert needless not in said


def test_a_trace_changes_nothing_of_that(profile: Profile) -> None:
    document = placer.solve(MODEL, trace=TRACE, profile=profile, hbm_budget="4GiB", gap=0.5, **TRAFFIC)
    assert document.gpu_only is not None
    assert document.gpu_only.fits
    said = shown(document)
    for needless in ("same bytes, other placements", "is a sort", "default placement", "a GiB more"):
        assert needless not in said


def test_a_plan_with_cold_experts_says_nothing_of_it(profile: Profile) -> None:
    document = placer.solve(
        MODEL, trace=None, profile=profile, hbm_budget="4GiB", max_hot_per_layer=8, **TRAFFIC
    )
    assert not document.every_expert_hot
    assert document.gpu_only is None
    assert "without CPU experts" not in shown(document)


def test_a_gpu_without_a_datasheet_is_said_to_be_unknown(profile: Profile) -> None:
    unheard = replace(profile, gpu=replace(profile.gpu, name="unheard-of"))
    document = placer.solve(MODEL, trace=None, profile=unheard, hbm_budget="4GiB", **TRAFFIC)
    assert document.gpu_only is not None
    assert not document.gpu_only.fits
    assert "without CPU experts: not known here: the profile's GPU 'unheard-of' has no datasheet" in shown(
        document
    )


@pytest.mark.parametrize("given", [True, False])
def test_host_memory_is_advised_where_it_was_not_given(given: bool, profile: Profile) -> None:
    memory = {"host_memory": "64GiB"} if given else {}
    document = placer.solve(MODEL, trace=None, profile=profile, hbm_budget="4GiB", **TRAFFIC, **memory)
    assert any("--host-memory" in note for note in document.notes) is not given
