"""Arrival times from a file."""

from pathlib import Path

import pytest

from placer.arrivals import Arrivals, read_arrivals
from placer.errors import BadInputError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "arrivals.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text", ["0\n0.5\n2\n", "0\r\n\r\n0.5\r\n2", "\ufeff0\n0.5\n2\n", "arrival_s\n0\n.5\n2e0\n"]
)
def test_one_time_a_line(tmp_path: Path, text: str) -> None:
    found = read_arrivals(written(tmp_path, text))
    assert found == Arrivals((0.0, 0.5, 2.0), None)
    assert found.mean_lengths is None


def test_columns_may_come_in_any_order(tmp_path: Path) -> None:
    found = read_arrivals(written(tmp_path, "output_tokens, arrival_s, prompt_tokens\n4,0,10\n8,1.5,30\n"))
    assert found == Arrivals((0.0, 1.5), ((10, 4), (30, 8)))
    assert found.mean_lengths == (20, 6)


def test_without_a_header_columns_are_told_by_position(tmp_path: Path) -> None:
    rows = "0,10,4\n1.5,30,8\n"
    found = read_arrivals(written(tmp_path, rows))
    assert found == read_arrivals(written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + rows))
    assert found.lengths == ((10, 4), (30, 8))


def test_empty_values_at_a_line_s_end_are_none(tmp_path: Path) -> None:
    assert read_arrivals(written(tmp_path, "0,10,4,\n1.5,30,8,,\n")).lengths == ((10, 4), (30, 8))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        # Times since 1970, and a day counted from its start.
        ("1764500000000\n1764500002000\n", "milliseconds"),
        ("1764500000000000000\n1764500002000000000\n", "nanoseconds"),
        ("0\n86400000\n", "milliseconds"),
        ("1e300\n", "milliseconds"),
        ("-1e300\n0\n", "milliseconds"),
    ],
)
def test_times_that_can_be_no_seconds_are_refused(tmp_path: Path, text: str, unit: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read_arrivals(written(tmp_path, text))
    assert unit in caught.value.hint


def test_a_span_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="line 3: the requests span 86,400,000 s, more than 7 days"):
        read_arrivals(written(tmp_path, "5\n6\n86400005\n"))
    week = read_arrivals(written(tmp_path, "1764500000\n1765104800\n"))
    assert week.times_s[1] - week.times_s[0] == 7 * 86_400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no request"),
        ("arrival_s\n", "no request"),
        ("0\nsoon\n", "line 2: arrival_s is 'soon'"),
        ("0\nnan\n", "line 2: arrival_s is 'nan'"),
        ("0\n\n1\n0.5\n", "line 4: 0.5 s is before the 1 s above it"),
        ("arrival_s,prompt_tokens\n0,1\n", "line 1 names one of"),
        ("arrival_s,prompt_tokens,output_tokens\n0,8,4\n1,8\n", "line 3: output_tokens is ''"),
        ("arrival_s,prompt_tokens,output_tokens\n0,0,4\n", "line 2: prompt_tokens is 0"),
        ("arrival_s,prompt_tokens,output_tokens\n0,8,2.5\n", "line 2: output_tokens is 2.5"),
        ("arrival_s,prompt_tokens,output_tokens\n0,8,1\n", "no request has two output tokens"),
        ("0\n" * 10_001, "10,001 requests"),
        ("0,1000\n0.5,2000\n", "line 1 has 2 values ('0, 1000')"),
        ("0,abc\n", "line 1 has 2 values ('0, abc')"),
        ("0,8,4,99\n", "line 1 has 4 values ('0, 8, 4, 99')"),
        ("0,8,x\n", "line 1: output_tokens is 'x'"),
        ("0,8,4\n1\n", "line 2: prompt_tokens is ''"),
        ("0\n1,8,4\n", "line 2: '8' is in no column (arrival_s)"),
        (
            "arrival_s,prompt_tokens,output_tokens\n0,100,50,99\n",
            "line 2: '99' is in no column (arrival_s, prompt_tokens, output_tokens)",
        ),
        ("arrival_s,prompt,output\n0,100,50\n", "line 1: column 'prompt' is not known"),
        ("arrival_s,arrival_s\n0,1\n", "line 1 names arrival_s twice"),
        ("0\n" + "9" * 200_000 + "\n", "line 2: field larger than field limit"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read_arrivals(written(tmp_path, text))
    assert said in str(caught.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="not UTF-8"):
        read_arrivals(path)
    with pytest.raises(BadInputError, match="where an arrivals file is expected"):
        read_arrivals(tmp_path)
    with pytest.raises(BadInputError, match="no such file"):
        read_arrivals(tmp_path / "none.csv")
