"""What sampling from counts gets wrong where the tokens are known."""

import numpy as np
import pytest
from shared_data import SHARED_DATA, needs_shared_data
from small_traces import token_trace

from placer.profiler.independence_error import independence_error
from placer.profiler.replay import SAMPLED
from placer.profiler.steps import StepKind
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.trace import TokenTrace


def test_tokens_that_choose_independently_are_sampled_without_error() -> None:
    ids = np.argsort(np.random.default_rng(0).random((6000, 3, 8)), axis=2)[:, :, :2]
    trace = token_trace(ids, experts=8, request=np.repeat(np.arange(60), 100).tolist())
    error = independence_error(trace, 16, StepKind.DECODE)
    assert (error.distinct, error.heaviest) == pytest.approx((0.0, 0.0), abs=0.03)
    assert error.spread == pytest.approx(0.0, abs=0.15)


def test_a_chunk_of_one_topic_is_heavier_than_its_sample() -> None:
    """Half of the requests use expert 0, half expert 1: a real chunk has one distinct expert, a sampled one two."""
    ids = np.repeat([0, 1], 2000)[:, None, None]
    trace = token_trace(ids, experts=2, request=np.repeat(np.arange(4), 1000).tolist())
    error = independence_error(trace, 200, StepKind.PREFILL)
    # Of chunks spaced over the line few straddle two requests.
    assert error.distinct > 0.6
    assert error.heaviest < -0.4
    assert error.spread < -0.8


@needs_shared_data
def test_the_stated_error_is_what_gpt_oss_shows() -> None:
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    assert isinstance(trace, TokenTrace)
    decode = [independence_error(trace, tokens, StepKind.DECODE) for tokens in (4, 16, 64)]
    assert max(abs(error.distinct) for error in decode) < 0.02
    assert max(abs(error.heaviest) for error in decode) < 0.05
    assert [error.spread for error in decode] == pytest.approx([-0.65] * 3, abs=0.07)
    assert "within 2 %" in SAMPLED[StepKind.DECODE]
    assert "within 5 %" in SAMPLED[StepKind.DECODE]
    assert "a third of the spread" in SAMPLED[StepKind.DECODE]
    chunk = independence_error(trace, 512, StepKind.PREFILL)
    assert chunk.distinct == pytest.approx(0.08, abs=0.03)
    assert chunk.heaviest == pytest.approx(-0.35, abs=0.06)
    assert "8 % too many" in SAMPLED[StepKind.PREFILL]
    assert "35 % too light" in SAMPLED[StepKind.PREFILL]
