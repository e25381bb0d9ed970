"""The wheel alone in clean environments of every Python that it is for, and beside a package named `kernels`."""

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from built_package import REPOSITORY, build, copy_sources

pytestmark = pytest.mark.packaging

VERSIONS = ("3.11", "3.12", "3.13")
LOCK = REPOSITORY / "constraints.txt"
# Files whose subjects need no torch.
TESTS = (
    "test_units",
    "test_version",
    "test_startup",
    "test_datasheet",
    "test_cpu_datasheet",
    "test_marginal",
)
# An import of one's own sources, or the settings of the one who tests, would hide what the wheel lacks.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PLACER"))
}


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, a folder with the unpacked sdist, and whether torch is there too."""

    binaries: Path
    sources: Path
    with_torch: bool

    def run(self, program: str, *arguments: object) -> str:
        """What a program of the environment prints; it must succeed."""
        done = subprocess.run(
            [self.binaries / program, *map(str, arguments)],
            cwd=self.binaries,
            env=CLEAN,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def interpreter(version: str) -> str | None:
    """A Python of ``version``: on the PATH, or among pyenv's."""
    candidates = [shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        candidates += map(str, sorted(Path(root).glob(f"versions/{version}.*/bin/python")))
    for candidate in filter(None, candidates):
        # A shim that stands for no chosen version fails.
        asked = subprocess.run(
            [candidate, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            check=False,
            capture_output=True,
            text=True,
        )
        if asked.stdout.strip() == version:
            return candidate
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("built")
    return build(copy_sources(folder / "sources"), folder / "dist")


@pytest.fixture(scope="module", params=VERSIONS)
def installed(
    request: pytest.FixtureRequest, built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """The wheel and what it requires, at the versions of constraints.txt.

    Everything is resolved. Where pip would take a build of torch for CUDA, which is several gigabytes, it is left out
    with what it alone brings: the commands that compute with it are tested where there is a build for the CPU.
    """
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} here: put python{request.param} on the PATH")
    sdist, wheel = built
    folder = tmp_path_factory.mktemp(f"python{request.param}")
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True, env=CLEAN)
    environment = Installed(folder / "venv" / "bin", folder / sdist.name.removesuffix(".tar.gz"), True)
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    report = folder / "report.json"
    environment.run("python", *pip, "--dry-run", "--constraint", LOCK, "--report", report, wheel)
    resolved = {
        one["metadata"]["name"].lower(): one["metadata"]["version"]
        for one in json.loads(report.read_text())["install"]
    }
    cuda = {name for name in resolved if name.startswith(("nvidia-", "cuda-")) or name == "triton"}
    left_out = cuda | {"torch"} if cuda else set()
    others = [
        f"{name}=={version}" for name, version in resolved.items() if name not in left_out | {"moe-placer"}
    ]
    environment.run("python", *pip, "--no-deps", *others, wheel)
    environment.run("python", *pip, "--constraint", LOCK, "pytest", "hypothesis", "jsonschema")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return Installed(environment.binaries, environment.sources, not cuda)


def test_the_commands_start(installed: Installed) -> None:
    version = installed.run("placer", "--version")
    assert version.startswith("placer ")
    assert installed.run("python", "-m", "placer", "--version") == version
    assert "--output" in installed.run("placer", "demo", "--help")


def test_the_installed_copy_is_imported_with_its_parts_and_data(installed: Installed) -> None:
    printed = installed.run(
        "python",
        "-c",
        "import placer, placer.kernels, placer.profiler, placer.solvers\n"
        "from importlib.resources import files\n"
        "print(files('placer').joinpath('schemas/placement.schema.json').is_file(), placer.__file__)",
    )
    assert printed.startswith("True ")
    assert str(installed.binaries.parent) in printed


def test_a_checkpoint_of_the_sources_is_inspected(installed: Installed) -> None:
    example = installed.sources / "examples" / "qwen3-30b-a3b"
    assert '"experts": 128' in installed.run("placer", "inspect", "--model", example, "--json")


def test_a_trace_of_the_sources_is_judged(installed: Installed) -> None:
    if not installed.with_torch:
        pytest.skip("torch for this Python is a CUDA build of several gigabytes")
    trace = installed.sources / "examples" / "tiny-moe" / "traces" / "trace.safetensors"
    assert '"verdict"' in installed.run("placer", "trace", "info", trace, "--json")


def test_tests_of_the_sources_pass(installed: Installed) -> None:
    # From another folder and by pytest's own program, or Python would find the sources before the installed copy.
    files = [installed.sources / "tests" / f"{name}.py" for name in TESTS]
    settings = ("--rootdir", installed.sources, "--config-file", installed.sources / "pyproject.toml")
    assert " passed" in installed.run("pytest", "-q", *settings, *files)


def test_a_package_named_kernels_stays_beside_it(installed: Installed) -> None:
    """SGLang depends on a distribution named `kernels`; ours is `placer.kernels`."""
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    installed.run("python", *pip, "--constraint", LOCK, "kernels")
    first, second = installed.run(
        "python",
        "-c",
        "import kernels, placer.kernels\nprint(kernels.__file__, placer.kernels.__file__, sep='\\n')",
    ).splitlines()
    assert Path(first).parts[-2:] == ("kernels", "__init__.py")
    assert Path(second).parts[-3:] == ("placer", "kernels", "__init__.py")
    both = installed.run(
        "python",
        "-c",
        "from importlib.metadata import files\n"
        "print(len({str(f) for f in files('kernels')} & {str(f) for f in files('moe-placer')}))",
    )
    assert both == "0\n"
    assert installed.run("placer", "--version").startswith("placer ")
