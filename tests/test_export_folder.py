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
