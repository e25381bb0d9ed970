"""A trace's domains weighted as told, and what is refused."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import count_trace, token_trace

from placer.errors import BadInputError
from placer.profiler.trace.mix import check_mix, mixed, parse_mix
from placer.profiler.trace.trace import TokenTrace


def trace(code: int, prose: int, *, tokens: int = 4) -> TokenTrace:
    """So many requests of code, which take expert 0, and of prose, which take expert 1."""
    domain = np.repeat([0] * code + [1] * prose, tokens)
    return token_trace(
        domain[:, None, None],
        experts=2,
        request=np.repeat(np.arange(code + prose), tokens).tolist(),
        domain=domain.tolist(),
        domains=("code", "prose"),
    )


def share_of_code(one: TokenTrace) -> float:
    assert one.domain is not None
    return float((one.domain == 0).mean())


def test_shares_are_read_with_names_that_hold_commas_and_equals_signs() -> None:
    assert parse_mix("code=0.7,prose=0.3") == {"code": 0.7, "prose": 0.3}
    assert parse_mix("Fraud, Scams=0.25,a=b=0.75") == {"Fraud, Scams": 0.25, "a=b": 0.75}
    assert parse_mix("code=1") == {"code": 1.0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("code", "is not DOMAIN=SHARE"),
        ("code=0.5,prose", "'prose' is not DOMAIN=SHARE"),
        ("code=x", "is not DOMAIN=SHARE"),
        ("code=nan,prose=1", "gives domain 'code' the share nan"),
        ("=1", "names no domain"),
        ("code=0.5,code=0.5", "'code' twice"),
        ("code=1,prose=0", "gives domain 'prose' the share 0"),
        ("code=1.5,prose=-0.5", "gives domain 'prose' the share -0.5"),
        ("code=inf", "the share inf"),
        ("code=0.7,prose=0.2", "sum to 0.9"),
        ("code=70,prose=30", "sum to 100"),
    ],
)
def test_a_mix_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        parse_mix(text)


def test_a_mix_must_be_of_the_traces_domains() -> None:
    with pytest.raises(BadInputError, match="'law', which the trace does not hold") as caught:
        check_mix(trace(3, 3), {"law": 1.0})
    assert caught.value.hint == "its domains: code, prose"
    with pytest.raises(BadInputError, match="2 requests of domain 'prose', and is split into 3 parts"):
        check_mix(trace(3, 2), {"prose": 1.0}, requests=3)
    with pytest.raises(BadInputError, match="needs domains, and the trace names none"):
        check_mix(token_trace([[[0]]], experts=1), {"code": 1.0})
    with pytest.raises(BadInputError, match="holds counts alone"):
        check_mix(count_trace([[[1]]], top_k=1), {"code": 1.0})


def test_every_request_is_kept_and_the_rarer_domain_is_repeated() -> None:
    """Eight requests of code and two of prose at equal shares: prose four times."""
    found = mixed(trace(8, 2), {"code": 0.5, "prose": 0.5}, seed=0)
    assert isinstance(found, TokenTrace)
    assert found.tokens == 4 * 16
    assert share_of_code(found) == 0.5
    # Copies are requests of their own, each whole.
    assert np.bincount(found.request).tolist() == [4] * 16


def test_a_domain_that_is_not_named_is_left_out_and_no_mix_changes_nothing() -> None:
    one = trace(8, 2)
    only = mixed(one, {"prose": 1.0}, seed=0)
    assert isinstance(only, TokenTrace)
    assert share_of_code(only) == 0.0
    assert mixed(one, {}, seed=0) is one


@settings(deadline=None)
@given(code=st.integers(5, 60), prose=st.integers(5, 60), share=st.floats(0.05, 0.95))
def test_shares_hold_to_a_request(code: int, prose: int, share: float) -> None:
    mix: Mapping[str, float] = {"code": share, "prose": 1.0 - share}
    found = mixed(trace(code, prose), mix, seed=1)
    assert isinstance(found, TokenTrace)
    # A request more or less of one domain, and of the other.
    assert abs(share_of_code(found) - share) <= 8 / found.tokens
    assert found.tokens <= 4 * 4 * (code + prose) + 8
    check = np.diff(found.request)
    assert set(check.tolist()) <= {0, 1}
