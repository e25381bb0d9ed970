"""An export folder: it holds the export of one runtime only."""

from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.exports import kt_launch, llama_cpp, vllm, vllm_plugin
from placer.exports.folder import ExportFile, write_folder

LAUNCHES = {
    "sglang-kt": kt_launch._SCRIPT.replace("@RUNTIME@", "sglang-kt 0.7.2"),
    "vllm": vllm._LAUNCH,
    "vllm-plugin": vllm_plugin._LAUNCH,
    "llama.cpp": llama_cpp._LAUNCH,
}


def export(folder: Path, launch: str) -> None:
    write_folder(folder, [ExportFile("launch.sh", launch.encode())], check=lambda _staged: None)


@pytest.mark.parametrize("first", LAUNCHES)
@pytest.mark.parametrize("second", LAUNCHES)
def test_only_the_same_runtime_may_be_exported_again(tmp_path: Path, first: str, second: str) -> None:
    folder = tmp_path / "out"
    export(folder, LAUNCHES[first])
    if first == second:
        export(folder, LAUNCHES[second])
    else:
        with pytest.raises(BadInputError, match="holds an export for another runtime"):
            export(folder, LAUNCHES[second])
        assert (folder / "launch.sh").read_text() == LAUNCHES[first]


def test_another_version_of_the_runtime_is_the_same_runtime(tmp_path: Path) -> None:
    export(tmp_path / "out", LAUNCHES["sglang-kt"].replace("0.7.2", "0.6.3.post1"))
    export(tmp_path / "out", LAUNCHES["sglang-kt"])
    assert (tmp_path / "out" / "launch.sh").read_text() == LAUNCHES["sglang-kt"]


def test_a_folder_with_other_files_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    export(tmp_path, LAUNCHES["vllm"])
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("runtime", LAUNCHES)
@pytest.mark.parametrize("name", ["README.md", "launch.sh", "config.yaml"])
def test_a_file_that_placer_did_not_write_is_never_overwritten(
    tmp_path: Path, runtime: str, name: str
) -> None:
    (tmp_path / name).write_text("MY MODEL CARD")
    files = [ExportFile(each, b"ours") for each in ("config.yaml", "README.md")]
    files.append(ExportFile("launch.sh", LAUNCHES[runtime].encode()))
    with pytest.raises(BadInputError) as caught:
        write_folder(tmp_path, files, check=lambda _staged: None)
    assert (
        caught.value.what == f"{tmp_path / name} would be overwritten, and it is not as placer wrote it there"
    )
    assert caught.value.hint == "move it elsewhere, or choose another folder with -o"
    assert [path.read_text() for path in tmp_path.iterdir()] == ["MY MODEL CARD"]


def test_a_stale_file_goes_only_where_placer_wrote_it(tmp_path: Path) -> None:
    def again(folder: Path) -> None:
        write_folder(folder, [ExportFile("a", b"1")], check=lambda _staged: None, stale=["record.sh"])

    record = ExportFile("record.sh", b"ours")
    write_folder(tmp_path / "out", [ExportFile("a", b"1"), record], check=lambda _staged: None)
    again(tmp_path / "out")
    assert not (tmp_path / "out" / "record.sh").exists()
    (tmp_path / "out" / "record.sh").write_text("mine")
    again(tmp_path / "out")
    assert (tmp_path / "out" / "record.sh").read_text() == "mine"
