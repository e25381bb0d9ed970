"""Tables of counts, as CSV and Parquet, become count traces."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from placer.errors import BadInputError, MissingComponentError
from placer.profiler.trace import count_table
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.trace import CountTrace, Phase

TABLE = """layer,expert,count,request
1,0,2,a
1,2,2,a
3,1,2,a
3,2,2,a
1,0,1,b
1,1,1,b
3,0,1,b
3,2,1,b
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, **model: Any) -> CountTrace:
    trace = import_trace(path, **({"top_k": 2} | model))
    assert isinstance(trace, CountTrace)
    return trace


def test_requests_are_windows_and_layers_keep_their_index(tmp_path: Path) -> None:
    trace = read(written(tmp_path / "t", TABLE))
    assert trace.header.layers == (1, 3)
    assert trace.counts.tolist() == [[[2, 0, 2], [0, 2, 2]], [[1, 1, 0], [1, 0, 1]]]
    # 4 selections per layer are 2 tokens of top-2.
    assert trace.window_tokens.tolist() == [2, 1]
    assert any("highest id, 2" in note for note in trace.header.notes)


def test_columns_are_found_in_any_order_case_and_separator(tmp_path: Path) -> None:
    text = "Count;LAYER; expert ;comment\n3;0;1;x\n1;0;0;y\n"
    assert read(written(tmp_path / "t", text), top_k=1).counts.tolist() == [[[1, 3]]]
    assert read(written(tmp_path / "u", "\ufefflayer\texpert\tcount\r\n0\t1\t3.0\r\n"), top_k=1).tokens == 3


def test_a_domain_is_a_window_and_only_which_one_it_is_is_lost(tmp_path: Path) -> None:
    trace = read(written(tmp_path / "t", "layer,expert,count,domain\n0,0,1,law\n0,1,2,code\n"), top_k=1)
    assert trace.counts.tolist() == [[[1, 0]], [[0, 2]]]
    assert trace.header.domains == ("code", "law")
    assert any("do not keep which domain a window is of" in note for note in trace.header.notes)
    one = read(written(tmp_path / "u", "layer,expert,count,domain\n0,0,1,law\n0,1,2,\n"), top_k=1)
    assert one.header.domains == ("law",)
    assert not any("which domain" in note for note in one.header.notes)


def test_rows_of_one_expert_are_added_up_and_counted(tmp_path: Path) -> None:
    trace = read(written(tmp_path / "t", "layer,expert,count\n0,0,1\n0,0,2\n0,1,4\n"), top_k=1)
    assert trace.counts.tolist() == [[[3, 4]]]
    assert any("1 rows name an expert again" in note for note in trace.header.notes)


def test_one_phase_can_be_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "t", "layer,expert,count,phase\n0,0,5,prefill\n0,1,2,decode\n0,0,1,1\n")
    assert read(path, top_k=1).counts.tolist() == [[[6, 2]]]
    assert any("--phase" in note for note in read(path, top_k=1).header.notes)
    assert read(path, top_k=1, phase=Phase.DECODE).counts.tolist() == [[[1, 2]]]
    with pytest.raises(BadInputError, match="no column phase"):
        read(written(tmp_path / "u", TABLE), phase=Phase.DECODE)


def test_the_model_says_layers_and_experts(tmp_path: Path) -> None:
    path = written(tmp_path / "t", TABLE)
    assert read(path, layers=(1, 3), experts=8).counts.shape == (2, 2, 8)
    for model, says in (
        ({"layers": (1, 2)}, "t, line 4: layer 3 has no experts"),
        ({"layers": (1, 2, 3)}, "nothing was routed in MoE layer 2"),
        ({"experts": 2}, "t, line 3: expert 2, the model has 2"),
        ({"top_k": None}, "does not say top-k"),
    ):
        with pytest.raises(BadInputError, match=says):
            read(path, **model)


def test_tables_longer_than_a_chunk_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placer.profiler.trace.csv_file._CHUNK_ROWS", 2)
    monkeypatch.setattr(count_table, "_MOST_PENDING_ROWS", 3)
    assert read(written(tmp_path / "t", TABLE)).counts.tolist() == [
        [[2, 0, 2], [0, 2, 2]],
        [[1, 1, 0], [1, 0, 1]],
    ]


def test_more_requests_than_windows_fit_are_dealt_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_table, "_MOST_ENTRIES", 2)
    rows = "".join(f"0,{number % 2},1,{number}\n" for number in range(5))
    trace = read(written(tmp_path / "t", "layer,expert,count,request\n" + rows), top_k=1)
    assert trace.counts.tolist() == [[[3, 2]]]
    assert any("5 requests were dealt to 1 windows" in note for note in trace.header.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layer,expert\n0,0\n", "no column count"),
        ("layer,expert,count\n", "no row has a count"),
        ("layer,expert,count\n0,0,0\n", "no row has a count"),
        ("layer,expert,count\n0,0,-1\n", "count -1"),
        ("layer,expert,count\n-1,0,1\n", "layer -1"),
        ("layer,expert,count\n0,65535,1\n", "expert 65535"),
        ("layer,expert,count\n0,0,1.5\n", "count is not a whole number"),
        ("layer,expert,count\n0,0,nan\n", "count is not a whole number"),
        ("layer,expert,count\n0,0,inf\n", "count is not a whole number"),
        ("layer,expert,count\n0,0,\n", "count is not a whole number"),
        ("layer,expert,count\n0,0,1e400\n", "count is not a whole number"),
        ("layer,expert,count\n0,x,1\n", "expert is not a whole number"),
        ("layer,expert,count\n0,0,99999999999999999999\n", "not a whole number"),
        ("layer,expert,count\n0,0,1099511627777\n", "count 1099511627777"),
        ("layer,expert,count\n0,0,1099511627776\n0,0,1099511627776\n", "adds up to more"),
        ("layer,expert,count\n99999999999,0,1\n", "layer 99999999999"),
        ("layer,expert,count\n0,0,1,2,3\n", "more fields than the first line"),
        ("layer,expert,count\n0,0,1\n0,0,1,2,3\n", "not readable as CSV"),
        ("layer,expert,count\n0,0,7\n0,1,1\n", "line 2: 7 selections of expert 0 in layer 0, .* 4 tokens"),
        ('layer,expert,count\n0,0,"1\n', "not readable as CSV|whole number"),
        ("layer,expert,count,phase\n0,0,1,both\n", "phase 'both'"),
        ("layer,expert,count\n0,\x000,1\n", "CSV|whole number"),
        ("layer,expert,count,layer\n0,0,1,2\n", "two columns layer"),
        ("layer,expert,count,Layer\n0,0,1,2\n", "two columns layer"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        read(written(tmp_path / "t", text), format="csv")


FAULTY = {
    "x": r"expert is not a whole number \('x'\)",
    "": r"expert is not a whole number \(it is empty\)",
    "1.5": r"expert is not a whole number \('1.5'\)",
    "-2": "expert -2 is not between 0 and 65534",
    "99": "expert 99, the model has 32 experts",
}


@pytest.mark.parametrize("value", FAULTY)
@pytest.mark.parametrize("chunk_rows", [7, 500_000])
def test_the_line_of_a_fault_and_its_value_are_named(
    value: str, chunk_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 0, 1, … are on lines 2, 3, …; the fault is on line 51 of 60, and a worse one follows."""
    monkeypatch.setattr("placer.profiler.trace.csv_file._CHUNK_ROWS", chunk_rows)
    experts = ["3"] * 59
    experts[49], experts[55] = value, "nothing"
    path = written(tmp_path / "t.csv", "layer,expert,count\n" + "".join(f"0,{one},1\n" for one in experts))
    if value in ("-2", "99"):
        # Text is found before numbers, within one chunk.
        path.write_text(path.read_text(encoding="utf-8").replace("nothing", "3"), encoding="utf-8")
    with pytest.raises(BadInputError, match=rf"t\.csv, line 51: {FAULTY[value]}"):
        read(path, experts=32)


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    """Empty lines and a line break inside quotes are lines, and no rows."""
    text = 'layer,expert,count,request\n\n0,0,1,"two\nlines"\n   \n0,1,1,b\r\n0,x,1,c\n'
    with pytest.raises(BadInputError, match=r"t, line 7: expert is not"):
        read(written(tmp_path / "t", text), format="csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layer,expert,count,phase\n0,0,1,decode\n0,0,1,both\n", "line 3: phase 'both'"),
        ("layer,expert,count\n0,0,1099511627776\n0,1,1\n0,0,1\n", "line 2 and later: .*layer 0, expert 0"),
        ("layer,expert,count\n0,0,1,2,3\n", "line 2: it has more fields than the first line"),
        (
            "layer,expert,count\n\n0,0,1\n0,0,1,2,3\n",
            r"t, line 4: not readable as CSV \(5 fields, the first line names 3\)",
        ),
        ('layer,expert,count\n0,0,1\n\n0,1,"1\n0,2,1\n', "t, line 4: not readable as CSV .a quote is opened"),
    ],
)
def test_other_faults_of_a_line_name_it_too(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        read(written(tmp_path / "t", text), format="csv")


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"layer,expert,count\n0,0,1\n0,\xff,1\n")
    with pytest.raises(BadInputError, match=r"t, line 3: not UTF-8"):
        read(tmp_path / "t", format="csv")


def test_an_expert_that_a_token_would_choose_twice_is_named_with_its_line_and_request(tmp_path: Path) -> None:
    """Request b makes 2 selections a layer, one token of top-2; one row of it went to another domain."""
    rows = ["0,0,1,law,a", "0,1,1,law,a", "0,0,1,law,b", "0,1,1,code,b", "0,1,1,code,b"]
    path = written(
        tmp_path / "t", "layer,expert,count,domain,request\n" + "".join(f"{row}\n" for row in rows)
    )
    with pytest.raises(BadInputError) as caught:
        read(path)
    assert "t, line 5: 2 selections of expert 1 in layer 0 of request 'b', domain 'code'" in caught.value.what
    assert "1 token of top-2" in caught.value.what
    assert "other rows of this request name 'law'" in caught.value.hint
    assert "dump" not in caught.value.hint


def test_parquet_rows_are_counted_from_0(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.DataFrame({"layer": [0, 0, 0], "expert": [0, 1, 40], "count": [1, 1, 1]})
    frame.to_parquet(tmp_path / "t")
    with pytest.raises(BadInputError, match=r"t, row 2 \(the first is 0\): expert 40, the model has 32"):
        read(tmp_path / "t", experts=32)


def test_parquet_holds_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.read_csv(written(tmp_path / "t.csv", TABLE))
    frame["request"] = frame["request"].astype("category")
    frame.to_parquet(tmp_path / "t.parquet")
    first, second = read(tmp_path / "t.csv"), read(tmp_path / "t.parquet")
    np.testing.assert_array_equal(first.counts, second.counts)
    np.testing.assert_array_equal(first.window_tokens, second.window_tokens)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"layer": [0], "expert": [0]}, "no column count"),
        ({"layer": [0, 0], "expert": [0, 1], "count": [1.0, None]}, "not a whole number"),
        ({"layer": [0], "expert": [0], "count": [[1]]}, "not a whole number"),
        ({"layer": [0], "expert": [0], "count": ["x"]}, "not a whole number"),
        ({"layer": [0], "expert": [0], "count": [2**63]}, "not a whole number"),
    ],
)
def test_a_parquet_table_that_makes_no_sense_is_refused(
    columns: dict[str, Any], says: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    if columns.get("count") == [2**63]:
        columns = {**columns, "count": np.array([2**63], dtype=np.uint64)}
    pd.DataFrame(columns).to_parquet(tmp_path / "t")
    with pytest.raises(BadInputError, match=says):
        read(tmp_path / "t")


def test_a_parquet_file_that_is_cut_short_is_said_to_be(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "t.parquet"
    pd.DataFrame({"layer": [0], "expert": [0], "count": [1]}).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(BadInputError, match="cut short") as caught:
        read(path)
    assert caught.value.hint == "copy or record it again"


def test_more_rows_than_the_file_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pd.DataFrame({"layer": [0] * 10**6, "expert": [0] * 10**6, "count": [1] * 10**6}).to_parquet(
        tmp_path / "t"
    )
    assert read(tmp_path / "t", top_k=1).tokens == 10**6
    monkeypatch.setattr("placer.profiler.trace.parquet_file._FREE_ROWS", 1000)
    with pytest.raises(BadInputError, match="1000000 rows in"):
        read(tmp_path / "t", top_k=1)


def test_without_pyarrow_parquet_is_a_missing_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    with pytest.raises(MissingComponentError, match="pyarrow") as caught:
        read(tmp_path / "t")
    assert "pip install" in caught.value.hint
    assert caught.value.exit_code == 4
