"""JSON documents that cannot be used say why in one line, and what to do."""

from pathlib import Path

import pytest

from placer.document import read_document
from placer.errors import BadInputError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \r\n", "is empty"),
        (b'{"a": ', r"not valid JSON: Expecting value \(line 1, column"),
        (b"[]", "not a JSON object"),
        (b'{"a": NaN}', "NaN is not a finite number"),
        (b'{"a": 1e400}', "1e400 is not a finite number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "has 5000 digits"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"[" * 80 + b"]" * 80 + b"}", "nested too deeply"),
        (b'{"a": "\xe9"}', "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": "\\ud800"}', "half of a character"),
    ],
)
def test_a_broken_document_says_why(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message) as caught:
        read_document(path, what="profile", cure="give a file that 'placer profile' wrote")
    assert caught.value.hint == "give a file that 'placer profile' wrote"
    assert str(path) in caught.value.what


def test_byte_order_marks_and_line_ends_of_other_systems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{\r\n"a": "\\ud83d\\ude00"\r\n}\r\n')
    assert read_document(path, what="model config") == {"a": "😀"}


def test_a_directory_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is a directory, where a profile is expected"):
        read_document(tmp_path, what="profile")
    with pytest.raises(BadInputError, match=r"cannot read profile .*: no such file"):
        read_document(tmp_path / "none", what="profile")
