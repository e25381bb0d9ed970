"""Where a kernel changes its algorithm: confirmed where its source says, and not invented by noise."""

from collections.abc import Callable

import numpy as np
import pytest

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.border import CONTRAST, SAMPLES, probe_border, probe_rows

QWEN3 = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=128, top_k=8)
HINT = 64
ENDS = {"least": 8, "most": 2 * HINT + 1}


def switching_at(border: int | None) -> Callable[[int], float]:
    """A tenth of a microsecond per token of the call, and half the time above the border."""

    def sample_us(tokens: int) -> float:
        fast = border is not None and tokens > border
        return (500.0 if fast else 1000.0) + 0.1 * tokens

    return sample_us


def test_the_rows_of_a_probe_fit_below_the_border_it_looks_for() -> None:
    assert probe_rows(QWEN3, 64) == (8, 8, 8, 8)
    # Two experts, one per token, and a border at 8 tokens: four rows each.
    assert probe_rows(ExpertShape(64, 32, 2, 1), 8) == (4, 4)


@pytest.mark.parametrize("truth", [64, 40, 100, 9])
def test_the_border_is_found_where_it_is(truth: int) -> None:
    found = probe_border(switching_at(truth), HINT, **ENDS)
    assert found.tokens == truth
    assert ("probed" in found.how) == (truth == HINT)
    assert found.contrast == pytest.approx(2.0, rel=0.05)


def test_no_border_is_found_where_there_is_none() -> None:
    found = probe_border(switching_at(None), HINT, **ENDS)
    assert (found.tokens, found.contrast) == (None, None)


def test_a_spell_that_hides_the_hint_does_not_move_the_border() -> None:
    # While the hint is probed first, another program takes so much that both sides look alike.
    truth, probe_calls = switching_at(HINT), 2 + 2 * SAMPLES
    calls: list[int] = []

    def sample_us(tokens: int) -> float:
        calls.append(tokens)
        return 5000.0 if len(calls) <= probe_calls else truth(tokens)

    found = probe_border(sample_us, HINT, **ENDS)
    assert found.tokens == HINT
    assert "probed again" in found.how


def test_a_slow_spell_at_one_end_invents_no_border() -> None:
    # One algorithm; the first time that the ends are compared every large call happens to be slow.
    calls: list[int] = []

    def sample_us(tokens: int) -> float:
        calls.append(tokens)
        early = len(calls) < 2 + 4 * SAMPLES + 40
        return 2000.0 if early and tokens > 100 else 1000.0

    assert probe_border(sample_us, HINT, **ENDS).tokens is None


def test_slow_growth_without_a_jump_keeps_the_hint_and_says_that_it_is_not_sure() -> None:
    # Twice the time at the other end and a jump nowhere.
    found = probe_border(lambda tokens: 1000.0 + 10.0 * tokens, HINT, **ENDS)
    assert found.tokens == HINT
    assert "not sure" in found.how
    assert found.contrast is not None
    assert found.contrast < CONTRAST


def test_on_a_machine_too_busy_to_tell_the_hint_is_kept() -> None:
    # Most calls take four times as long, and nothing tells the two sides apart.
    generator = np.random.default_rng(0)

    def sample_us(tokens: int) -> float:
        return 4000.0 if generator.random() < 0.6 else 1000.0

    found = [probe_border(sample_us, HINT, **ENDS) for _ in range(50)]
    assert [border.tokens for border in found] == [HINT] * 50
    assert any("not sure" in border.how for border in found)


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_noise_finds_the_hint_almost_always(noise: float) -> None:
    generator = np.random.default_rng(0)
    truth = switching_at(HINT)

    def sample_us(tokens: int) -> float:
        # A tenth of the samples take three times as long: another program had the core.
        burst = 3.0 if generator.random() < 0.1 else 1.0
        return float(truth(tokens) * burst * np.exp(noise * generator.standard_normal()))

    found = [probe_border(sample_us, HINT, **ENDS).tokens for _ in range(100)]
    assert found.count(HINT) >= 99
