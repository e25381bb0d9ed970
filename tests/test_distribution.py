"""sdist and wheel: the same bytes from every build, and in each of them what belongs there."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from built_package import EPOCH, REPOSITORY, build, copy_sources

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("built")
    return build(copy_sources(folder / "sources"), folder / "dist")


@pytest.fixture(scope="module")
def in_sdist(built: tuple[Path, Path]) -> dict[str, tarfile.TarInfo]:
    """Members by their path inside the one folder of the archive."""
    with tarfile.open(built[0]) as archive:
        return {member.name.partition("/")[2]: member for member in archive.getmembers()}


@pytest.fixture(scope="module")
def in_wheel(built: tuple[Path, Path]) -> dict[str, bytes]:
    with zipfile.ZipFile(built[1]) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def test_a_build_elsewhere_later_and_under_another_umask_has_the_same_bytes(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    sources = copy_sources(tmp_path / "another-place")
    for path in sources.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (EPOCH + 86_400, EPOCH + 86_400))
    again = build(sources, tmp_path / "dist", umask=0o077)
    for first, second in zip(built, again, strict=True):
        assert first.name == second.name
        assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


def test_no_member_names_who_built_it_and_when(in_sdist: dict[str, tarfile.TarInfo]) -> None:
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in in_sdist.values()} == {
        (0, 0, "", "", EPOCH)
    }


def test_the_sdist_has_every_source(in_sdist: dict[str, tarfile.TarInfo]) -> None:
    for folder in ("tests", "docs", "examples", "placer", "profiler", "kernels", "solvers", ".ci"):
        here = {
            str(path.relative_to(REPOSITORY))
            for path in (REPOSITORY / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert here
        assert here <= set(in_sdist)
    for name in (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "Makefile",
        "constraints.txt",
    ):
        assert name in in_sdist
    assert not [name for name in in_sdist if "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_has_one_package_with_its_data_and_no_tests(in_wheel: dict[str, bytes]) -> None:
    tops = {name.partition("/")[0] for name in in_wheel}
    assert {re.sub(r"-.*\.dist-info$", ".dist-info", top) for top in tops} == {
        "placer",
        "moe_placer.dist-info",
    }
    assert not [name for name in in_wheel if re.search(r"(^|/)(tests?/|test_|conftest)", name)]
    for data in ("py.typed", "schemas/placement.schema.json", "examples/tiny-moe/model.safetensors"):
        assert f"placer/{data}" in in_wheel
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in in_wheel)


def test_every_module_of_the_sources_is_in_the_wheel(in_wheel: dict[str, bytes]) -> None:
    for folder, inside in (
        ("placer", "placer"),
        *((name, f"placer/{name}") for name in ("profiler", "kernels", "solvers", "examples")),
    ):
        for path in (REPOSITORY / folder).rglob("*.py"):
            assert f"{inside}/{path.relative_to(REPOSITORY / folder)}" in in_wheel


def test_the_metadata_is_valid(in_wheel: dict[str, bytes]) -> None:
    from packaging.metadata import Metadata
    from trove_classifiers import classifiers

    (text,) = [content for name, content in in_wheel.items() if name.endswith(".dist-info/METADATA")]
    metadata = Metadata.from_email(text, validate=True)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert metadata.requires_python is not None
    for version in ("3.11", "3.12", "3.13"):
        assert metadata.requires_python.contains(version)
        assert f"Programming Language :: Python :: {version}" in (metadata.classifiers or [])
    assert set(metadata.classifiers or []) <= set(classifiers)
    assert metadata.description_content_type == "text/markdown"


def test_the_readme_renders_as_a_package_index_shows_it() -> None:
    from readme_renderer import markdown

    page = markdown.render((REPOSITORY / "README.md").read_text())
    assert page is not None
    assert "<table" in page


def test_the_changelog_has_the_version_that_is_built(built: tuple[Path, Path]) -> None:
    version = built[0].name.removeprefix("moe_placer-").removesuffix(".tar.gz")
    assert re.search(
        rf"^## \[{re.escape(version)}\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    shown = subprocess.run(
        [sys.executable, "-m", "placer", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"placer {version}\n"
