"""Which instances a benchmark solves: those of files, or generated ones."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from placer.errors import BadInputError
from placer.solvers.bench.family import FAMILIES, Size, generated
from placer.solvers.bench.instance import Instance
from placer.solvers.bench.instance_file import read_instance


def selected(
    paths: Sequence[Path],
    *,
    families: Sequence[str] = (),
    size: str | None = None,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> list[Instance]:
    """The instances at ``paths``, then one of each of ``families``; without both, one of every family.

    Parameters
    ----------
    size
        LAYERSxEXPERTSxSTEPS of generated instances, each family's own where None.

    Raises
    ------
    BadInputError
        When a file cannot be read, a family is not known, or no instance has the size.
    """
    generate = list(families) if families or paths else list(FAMILIES)
    if size is not None and not generate:
        raise BadInputError("--size is for generated instances", "add --family, or leave the files out")
    wanted = None if size is None else _size(size)
    tasks: list[Path | str] = [*paths, *generate]
    instances = []
    for turn, task in enumerate(tasks):
        if progress is not None:
            progress(f"{task}", turn / len(tasks))
        if isinstance(task, Path):
            instances.append(read_instance(task))
        else:
            instances.append(generated(task, seed=seed, size=wanted))
    return instances


def _size(text: str) -> Size:
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})x(\d{1,5})", text)
    if match is None:
        raise BadInputError(f"--size {text!r:.80} is not a size", "write LAYERSxEXPERTSxSTEPS: 62x160x32")
    return Size(*map(int, match.groups()))
