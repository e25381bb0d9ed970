"""kt-kernel's other CPU methods against the float32 sum over the weights they were given."""

import importlib.util
from collections.abc import Callable

import pytest
import torch
from expert_calls import random_call, relative_error

from placer.errors import MissingComponentError
from placer.kernels.backends import choose_cpu_backend
from placer.kernels.cores import usable_cores
from placer.kernels.expert_mlp import SKIP, ExpertMLP, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_amx import KtAmxInt4, KtAmxInt8, random_bf16
from placer.kernels.kt_llamafile import KtLlamafile, random_q4k
from placer.kernels.kt_moe import KtMoe
from placer.kernels.output_check import check_output, output_error
from placer.profiler.timing.cpu_profile import profile_cpu

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(
        importlib.util.find_spec("kt_kernel") is None,
        reason="kt-kernel is not installed (pip install --no-deps)",
    ),
]

SHAPE = ExpertShape(hidden_size=512, expert_intermediate_size=256, experts=8, top_k=4)
AMX_BORDER, LLAMAFILE_BORDER = 8, 9
"""4·E/k tokens; one less than the ten from which LLAMAFILE groups its rows."""


def load_amx(kind: type[KtAmxInt4] | type[KtAmxInt8]) -> KtMoe:
    backend = kind()
    backend.load(SHAPE, 2, random_bf16(SHAPE, seed=5), max_tokens=40)
    return backend


def load_llamafile() -> KtMoe:
    backend = KtLlamafile()
    backend.load(SHAPE, 2, random_q4k(SHAPE, seed=5), max_tokens=40)
    return backend


PRECISION = {"AMXINT4": 0.32, "AMXINT8": 0.05, "LLAMAFILE": 0.03}
"""Largest relative errors on random weights of these sizes, for tens of seeds: 0.28, 0.041 and 0.024."""
LOADERS: dict[str, tuple[type[KtMoe], Callable[[], KtMoe]]] = {
    "AMXINT4": (KtAmxInt4, lambda: load_amx(KtAmxInt4)),
    "AMXINT8": (KtAmxInt8, lambda: load_amx(KtAmxInt8)),
    "LLAMAFILE": (KtLlamafile, load_llamafile),
}


@pytest.fixture(scope="module", params=LOADERS)
def loaded(request: pytest.FixtureRequest) -> KtMoe:
    kind, load = LOADERS[request.param]
    if problem := kind.problem(SHAPE, threads=1):
        pytest.skip(f"{request.param}: {problem}")
    return load()


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("tokens", [1, 3, AMX_BORDER, LLAMAFILE_BORDER, LLAMAFILE_BORDER + 1, 33])
def test_agrees_with_the_reference_on_both_sides_of_its_border(
    loaded: KtMoe, tokens: int, layer: int
) -> None:
    x, ids, weights = random_call(SHAPE, tokens, seed=tokens)
    expected = reference_forward(lambda e: loaded.loaded(layer, e), x, ids, weights)
    assert relative_error(loaded.forward(layer, x, ids, weights), expected) < PRECISION[loaded.method]


def test_its_error_is_not_far_below_what_it_is_allowed(loaded: KtMoe) -> None:
    # An allowance ten times too wide would let wrong numbers pass.
    assert output_error(loaded, SHAPE, 33, seed=0) > loaded.error_limit / 10


def test_skipped_slots_add_nothing(loaded: KtMoe) -> None:
    x, ids, weights = random_call(SHAPE, 12, seed=1)
    ids[:, 1] = SKIP
    ids[3] = SKIP
    out = loaded.forward(0, x, ids, weights).float()
    assert torch.all(out[3] == 0)
    expected = reference_forward(lambda e: loaded.loaded(0, e), x, ids, weights)
    assert relative_error(out, expected) < PRECISION[loaded.method]


def test_weights_for_timing_pass_the_check(loaded: KtMoe) -> None:
    backend: ExpertMLP = type(loaded)()
    backend.load_random(SHAPE, 1, seed=3, max_tokens=40)
    assert 0 < check_output(backend, SHAPE, 40, seed=3) < backend.error_limit


def test_the_variant_names_the_class_that_runs(loaded: KtMoe) -> None:
    assert "MOE, " in loaded.variant()
    assert loaded.version().startswith("kt-kernel ")


def test_bytes_of_an_expert() -> None:
    # 3 · 512 · 256 weights; AMX: a float32 for each of 256 + 256 + 512 rows; Q4_K: 144 bytes for 256 weights.
    assert KtAmxInt4.bytes_per_expert(SHAPE) == 3 * 512 * 256 // 2 + 4 * 1024
    assert KtAmxInt8.bytes_per_expert(SHAPE) == 3 * 512 * 256 + 4 * 1024
    assert KtLlamafile.bytes_per_expert(SHAPE) == 3 * 512 * 144


@pytest.mark.skipif(usable_cores() < 2, reason="kt-kernel needs two cores for one thread")
@pytest.mark.parametrize(
    ("kernel", "size", "multiple"),
    [("kt-amxint4", 192, 128), ("AMXINT8", 96, 64), ("kt-llamafile", 384, 256)],
)
def test_sizes_that_a_method_cannot_hold_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kernel: str, size: int, multiple: int
) -> None:
    # Refused before anything native is loaded, so that a CPU without these instructions can test it too.
    everything = frozenset({"avx2", "avx512f", "avx512bw"})
    monkeypatch.setattr("placer.kernels.kt_moe.cpu_flags", lambda: everything)
    with pytest.raises(
        MissingComponentError, match=rf"width {size} is not a multiple of {multiple}"
    ) as caught:
        choose_cpu_backend(kernel, ExpertShape(512, size, 8, 4))
    assert "--cpu-kernel torch" in caught.value.hint


@pytest.mark.skipif(usable_cores() < 2, reason="kt-kernel needs two cores for one thread")
def test_amxint4_is_profiled_with_what_is_its_own_also_without_amx_tiles() -> None:
    shape = ExpertShape(hidden_size=1024, expert_intermediate_size=512, experts=16, top_k=4)
    if problem := KtAmxInt4.problem(shape, threads=1):
        pytest.skip(f"AMXINT4: {problem}")
    profile = profile_cpu(shape, backend="AMXINT4", max_seconds=12.0, resident_bytes=1 << 25)
    assert profile.method == "AMXINT4"
    assert profile.variant.startswith("AMXInt4_MOE, ")
    # 3 · 1024 · 512 weights, a float32 for each of 512 + 512 + 1024 rows.
    assert profile.bytes_per_expert == 3 * 1024 * 512 // 2 + 4 * 2048
    assert profile.output_error is not None
    assert 0.1 < profile.output_error < KtAmxInt4.error_limit
    # Probed, wherever it is: what RAWINT4's border is says nothing about it.
    assert "tokens" in profile.border_how
    assert (profile.border_contrast is None) == (profile.border_tokens is None)


def test_where_the_cpu_cannot_run_it_amxint4_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placer.kernels.kt_moe.cpu_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(MissingComponentError, match="AMXINT4 cannot run: this CPU lacks avx512f, avx512bw"):
        choose_cpu_backend("AMXINT4", SHAPE)
    chosen, reason = choose_cpu_backend("auto", SHAPE)
    assert chosen.name == "kt"
    assert "AMXINT4" not in reason


def test_experts_are_spread_over_no_more_memory_nodes_than_their_blocks_allow() -> None:
    # 768 is six blocks of 128, twelve of 64 and three of 256.
    shape = ExpertShape(2048, 768, 128, 8)
    assert [KtAmxInt4.memory_nodes(shape, nodes) for nodes in (1, 2, 4, 8)] == [1, 2, 3, 6]
    assert KtAmxInt8.memory_nodes(shape, 8) == 6
    assert [KtLlamafile.memory_nodes(shape, nodes) for nodes in (1, 2, 4)] == [1, 1, 3]


def test_borders_are_said_to_lie_where_the_sources_put_them() -> None:
    assert KtAmxInt4.border_hint(SHAPE) == AMX_BORDER
    assert KtLlamafile.border_hint(SHAPE) == LLAMAFILE_BORDER
