"""The package as it is built from a copy of the sources, with the times of SOURCE_DATE_EPOCH."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EPOCH = 1_700_000_000


def copy_sources(folder: Path) -> Path:
    """What is no build output and no environment, as .gitignore tells them apart."""
    ignored = [line.rstrip("/") for line in (REPOSITORY / ".gitignore").read_text().splitlines()]
    return Path(shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns(".git", *ignored)))


def build(sources: Path, output: Path, *, umask: int = 0o022) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made from it."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", output, sources],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
        umask=umask,
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=sources.parent,
    )
    (sdist,) = output.glob("*.tar.gz")
    (wheel,) = output.glob("*.whl")
    return sdist, wheel
