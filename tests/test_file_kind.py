"""A file of one kind, given where another is expected, is named for what it is."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from placer.errors import BadInputError
from placer.file_kind import file_kind
from placer.placement import read_placement
from placer.profiler.profile import read_profile
from placer.profiler.trace.file import read_trace


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The beginning of each kind of file."""
    found = {kind: tmp_path / f"a.{kind}" for kind in ("placement", "profile", "trace")}
    for kind in ("placement", "profile"):
        found[kind].write_text(json.dumps({"schema": f"placer.{kind}/1", "created": "now"}, indent=2))
    save_file({"topk_ids": np.zeros((1, 1, 1), np.uint16)}, found["trace"], {"schema": "placer.trace/1"})
    return found


def test_files_of_ours_are_told_apart(files: dict[str, Path], tmp_path: Path) -> None:
    assert {kind: file_kind(path) for kind, path in files.items()} == {kind: kind for kind in files}
    other = tmp_path / "config.json"
    other.write_text('{"architectures": ["Qwen3MoeForCausalLM"]}')
    assert file_kind(other) is None
    assert file_kind(tmp_path) is None
    assert file_kind(tmp_path / "missing") is None


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert file_kind(tmp_path / "pipe") is None


@pytest.mark.parametrize(
    ("read", "expected", "given", "cure"),
    [
        (read_profile, "profile", "placement", "'placer profile'"),
        (read_profile, "profile", "trace", "'placer profile'"),
        (read_placement, "placement", "profile", "'placer solve'"),
        (read_trace, "trace", "profile", "'placer trace import'"),
    ],
)
def test_the_wrong_kind_is_named(
    read: object, expected: str, given: str, cure: str, files: dict[str, Path]
) -> None:
    with pytest.raises(BadInputError) as caught:
        read(files[given])  # type: ignore[operator]
    assert caught.value.what == f"{files[given]} is a {given}, where a {expected} is expected"
    assert cure in caught.value.hint
