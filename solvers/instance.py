"""Solver instances in .npz files: rows of sampled steps and four cost lines, read as a placement problem."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.input import checked_input
from placer.solvers.problem import FixedCharge, PlacementProblem

MOST_ENTRIES = 200_000_000
"""Entries of rows [S, L, E] that a problem may have: its costs take 16 bytes for each."""
_FIELDS = ("rows", "cold_us", "hot_us", "c0_us", "h0_us", "max_hot")


def read_instance(path: Path) -> PlacementProblem:
    """The instance at ``path``.

    ``rows`` [S, L, E] counts the rows of each expert. An active expert with n rows costs a + b·n on its side,
    (a, b) from ``cold_us`` and ``hot_us``. Every layer-step pays ``h0_us``, and ``c0_us`` where a cold expert
    is active. Steps weigh 1/S, and at most ``max_hot`` experts are hot (each takes one byte of the budget).

    Raises
    ------
    BadInputError
        When the file is missing, not such an .npz, or holds values no instance can have.
    """
    arrays = _arrays(Path(path))
    rows = arrays["rows"]
    if rows.ndim != 3 or 0 in rows.shape or rows.dtype.kind not in "iu" or rows.min() < 0:
        raise BadInputError(f"{path}: rows is not a count [steps, layers, experts]", "check the instance")
    cold = _numbers(path, arrays, "cold_us", 2)
    hot = _numbers(path, arrays, "hot_us", 2)
    (c0,), (h0,), (most,) = (_numbers(path, arrays, name, 1) for name in ("c0_us", "h0_us", "max_hot"))
    S, L, E = rows.shape
    active = np.asarray(rows > 0)
    return PlacementProblem(
        hot_us=np.where(active, hot[0] + hot[1] * rows, 0.0),
        cold_us=np.where(active, cold[0] + cold[1] * rows, 0.0),
        hot_fixed_us=np.full((S, L), h0),
        cold_fixed_us=np.full((S, L), c0),
        hot_fixed_when=FixedCharge.ALWAYS,
        cold_fixed_when=FixedCharge.ANY_ACTIVE,
        weight=np.full(S, 1.0 / S),
        expert_bytes=np.ones(L, dtype=np.int64),
        budget_bytes=int(min(most, L * E)),
        min_hot=np.zeros(L, dtype=np.int64),
        max_hot=np.full(L, E, dtype=np.int64),
        linear_us=np.zeros((L, E)),
        name=Path(path).stem,
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    wrong = "give an .npz with " + ", ".join(_FIELDS)
    checked_input(path, what="solver instance", cure=wrong)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        missing = [name for name in _FIELDS if name not in sizes]
        if missing:
            raise BadInputError(f"{path}: array {missing[0]!r} is missing", wrong)
        # int64 is the widest that rows can be: a larger member is not an instance.
        if max(sizes[name] for name in _FIELDS) > 8 * MOST_ENTRIES:
            raise BadInputError(f"{path}: larger than {MOST_ENTRIES:,} entries", wrong)
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in _FIELDS}
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError, MemoryError):
        raise BadInputError(f"{path}: not an .npz file of plain arrays", wrong) from None


def _numbers(path: Path, arrays: dict[str, NDArray[Any]], name: str, count: int) -> NDArray[np.float64]:
    array = arrays[name]
    if array.dtype.kind not in "iuf" or array.size != count:
        raise BadInputError(f"{path}: {name} is not {count} number(s)", "check the instance")
    values = array.astype(np.float64).reshape(count)
    if not np.isfinite(values).all() or values.min() < 0:
        raise BadInputError(f"{path}: {name} is negative or not finite", "check the instance")
    return values
