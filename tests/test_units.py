"""Sizes as people write them."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.units import (
    GIB,
    counted,
    duration,
    duration_range,
    excess_percent,
    figure,
    gap_percent,
    gib,
    operations,
    parse_size,
    percent,
    rounded,
    rounded_down,
    rounded_up,
    signed_percent,
    telling_digits,
)

ROOT = Path(__file__).parent.parent


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


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("72", "write 72GiB (2^30) or 72GB (10^9)"),
        ("0.75", "write 0.75GiB (2^30) or 0.75GB (10^9) or 75%"),
        ("72G", "write 72GiB (2^30) or 72GB (10^9) or 75%"),
        ("-3GiB", "write it as 72GiB (2^30), 80GB (10^9) or 75%"),
        ("512M", "write 512MiB (2^20) or 512MB (10^6) or 75%"),
        ("2T", "write 2TiB (2^40) or 2TB (10^12) or 75%"),
        ("90PiB", "write it in KiB, MiB, GiB or TiB, such as 72GiB (2^30) or 75%"),
    ],
)
def test_a_size_without_a_whole_unit_is_shown_how_to_be_written(text: str, hint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_size(text, whole_bytes=GIB)
    assert caught.value.hint == hint


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
    assert figure(-0.04, 1) == "-0.040"


def test_no_difference_has_no_sign() -> None:
    assert signed_percent(0.0312) == "+3.1%"
    assert signed_percent(-0.0021) == "-0.2%"
    assert signed_percent(-0.0004) == signed_percent(0.0004) == "0.0%"
    assert signed_percent(84.138) == "+8,414%"


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (13.6, "13.60 µs"),
        (999.96, "1.000 ms"),
        (24352.7, "24.35 ms"),
        (10_640_000.0, "10.64 s"),
        (7_200e6, "7,200 s"),
        (0.0, "0 µs"),
        (-1500.0, "-1.500 ms"),
        (0.0123, "0.01230 µs"),
    ],
)
def test_a_time_is_read_in_the_unit_of_its_size(us: float, said: str) -> None:
    assert duration(us) == said


def test_a_range_of_times_names_a_shared_unit_once() -> None:
    assert duration_range(21_230, 49_310) == "21.2 to 49.3 ms"
    assert duration_range(950, 1_200) == "950 µs to 1.20 ms"


def test_digits_are_significant_ones() -> None:
    assert rounded(37_630.4, 4) == "37,630"
    assert rounded(53.148, 4) == "53.15"
    assert rounded(9.9996, 4) == "10.00"
    assert rounded(0.0, 4) == "0"


@given(st.floats(1e-6, 1e15))
def test_no_figure_has_an_exponent(value: float) -> None:
    for said in (rounded(value, 3), figure(value, 1), duration(value), signed_percent(value), percent(value)):
        assert re.fullmatch(r"[+<]?[0-9][0-9,]*(\.[0-9]+)?( µs| ms| s|%)?", said)


def test_a_share_that_is_some_is_not_shown_as_none() -> None:
    assert percent(0.842) == "84.2%"
    assert percent(0.0003) == "<0.1%"
    assert percent(0.0) == percent(-0.0) == "0.0%"
    assert gap_percent(0.0018) == "0.18%"
    assert gap_percent(0.00000312) == "<0.01%"
    assert gap_percent(0.0) == "0.00%"


def test_a_noun_takes_an_s_unless_there_is_one_of_it() -> None:
    said = [counted(count, "running request") for count in (0, 1, 2, 1200)]
    assert said == ["0 running requests", "1 running request", "2 running requests", "1,200 running requests"]


def test_no_message_leaves_the_plural_to_the_reader() -> None:
    sources = [path for part in ("placer", "profiler", "kernels") for path in (ROOT / part).rglob("*.py")]
    left = [
        f"{path.name}: {found}"
        for path in sources
        for found in re.findall(r"[a-z]\(s\)[ ,;:]", path.read_text())
    ]
    assert len(sources) > 100
    assert [found for found in left if not re.match(r".*\b(sum|len|str)\(s\)", found)] == []


@given(st.floats(1e-6, 1e9))
def test_what_is_rounded_up_is_not_below(value: float) -> None:
    assert value <= float(rounded_up(value)) * (1 + 1e-12)
    assert float(rounded_up(value)) <= value * 1.0101


def test_what_is_rounded_up_has_three_digits() -> None:
    assert [rounded_up(value) for value in (0.50163, 12.31, 12345.0)] == ["0.502", "12.4", "12400"]


@pytest.mark.parametrize(
    ("per_s", "shown"),
    [
        (1_234e9, "1,234 Gop/s"),
        (51.4e9, "51 Gop/s"),
        (1.84e9, "1.8 Gop/s"),
        (724e6, "724 Mop/s"),
        (2.5e3, "2.5 kop/s"),
        (7.0, "7 op/s"),
        (0.0, "0 op/s"),
    ],
)
def test_operations_per_second_are_never_shown_as_none_where_there_are_some(per_s: float, shown: str) -> None:
    assert operations(per_s) == shown


@given(st.floats(1e-6, 1e9), st.integers(2, 3))
def test_what_is_rounded_down_is_not_above(value: float, digits: int) -> None:
    assert value * (1 - 10.0 ** (1 - digits) - 1e-12) <= rounded_down(value, digits) <= value * (1 + 1e-11)


@pytest.mark.parametrize(
    ("value", "limit", "shown"),
    [
        # 21.26 would look kept, 21.3 missed.
        (21.2637, 21.26, "21.264"),
        (21.2563, 21.26, "21.26"),
        (123.04, 123.0, "123.04"),
        (123.0, 123.0, "123.0"),
        (60.0, 21.26, "60.00"),
        (21.25, 21.26, "21.25"),
    ],
)
def test_digits_tell_on_which_side_of_a_limit_a_value_lies(value: float, limit: float, shown: str) -> None:
    assert rounded(value, telling_digits(value, limit, 4)) == shown


@given(value=st.floats(1e-3, 1e6), limit=st.floats(1e-3, 1e6), digits=st.integers(3, 5))
def test_a_value_is_shown_beyond_a_limit_exactly_where_it_is(value: float, limit: float, digits: int) -> None:
    kept = telling_digits(value, limit, digits)
    assert (float(f"{value:.{kept - 1}e}") > limit) == (value > limit)


@pytest.mark.parametrize(
    ("value", "limit", "said"),
    [
        (212.6, 100.0, "+112.6%"),
        (100.04, 100.0, "+0.04%"),
        (21.2637, 21.26, "+0.02%"),
        (100.1, 100.0, "+0.1%"),
    ],
)
def test_an_excess_is_never_shown_as_none(value: float, limit: float, said: str) -> None:
    assert excess_percent(value, limit) == said


@pytest.mark.parametrize("text", ["0", "0.0", "0GiB", "0%"])
def test_zero_is_no_size_whatever_its_unit(text: str) -> None:
    with pytest.raises(BadInputError, match="is zero") as caught:
        parse_size(text, whole_bytes=GIB)
    assert caught.value.hint == "write a size above that, such as 72GiB, 80GB or 75%"
    with pytest.raises(BadInputError, match="is zero") as caught:
        parse_size(text)
    assert caught.value.hint == "write a size above that, such as 72GiB or 80GB"
