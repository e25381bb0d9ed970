"""`placer.bench_instances`: generated solver instances on disk."""

from collections.abc import Sequence
from pathlib import Path

from placer.api.checked import checked
from placer.api.choice import names
from placer.api.number import check_seed
from placer.api.opened import Source
from placer.api.progress import Progress, silent
from placer.solvers.bench.instance_file import write_instances
from placer.solvers.bench.selection import selected


@checked
def bench_instances(
    instances: Sequence[Source] = (),
    *,
    write: Source,
    family: str | Sequence[str] = (),
    size: str | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[Path, ...]:
    """Write the instances that `placer.bench` would solve to the folder ``write``; the files.

    Raises
    ------
    BadInputError
        As `placer.bench`, and when the folder cannot be written.
    """
    check_seed(seed)
    paths = [Path(each) for each in instances]
    chosen = selected(paths, families=names(family), size=size, seed=seed, progress=progress)
    return tuple(write_instances(chosen, Path(write)))
