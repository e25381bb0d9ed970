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
    found = read_arrivals(
        written(tmp_path, "output_tokens, note, arrival_s, prompt_tokens\n4,a,0,10\n8,b,1.5,30\n")
    )
    assert found == Arrivals((0.0, 1.5), ((10, 4), (30, 8)))
    assert found.mean_lengths == (20, 6)


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
    with pytest.raises(BadInputError, match="no such file"):
        read_arrivals(tmp_path / "none.csv")
