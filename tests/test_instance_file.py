"""Solver instances in files: the formula by hand, levels, what a reader refuses, and the content hash."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.solvers.bench.family import FAMILIES, Size, generated
from placer.solvers.bench.instance_file import read_instance, write_instance, write_instances


def stored(path: Path, **changes: Any) -> Path:
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
    (problem,) = read_instance(stored(tmp_path / "a.npz")).problems()
    # All cold: 80 + 64 + 68; the second expert hot: max(30 + 21, 80 + 64); both active hot: no c0.
    assert problem.objective_us(np.array([[False, False, False]])) == 212.0
    assert problem.objective_us(np.array([[False, True, False]])) == 144.0
    assert problem.objective_us(np.array([[True, True, False]])) == 30 + 20.5 + 21.0
    assert problem.budget_bytes == 1


def test_layers_may_differ_and_a_side_may_charge_for_its_members(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "a.npz",
        rows=np.array([[[1], [1]]]),
        cold_us=np.array([[[10.0, 1.0], [20.0, 2.0]]]),
        c0_us=np.array([5.0, 7.0]),
        expert_bytes=np.array([1, 3]),
        budget_bytes=np.int64(3),
        max_hot=None,
        hot_charge=np.array("any_member"),
        layer_min_hot=np.array([0, 1]),
        weight=np.array([2.0]),
        constant_us=np.float64(100.0),
    )
    (problem,) = read_instance(path).problems()
    # Layer 0 cold: 5 + 11, its hot side free of charge; layer 1 hot: 30 + 20.5. Twice, and the constant.
    assert problem.objective_us(np.array([[False], [True]])) == 100 + 2 * (16.0 + 50.5)
    assert not problem.is_feasible(np.array([[False], [False]]))
    assert not problem.is_feasible(np.array([[True], [True]]))


def test_a_further_level_keeps_what_it_does_not_say(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.npz", levels=np.int64(2), level1_max_hot=np.int64(2), level1_constant_us=9.0)
    first, second = read_instance(path).problems()
    assert (first.budget_bytes, second.budget_bytes) == (1, 2)
    assert second.objective_us(np.array([[False, True, False]])) == 144.0 + 9.0


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_reads_back(tmp_path: Path, family: str) -> None:
    instance = generated(family, size=Size(5, 16, 4))
    (path,) = write_instances([instance], tmp_path / "new")
    again = read_instance(path)
    assert again.name == instance.name
    assert again.sha256 == instance.sha256
    for level, same in zip(instance.levels, again.levels, strict=True):
        for field in level.__dataclass_fields__:
            assert np.array_equal(getattr(level, field), getattr(same, field)), field


def test_instances_of_another_are_never_overwritten(tmp_path: Path) -> None:
    instance = generated("balanced", size=Size(2, 16, 2))
    mine = tmp_path / f"{instance.name}.npz"
    mine.write_bytes(b"mine")
    with pytest.raises(BadInputError, match="would be overwritten"):
        write_instances([instance], tmp_path)
    assert mine.read_bytes() == b"mine"
    mine.unlink()
    assert write_instances([instance], tmp_path) == write_instances([instance], tmp_path) == [mine]
    with pytest.raises(BadInputError, match=r"would be written twice: two instances have its name"):
        write_instances([instance, instance], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_hash_is_that_of_the_content(tmp_path: Path) -> None:
    plain = read_instance(stored(tmp_path / "a.npz")).sha256
    spelled_out = stored(
        tmp_path / "b.npz",
        rows=np.array([[[1, 2, 0]]], dtype=np.int64),
        cold_us=np.array([[60.0, 4.0]]),
        weight=np.array([1.0]),
        cold_charge=np.array("any_active"),
    )
    assert read_instance(spelled_out).sha256 == plain
    assert read_instance(stored(tmp_path / "c.npz", c0_us=np.float64(81))).sha256 != plain


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
        {"cold_us": np.ones((3, 1, 2))},
        {"hot_us": np.array([-1.0, 1.0])},
        {"c0_us": np.array(["a"])},
        {"max_hot": np.int64(-3)},
        {"max_hot": np.float64(1.5)},
        {"max_hot": None},
        {"weight": np.ones(2)},
        {"expert_bytes": np.zeros(1)},
        {"cold_charge": np.array("sometimes")},
        {"levels": np.int64(0)},
        {"levels": np.int64(2), "level1_rows": np.zeros((2, 2))},
    ],
)
def test_what_is_not_an_instance_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        read_instance(stored(tmp_path / "a.npz", **changes))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_what_is_not_a_file_of_arrays_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(BadInputError):
        read_instance(tmp_path / "a.npz")
    with pytest.raises(BadInputError):
        read_instance(tmp_path / "missing.npz")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot make"):
        write_instances([], tmp_path / "file" / "folder")
    with pytest.raises(BadInputError):
        write_instance(generated("balanced", size=Size(2, 16, 2)), tmp_path / "missing" / "a.npz")
