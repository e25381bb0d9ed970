"""Zipf traces: shares follow the rank's power, tokens hold distinct experts."""

from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from tiny_model import tiny_model

from placer.errors import BadInputError
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.trace import Phase, TokenTrace
from placer.profiler.trace.zipf import zipf_trace


def shape(experts: int, top_k: int) -> KnownModel:
    return KnownModel(name="m", layers=(0, 2), experts=experts, top_k=top_k)


def shares(exponent: float, *, top_k: int = 1) -> np.ndarray:
    """Share of selections by rank, over both layers: float [4]."""
    counts = selection_counts(
        zipf_trace(shape(4, top_k), exponent, requests=100, prompt_tokens=0, output_tokens=400)
    )
    return np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1)[:, ::-1].mean(axis=0)


def test_one_expert_per_token_follows_the_law() -> None:
    # Weights 1, 1/2, 1/3, 1/4 of 25/12.
    np.testing.assert_allclose(shares(1.0), np.array([12, 6, 4, 3]) / 25, atol=0.005)
    np.testing.assert_allclose(shares(0.0), 0.25, atol=0.01)


def test_no_token_holds_an_expert_twice() -> None:
    trace = zipf_trace(shape(8, 4), 2.0, requests=3, prompt_tokens=5, output_tokens=7)
    assert isinstance(trace, TokenTrace)
    check_trace(trace, "trace")
    assert all(len(set(ids)) == 4 for ids in trace.topk_ids.reshape(-1, 4).tolist())
    assert (trace.phase == Phase.PREFILL).sum() == 15
    # All experts of a token: top-k = E.
    assert sorted(zipf_trace(shape(4, 4), 1.0, requests=1).topk_ids[0, 0].tolist()) == [0, 1, 2, 3]


def test_ranks_are_shuffled_for_each_layer() -> None:
    counts = selection_counts(zipf_trace(shape(64, 2), 1.5))
    assert counts[0].argmax() != counts[1].argmax()


@pytest.mark.parametrize("exponent", [-0.1, 9.0, float("nan")])
def test_an_exponent_that_is_none_is_refused(exponent: float) -> None:
    with pytest.raises(BadInputError, match="--zipf"):
        zipf_trace(shape(8, 2), exponent)


def test_the_command_takes_a_model_and_either_law(run: Run, tmp_path: Path) -> None:
    tiny_model(tmp_path / "model")
    code, _, _ = run("trace", "synth", "--zipf", 1, "--model", tmp_path / "model", "-o", tmp_path / "t")
    assert code == 0
    assert read_trace(tmp_path / "t").header.source == "synthetic: Zipf with exponent 1, seed 0"
    for flags in (
        [],
        ["--zipf", 1],
        ["--zipf", 1, "--preset", "olmoe"],
        ["--preset", "olmoe", "--model", tmp_path],
    ):
        code, _, err = run("trace", "synth", *flags, "-o", tmp_path / "u")
        assert code == 2
        assert "do: " in err
