"""The verdict on a trace, and the figures that decide it."""

import numpy as np
import pytest

from placer.profiler.trace.domains import DomainOverlap
from placer.profiler.trace.heldout import HeldoutCoverage
from placer.profiler.trace.judgement import Judgement, Verdict, judge


def judged(
    *,
    tokens: int = 50_000,
    requests: int | None = 100,
    held: float | None = 0.8,
    width: float = 0.01,
    fitted: float | None = None,
    own: float = 0.8,
    between: float | None = None,
    lost_domains: int = 0,
    token_kind: str = "tokens",
) -> Judgement:
    """A trace of 32 experts whose hottest half serves ``held`` of other requests.

    With ``between``, it has two domains that serve ``own`` of themselves, and one serves ``between`` of the other.
    """
    overlap = None
    if between is not None:
        coverage = np.array([[own, between], [own, own]])
        overlap = DomainOverlap(32, ("law", "code"), (5000, 5000), np.eye(2), {0.5: coverage}, {})
    return judge(
        experts=32,
        tokens=tokens,
        requests=requests,
        coverage=0.8 if held is None else held,
        uniform_null=0.505,
        heldout=None
        if held is None
        else HeldoutCoverage(held, held - width, held + width, held if fitted is None else fitted),
        overlap=overlap,
        lost_domains=lost_domains,
        token_kind=token_kind,
    )


def test_skew_that_holds_on_other_requests_is_useful() -> None:
    found = judged()
    assert found.verdict is Verdict.USEFUL
    assert "80.0% of requests that it was not learned from (79.0% to 81.0%), 50.0% by chance" in found.reason


@pytest.mark.parametrize(
    ("held", "verdict"),
    [(0.568, Verdict.FLAT), (0.5, Verdict.FLAT), (0.45, Verdict.FLAT), (0.697, Verdict.USEFUL)],
)
def test_mixtral_is_flat_and_olmoe_is_not(held: float, verdict: Verdict) -> None:
    """With half hot, chance leaves .5 cold: Mixtral's .568 saves 14 % of that, OLMoE's .697 saves 39 %."""
    assert judged(held=held).verdict is verdict


def test_domains_that_the_trace_does_not_tell_apart_leave_domain_bound_open() -> None:
    found = judged(lost_domains=2)
    assert found.verdict is Verdict.USEFUL
    assert "made of 2 domains" in found.reason
    assert "domain-bound is not excluded" in found.reason
    assert found.advice.startswith("solve on it if the mix of domains stays as recorded; to know")
    flat = judged(held=0.5, lost_domains=2)
    assert flat.verdict is Verdict.FLAT
    assert "domain-bound is not excluded" in flat.reason
    assert judged(lost_domains=1) == judged()


def test_few_tokens_or_requests_are_too_small_whatever_they_show() -> None:
    few = judged(tokens=999, held=0.99)
    assert few.verdict is Verdict.TOO_SMALL
    assert "999 tokens" in few.reason
    assert "50.5%" in few.reason
    outputs = judged(tokens=93, token_kind="output tokens")
    assert outputs.reason.startswith("93 output tokens: ")
    assert outputs.advice.startswith("record at least 1,000 output tokens")
    assert judged(requests=7, held=None).verdict is Verdict.TOO_SMALL
    assert judged(requests=1, held=None).reason.startswith("1 request cannot show")


def test_requests_that_disagree_are_too_few() -> None:
    assert judged(width=0.06).verdict is Verdict.TOO_SMALL
    fitted = judged(held=0.6, fitted=0.7)
    assert fitted.verdict is Verdict.TOO_SMALL
    assert "70.0% of the requests that it was learned from and 60.0% of others" in fitted.reason


def test_a_domain_that_another_serves_no_better_than_chance_binds() -> None:
    """Own gain over chance is .3; a third of it is kept at .6."""
    assert judged(between=0.61).verdict is Verdict.USEFUL
    bound = judged(between=0.55)
    assert bound.verdict is Verdict.DOMAIN_BOUND
    assert "the hottest half for 'law' serves 55.0% of 'code', whose own serves 80.0%" in bound.reason


def test_domains_without_skew_of_their_own_are_flat() -> None:
    """Mixtral's hot half for abstract algebra serves .64 of it: 28 % fewer cold selections are little to lose."""
    assert judged(held=0.57, own=0.64, between=0.5).verdict is Verdict.FLAT


def test_a_mix_that_is_flat_because_its_domains_differ_is_domain_bound() -> None:
    assert judged(held=0.55, own=0.85, between=0.4).verdict is Verdict.DOMAIN_BOUND


def test_counts_of_one_run_are_judged_with_what_is_not_known() -> None:
    found = judged(requests=None, held=None)
    assert found.verdict is Verdict.USEFUL
    assert "how requests differ was not recorded" in found.reason


def test_requests_that_no_draw_can_test_are_too_few() -> None:
    found = judged(requests=8, held=None)
    assert found.verdict is Verdict.TOO_SMALL
    assert "no draw leaves selections" in found.reason
