"""Output files appear whole or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.output import (
    checked_output,
    forget_written,
    output_folder,
    write_cure,
    write_text,
    write_whole,
    written,
)


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


def test_a_link_stays_and_its_target_changes(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_text(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInputError, match="not a regular file"):
        write_text(pipe, "{}")
    assert pipe.is_fifo()


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("in.json")
    with pytest.raises(BadInputError, match="input of this command"):
        checked_output(tmp_path / "link.json", [tmp_path / "in.json"])


def test_a_name_that_is_too_long_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot write"):
        write_text(tmp_path / ("a" * 300), "{}")


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    def full(_temporary: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInputError, match="No space left") as caught:
        write_whole(tmp_path / "a.json", full)
    assert caught.value.hint == "free some space or choose another path with -o"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "free some space or choose another path with -o"),
        (errno.EDQUOT, "free some space or choose another path with -o"),
        (errno.EFBIG, "raise the limit of file sizes (ulimit -f) or choose another path with -o"),
        (errno.EROFS, "choose another path with -o, where you may write"),
        (errno.EACCES, "choose another path with -o, where you may write"),
        (errno.EIO, "choose another path with -o"),
    ],
)
def test_the_cure_is_that_of_the_error(number: int, cure: str) -> None:
    assert write_cure(OSError(number, "refused"), "another path with -o") == cure


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a file system in which nothing can be made"
)
def test_where_no_file_can_be_made_free_space_is_no_cure() -> None:
    with pytest.raises(BadInputError, match=r"cannot write /proc/p\.json: No such file") as caught:
        write_text(Path("/proc/p.json"), "{}")
    assert caught.value.hint == "choose another path with -o"


def test_the_umask_is_honoured(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_file_has_the_mode_of_the_umask_whoever_wrote_it(tmp_path: Path, umask: int, mode: int) -> None:
    def replaced(temporary: Path) -> None:
        # Some writers put a private file of their own in the place of the one they are given.
        other = temporary.with_suffix(".other")
        other.touch(0o600)
        other.rename(temporary)

    def made_executable(temporary: Path) -> None:
        temporary.chmod(temporary.stat().st_mode | 0o111 & ~umask)

    before = os.umask(umask)
    try:
        write_text(tmp_path / "text", "{}")
        write_whole(tmp_path / "replaced", replaced)
        write_whole(tmp_path / "script", made_executable)
    finally:
        os.umask(before)
    assert (tmp_path / "text").stat().st_mode & 0o777 == mode
    assert (tmp_path / "replaced").stat().st_mode & 0o777 == mode
    assert (tmp_path / "script").stat().st_mode & 0o777 == mode | 0o111 & ~umask


def test_a_message_names_the_flag_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        checked_output(tmp_path / "missing" / "level.lp", flag="--write-lp")
    assert caught.value.hint == "create it or choose another with --write-lp"


def test_links_that_lead_in_a_circle_are_told_and_stay(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    with pytest.raises(BadInputError, match="its links lead in a circle"):
        write_text(tmp_path / "a.json", "{}")
    assert (tmp_path / "a.json").is_symlink()
    with pytest.raises(BadInputError, match="cannot write"):
        write_text(tmp_path / "a.json" / "c.json", "{}")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_link_to_nothing_becomes_a_link_to_the_output(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("new.json")
    write_text(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "new.json").read_text() == "new"


LIMITED = """
import resource, signal, sys
from pathlib import Path
from placer.errors import BadInputError
from placer.output import write_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text(Path(sys.argv[1]), "x" * 2000)
except BadInputError as error:
    print(error.what)
"""


def test_a_file_that_cannot_grow_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, target], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"cannot write {target}: File too large\n"
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


RACING = """
import sys
from pathlib import Path
from placer.output import write_text
for number in range(200):
    write_text(Path(sys.argv[1]), sys.argv[2] * 50_000)
"""


def test_of_two_writers_one_wins_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    writers = [subprocess.Popen([sys.executable, "-c", RACING, target, letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            seen.add(target.read_text())
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {"a" * 50_000, "b" * 50_000}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_made_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert output_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(BadInputError, match=r"cannot make the folder .*/file/c: Not a directory") as error:
        output_folder(tmp_path / "file" / "c", "--png")
    assert error.value.hint == "choose another folder with --png"


def test_what_was_written_is_known_as_long_as_it_is_there(tmp_path: Path) -> None:
    forget_written()
    for name in ("a.json", "b.json", ".placer-files.json", "a.json"):
        write_text(tmp_path / name, "{}")
    with pytest.raises(BadInputError):
        write_text(tmp_path / "missing" / "c.json", "{}")
    assert written() == (tmp_path / "a.json", tmp_path / "b.json")
    (tmp_path / "a.json").unlink()
    assert written() == (tmp_path / "b.json",)
    forget_written()
    assert written() == ()
