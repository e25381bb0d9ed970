"""What SGLang keeps free by itself, on the cases that can be read off its code and logs."""

import pytest

from placer.runtime_reserve import sglang_default_fraction, sglang_profiled_tokens, sglang_reserve_bytes
from placer.units import GIB, MIB

H100_MIB = 81_559
"""As nvidia-smi reports an 80 GB H100."""


def reserve_mib(**changes: int) -> float:
    options = {"device_bytes": H100_MIB * MIB, "chunk_tokens": 8192, "graph_batch": 64, "gpus": 4, **changes}
    return sglang_reserve_bytes(**options) / MIB  # type: ignore[arg-type]


def test_the_reserve_of_four_h100() -> None:
    # 512 + 1.5 · 8,192 + 2 · 64 + 128 · 4.
    assert reserve_mib() == 13_440
    assert sglang_default_fraction(H100_MIB * MIB, 13_440 * MIB) == 0.835


def test_every_term() -> None:
    assert reserve_mib(gpus=8) - reserve_mib() == 4 * 128
    assert reserve_mib(graph_batch=512) - reserve_mib() == 2 * 448
    assert reserve_mib(dp=4) - reserve_mib() == 3 * 64 * 4
    assert reserve_mib(dp=4, graph_batch=512) - reserve_mib(graph_batch=512) == 4.5 * 512 * 4
    assert reserve_mib(speculative=True) - reserve_mib() == 2048
    # Chunks below 2,048 count as that, and large GPUs keep 10 GiB at least.
    small = {"device_bytes": 24 * GIB, "gpus": 1, "graph_batch": 8}
    assert reserve_mib(chunk_tokens=512, **small) == reserve_mib(chunk_tokens=2048, **small) == 3728
    assert reserve_mib(chunk_tokens=512, gpus=1, graph_batch=8) == 10_240
    assert reserve_mib(chunk_tokens=512, gpus=1, graph_batch=8, speculative=True) == 12_288


def test_96_hot_experts_do_not_start_by_default() -> None:
    # 0.835 · 77.0 − 68.75 = −4.5 GiB; at 0.925 the pool of 40,960 tokens of 63,488 B fits.
    figures = {"free_bytes": int(77.0 * GIB), "weights_bytes": int(68.75 * GIB), "state_bytes": 0}
    assert round(0.835 * 77.0 - 68.75, 1) == -4.5
    assert sglang_profiled_tokens(0.835, token_bytes=63_488, **figures) == 0
    assert sglang_profiled_tokens(0.925, token_bytes=63_488, **figures) >= 40_960


@pytest.mark.parametrize(("graph_batch", "fraction", "tokens"), [(64, 0.829, 245_000), (512, 0.818, 217_000)])
def test_all_experts_on_eight_h100_by_default(graph_batch: int, fraction: float, tokens: int) -> None:
    reserve = int(reserve_mib(gpus=8, graph_batch=graph_batch) * MIB)
    assert sglang_default_fraction(H100_MIB * MIB, reserve) == fraction
    profiled = sglang_profiled_tokens(
        fraction,
        free_bytes=int(76.58 * GIB),
        weights_bytes=int(56.24 * GIB),
        state_bytes=0,
        token_bytes=31_744,
    )
    assert profiled == pytest.approx(tokens, rel=0.003)
