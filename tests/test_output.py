"""Output files appear whole or not at all."""

import os
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.output import write_text, write_whole


def test_a_file_appears_with_its_text(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "{}")
    assert (tmp_path / "a.json").read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")

    def interrupted(temporary: Path) -> None:
        temporary.write_text("half of the n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(target, interrupted)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot write"):
        write_text(tmp_path / "nowhere" / "a.json", "{}")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is a directory"):
        write_text(tmp_path, "{}")


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    def full(_temporary: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInputError, match="No space left"):
        write_whole(tmp_path / "a.json", full)
    assert not list(tmp_path.iterdir())


def test_the_umask_is_honoured(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640
