"""Instances in .npz files: what is asked of each array, reading and writing."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.input import checked_input
from placer.output import output_folder, write_whole
from placer.solvers.bench.instance import Instance, InstanceLevel
from placer.solvers.problem import FixedCharge
from placer.written_files import check_replaceable, record_written

MOST_ENTRIES = 200_000_000
"""Entries of rows [S, L, E] that a level may have: its costs take 16 bytes for each."""
MOST_LEVELS = 64
_NEEDED = ("rows", "cold_us", "hot_us", "c0_us", "h0_us")
_LINES = ("cold_us", "hot_us")
_CURE = "give an .npz with " + ", ".join(_NEEDED) + " and max_hot or budget_bytes"

Arrays = dict[str, NDArray[Any]]


def read_instance(path: Path) -> Instance:
    """The instance at ``path``.

    Arrays of a level, with S steps, L layers and E experts:

    - ``rows`` [S, L, E], rows of each expert;
    - ``cold_us``, ``hot_us``: the line (a, b) of an expert with n > 0 rows, a + b·n; [2], or anything that
      broadcasts to [S, L, 2];
    - ``c0_us``, ``h0_us``: charges of the cold and the hot side; a number or anything that broadcasts to
      [S, L];
    - ``max_hot``: experts that may be hot in all, or ``budget_bytes`` for experts of ``expert_bytes`` [L]
      (one byte each where absent).

    May be left out: ``weight`` [S] (1/S), ``layer_min_hot`` and ``layer_max_hot`` [L] (0 and E),
    ``cold_charge`` and ``hot_charge`` ("any_active" and "always", see `FixedCharge`), ``constant_us`` (0).
    Where ``levels`` says how many there are, ``level1_rows`` is the rows of the second and so on; what a
    further level leaves out is as in the first.

    Raises
    ------
    BadInputError
        When the file is missing, not such an .npz, or holds values no instance can have.
    """
    path = Path(path)
    arrays = _arrays(path)
    count = int(_whole(path, arrays, "levels", (), 1)) if "levels" in arrays else 1
    if not 1 <= count <= MOST_LEVELS:
        raise BadInputError(f"{path}: {count} levels", f"give 1 to {MOST_LEVELS}")
    levels = []
    for number in range(count):
        own = f"level{number}_"
        named = {name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}
        levels.append(_level(path, {**arrays, **named}))
    return Instance(path.stem, tuple(levels))


def write_instance(instance: Instance, path: Path) -> None:
    """Write ``instance`` for `read_instance`, whole or not at all.

    Raises
    ------
    BadInputError
        When ``path`` cannot be written.
    """
    arrays: Arrays = {"levels": np.array(len(instance.levels))}
    for number, level in enumerate(instance.levels):
        prefix = f"level{number}_" if number else ""
        stored = _stored(level)
        arrays.update(
            (prefix + name, array)
            for name, array in stored.items()
            if not number or not np.array_equal(array, arrays[name])
        )

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    write_whole(path, write, "--write")


def write_instances(instances: Sequence[Instance], folder: Path) -> list[Path]:
    """Write each instance to ``folder``, made where it is missing, under its name; the paths.

    Raises
    ------
    BadInputError
        When two instances have the same name, the folder cannot be made or written to, or it has a file of an
        instance's name that is not as placer wrote it there.
    """
    paths = [folder / f"{instance.name}.npz" for instance in instances]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise BadInputError(
            f"{twice} would be written twice: two instances have its name", "rename one of them"
        )
    output_folder(folder, "--write")
    check_replaceable(folder, [path.name for path in paths], "--write")
    for instance, path in zip(instances, paths, strict=True):
        write_instance(instance, path)
        record_written(folder, [path.name], "--write")
    return paths


def _stored(level: InstanceLevel) -> Arrays:
    rows = level.rows
    arrays: Arrays = {
        "rows": rows.astype(np.min_scalar_type(int(rows.max()))),
        "cold_us": _shortest(level.cold_us),
        "hot_us": _shortest(level.hot_us),
        "c0_us": _shortest(level.c0_us),
        "h0_us": _shortest(level.h0_us),
        "cold_charge": np.array(level.cold_charge.value),
        "hot_charge": np.array(level.hot_charge.value),
        "weight": level.weight,
        "expert_bytes": level.expert_bytes,
        "budget_bytes": np.array(level.budget_bytes),
        "layer_min_hot": level.min_hot,
        "layer_max_hot": level.max_hot,
        "constant_us": np.array(level.constant_us),
    }
    if np.all(level.expert_bytes == 1):
        # The name that readers of one-level instances look for.
        arrays["max_hot"] = arrays["budget_bytes"]
    return arrays


def _shortest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The array without repetition along steps and layers."""
    first = values[:1]
    values = first if np.array_equal(np.broadcast_to(first, values.shape), values) else values
    first = values[:, :1]
    same = values.ndim == 3 and np.array_equal(np.broadcast_to(first, values.shape), values)
    return first if same else values


def _level(path: Path, arrays: Arrays) -> InstanceLevel:
    rows = arrays["rows"]
    if rows.ndim != 3 or 0 in rows.shape or rows.dtype.kind not in "iu" or rows.min() < 0:
        raise BadInputError(f"{path}: rows is not a count [steps, layers, experts]", "check the instance")
    S, L, E = rows.shape
    expert_bytes = _whole(path, arrays, "expert_bytes", (L,), 1)
    if expert_bytes.min() < 1:
        raise BadInputError(f"{path}: expert_bytes is not above 0", "check the instance")
    if "budget_bytes" not in arrays and "max_hot" not in arrays:
        raise BadInputError(f"{path}: array 'max_hot' is missing", _CURE)
    budget = _whole(path, arrays, "budget_bytes" if "budget_bytes" in arrays else "max_hot", (), 0)
    return InstanceLevel(
        rows=rows,
        cold_us=_numbers(path, arrays, "cold_us", (S, L, 2), 0.0),
        hot_us=_numbers(path, arrays, "hot_us", (S, L, 2), 0.0),
        c0_us=_numbers(path, arrays, "c0_us", (S, L), 0.0),
        h0_us=_numbers(path, arrays, "h0_us", (S, L), 0.0),
        cold_charge=_charge(path, arrays, "cold_charge", FixedCharge.ANY_ACTIVE),
        hot_charge=_charge(path, arrays, "hot_charge", FixedCharge.ALWAYS),
        weight=_numbers(path, arrays, "weight", (S,), 1.0 / S),
        expert_bytes=expert_bytes,
        budget_bytes=min(int(budget), int(expert_bytes.sum()) * E),
        min_hot=_whole(path, arrays, "layer_min_hot", (L,), 0),
        max_hot=np.minimum(_whole(path, arrays, "layer_max_hot", (L,), E), E),
        constant_us=float(_numbers(path, arrays, "constant_us", (), 0.0)),
    )


def _arrays(path: Path) -> Arrays:
    checked_input(path, what="solver instance", cure=_CURE)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        missing = [name for name in _NEEDED if name not in sizes]
        if missing:
            raise BadInputError(f"{path}: array {missing[0]!r} is missing", _CURE)
        # int64 is the widest that rows can be: a larger file holds no instance.
        if sum(sizes.values()) > 8 * MOST_ENTRIES:
            raise BadInputError(f"{path}: larger than {MOST_ENTRIES:,} entries", _CURE)
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except BadInputError:
        raise
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    except Exception:  # zip and npy readers raise a dozen kinds for a damaged file
        raise BadInputError(f"{path}: not an .npz file of plain arrays", _CURE) from None
    # A member that is no array comes as its bytes.
    if strange := next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None):
        raise BadInputError(f"{path}: {strange!r:.80} is no array", _CURE)
    return arrays


def _numbers(
    path: Path, arrays: Arrays, name: str, shape: tuple[int, ...], default: float
) -> NDArray[np.float64]:
    array = arrays.get(name, np.array(default))
    if array.dtype.kind not in "iuf":
        raise BadInputError(f"{path}: {name} holds no numbers", "check the instance")
    values = array.astype(np.float64)
    # One number may be stored as an array of one.
    values = values.reshape(()) if values.size == 1 else values
    # A line needs both its numbers; everything else may be one number for all.
    fits = values.shape[-1:] == shape[-1:] or (values.ndim == 0 and name not in _LINES)
    try:
        wide = np.array(np.broadcast_to(values, shape)) if fits else None
    except ValueError:
        wide = None
    if wide is None:
        raise BadInputError(
            f"{path}: {name} has shape {list(array.shape)}, not {list(shape)}", "check the instance"
        )
    if not np.isfinite(wide).all() or wide.min() < 0:
        raise BadInputError(f"{path}: {name} is negative or not finite", "check the instance")
    return wide


def _whole(path: Path, arrays: Arrays, name: str, shape: tuple[int, ...], default: int) -> NDArray[np.int64]:
    values = _numbers(path, arrays, name, shape, default)
    if not np.array_equal(values, np.round(values)) or values.max() > 2**53:
        raise BadInputError(f"{path}: {name} is not a whole number", "check the instance")
    return values.astype(np.int64)


def _charge(path: Path, arrays: Arrays, name: str, default: FixedCharge) -> FixedCharge:
    said = str(arrays.get(name, np.array(default.value)))
    if said not in set(FixedCharge):
        raise BadInputError(
            f"{path}: {name} is {said!r}", f"use one of: {', '.join(charge.value for charge in FixedCharge)}"
        )
    return FixedCharge(said)
