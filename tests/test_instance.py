"""Solver instances: the formula by hand, and what a reader refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared_data import SHARED_DATA, needs_shared_data

from placer.errors import BadInputError
from placer.solvers.bench import bench
from placer.solvers.instance import read_instance


def write_instance(path: Path, **changes: Any) -> Path:
    """One step, one layer, experts with 1, 2 and 0 rows; one may be hot."""
    arrays: dict[str, Any] = {
        "rows": np.array([[[1, 2, 0]]], dtype=np.uint8),
        "cold_us": np.array([60.0, 4.0]),
        "hot_us": np.array([20.0, 0.5]),
        "c0_us": np.float64(80),
        "h0_us": np.float64(30),
        "max_hot": np.int64(1),
        **changes,
    }
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_the_time_of_a_layer_by_hand(tmp_path: Path) -> None:
    problem = read_instance(write_instance(tmp_path / "a.npz"))
    # All cold: 80 + 64 + 68; the second expert hot: max(30 + 21, 80 + 64); both active hot: no c0.
    assert problem.objective_us(np.array([[False, False, False]])) == 212.0
    assert problem.objective_us(np.array([[False, True, False]])) == 144.0
    assert problem.objective_us(np.array([[True, True, False]])) == 30 + 20.5 + 21.0


def test_bench_solves_it(tmp_path: Path) -> None:
    rows = bench([write_instance(tmp_path / "a.npz")], time_limit_s=20, rivals=["highs", "cbc"], gap=1e-4)
    assert [row.solver for row in rows] == ["structured", "highs", "cbc"]
    for row in rows:
        assert row.objective_us == pytest.approx(144.0, rel=1e-4)
        assert row.bound_us == pytest.approx(144.0, rel=1e-4)
        assert row.status == "optimal"


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": None},
        {"rows": np.zeros((2, 2), dtype=np.uint8)},
        {"rows": np.zeros((0, 2, 2), dtype=np.uint8)},
        {"rows": np.full((1, 1, 3), -1)},
        {"rows": np.full((1, 1, 3), 0.5)},
        {"rows": np.array([[[{}, 1, 2]]], dtype=object)},
        {"cold_us": np.array([np.nan, 1.0])},
        {"cold_us": np.array([1.0])},
        {"hot_us": np.array([-1.0, 1.0])},
        {"c0_us": np.array(["a"])},
        {"max_hot": np.int64(-3)},
    ],
)
def test_what_is_not_an_instance_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        read_instance(write_instance(tmp_path / "a.npz", **changes))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_what_is_not_a_file_of_arrays_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(BadInputError):
        read_instance(tmp_path / "a.npz")
    with pytest.raises(BadInputError):
        read_instance(tmp_path / "missing.npz")


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "objective_us", "gap"),
    [("balanced_62x160_70", 149_150.2, 0.01), ("balanced_62x160_80", 132_473.7, 0.01)],
)
def test_balanced_layers_are_proven_within_one_percent(name: str, objective_us: float, gap: float) -> None:
    # Five seconds suffice on an idle machine; the limit leaves room for a busy one.
    (row,) = bench([SHARED_DATA / "instances" / f"{name}.npz"], time_limit_s=15, gap=gap)
    assert row.gap is not None
    assert row.objective_us is not None
    assert row.gap <= gap
    assert row.objective_us <= 1.01 * objective_us
