"""Sizes as people write them."""

import pytest

from placer.errors import BadInputError
from placer.units import GIB, figure, gib, parse_size, signed_percent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("72GiB", 72 * 2**30),
        ("80GB", 80 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("512MiB", 2**29),
        ("24gib", 24 * 2**30),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, expected: int) -> None:
    assert parse_size(text) == expected


def test_a_percentage_refers_to_the_whole() -> None:
    assert parse_size("75%", whole_bytes=80 * GIB) == 60 * GIB


@pytest.mark.parametrize(
    "text", ["", "72", "-3GiB", "0GiB", "GiB", "12 parsecs", "nanGiB", "1e400GiB", "101%", "infGB"]
)
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_size(text, whole_bytes=GIB)


def test_a_percentage_of_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match="the GPU's memory is not known"):
        parse_size("75%", whole_name="the GPU's memory")
    # Where a share would have no meaning, nothing is said of a GPU.
    with pytest.raises(BadInputError, match="takes no percentage") as caught:
        parse_size("75%", name="--host-memory")
    assert "GPU" not in str(caught.value)


def test_sizes_read_in_gib() -> None:
    assert gib(3 * GIB // 2) == "1.50 GiB"
    assert gib(GIB // 16) == "64.0 MiB"
    assert gib(900) == "900 B"


def test_a_small_figure_is_not_shown_as_zero() -> None:
    assert figure(60.04, 1) == "60.0"
    assert figure(1234.5, 0) == "1,234"
    assert figure(0.0123, 1) == "0.012"
    assert figure(0.0, 1) == "0.0"
    assert figure(-0.04, 1) == "-0.04"


def test_no_difference_has_no_sign() -> None:
    assert signed_percent(0.0312) == "+3.1%"
    assert signed_percent(-0.0021) == "-0.2%"
    assert signed_percent(-0.0004) == signed_percent(0.0004) == "0.0%"
