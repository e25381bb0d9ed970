"""The list of what placer wrote into a folder: those files may be replaced, all others may not."""

import hashlib
import json
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.written_files import LIST, check_replaceable, is_written, record_contents, record_written


def wrote(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    record_written(folder, [name])


def test_what_is_not_there_and_what_was_written_may_be_replaced(tmp_path: Path) -> None:
    check_replaceable(tmp_path / "missing", ["a.json"])
    wrote(tmp_path, "a.json", "1")
    check_replaceable(tmp_path, ["a.json", "b.json"])
    assert is_written(tmp_path, "a.json")
    assert not is_written(tmp_path, "b.json")
    assert json.loads((tmp_path / LIST).read_text())["files"] == {
        "a.json": [hashlib.sha256(b"1").hexdigest()]
    }


def test_a_file_of_another_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("mine")
    (tmp_path / "b.json").mkdir()
    with pytest.raises(BadInputError) as caught:
        check_replaceable(tmp_path, ["a.json", "b.json", "c.json"], "--png")
    assert caught.value.what == (
        f"{tmp_path / 'a.json'} would be overwritten, and it is not as placer wrote it there (also: b.json)"
    )
    assert caught.value.hint == "move it elsewhere, or choose another folder with --png"


def test_a_file_that_was_changed_since_is_somebodys_work(tmp_path: Path) -> None:
    wrote(tmp_path, "a.json", "1")
    (tmp_path / "a.json").write_text("1, and what I added")
    with pytest.raises(BadInputError, match=r"a\.json would be overwritten"):
        check_replaceable(tmp_path, ["a.json"])
    assert not is_written(tmp_path, "a.json")


def test_a_file_that_would_stay_as_it_is_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("same")
    check_replaceable(tmp_path, ["a.json"], new={"a.json": b"same"})
    with pytest.raises(BadInputError):
        check_replaceable(tmp_path, ["a.json"], new={"a.json": b"other"})


def test_an_interrupted_replacement_leaves_both_contents_known(tmp_path: Path) -> None:
    wrote(tmp_path, "a.json", "1")
    record_contents(tmp_path, {"a.json": b"2"})
    check_replaceable(tmp_path, ["a.json"])
    (tmp_path / "a.json").write_text("2")
    check_replaceable(tmp_path, ["a.json"])
    record_contents(tmp_path, {"a.json": b"3"})
    (tmp_path / "a.json").write_text("1")
    with pytest.raises(BadInputError):
        check_replaceable(tmp_path, ["a.json"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "1",
        '{"schema": "placer.written-files/1", "files": [1]}',
        '{"files": {}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_list_vouches_for_nothing(tmp_path: Path, text: str) -> None:
    wrote(tmp_path, "a.json", "1")
    (tmp_path / LIST).write_text(text)
    with pytest.raises(BadInputError):
        check_replaceable(tmp_path, ["a.json"])
