"""The runtime's reader: what it returns, what it refuses, and that the standard library is all it needs."""

import copy
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from placements import placement_dict

import placer.runtime
from placer.errors import BadInputError
from placer.placement import read_placement
from placer.runtime import Kv, PlacementError, load

ROOT = Path(placer.__file__).resolve().parents[1]
READING_MS = 50.0


def document(**changes: Any) -> dict[str, Any]:
    """Layers 1 and 3 of 4 experts: expert 2 then 0 of layer 1, none of layer 3."""
    return placement_dict({1: [2, 0]}, layers=[1, 3], experts=4, **changes)


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "placement.json"
    path.write_text(json.dumps(content))
    return path


def test_what_a_runtime_acts_on(tmp_path: Path) -> None:
    path = write(tmp_path, document())
    plan = load(path)
    assert plan.layers == (1, 3)
    assert (plan.experts, plan.top_k, plan.tp) == (4, 2, 1)
    assert plan.hot == {1: (2, 0), 3: ()}
    assert plan.hot_total == 2
    assert plan.masks == {1: b"\x01\x00\x01\x00", 3: b"\x00\x00\x00\x00"}
    assert plan.kv == Kv("bf16", 64, 5120, 8, 2048, 8)
    assert (plan.cpu_method, plan.cpu_threads) == ("RAWINT4", 32)
    assert plan.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_masks_are_those_of_the_full_reader(tmp_path: Path) -> None:
    path = write(tmp_path, document())
    full = read_placement(path).hot_mask()
    assert [list(mask) for mask in load(path).masks.values()] == full.astype(int).tolist()


def test_a_plan_belongs_to_one_config_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["TinyMoeForCausalLM"]}')
    content = document()
    content["model"]["config_sha256"] = hashlib.sha256((tmp_path / "config.json").read_bytes()).hexdigest()
    path = write(tmp_path, content)
    assert load(path, tmp_path) == load(path, tmp_path / "config.json") == load(path)
    (tmp_path / "config.json").write_text('{"architectures": ["OtherForCausalLM"]}')
    with pytest.raises(PlacementError, match="made for tiny-moe with"):
        load(path, tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(PlacementError, match=r"cannot read model config .*config\.json"):
        load(path, tmp_path)


@pytest.mark.parametrize(
    ("where", "value", "field"),
    [
        ("schema", "placer.placement/2", "schema"),
        ("schema", "placer.profile/1", "schema"),
        ("tp", 0, "tp"),
        ("tp", True, "tp"),
        ("cpu_method", "INT3", "cpu_method"),
        ("hot", [], "hot"),
        ("hot", {"2": [0]}, "hot.2"),
        ("hot", {"1": [0, 4]}, "hot.1"),
        ("hot", {"1": [-1, 0]}, "hot.1"),
        ("hot", {"1": [0, 0]}, "hot.1"),
        ("hot", {"1": [0, "2"]}, "hot.1"),
        ("hot", {"1": [0, 1.0]}, "hot.1"),
        ("hot_total", 3, "hot_total"),
        ("model.layers", [3, 1], "model.layers"),
        ("model.layers", [], "model.layers"),
        ("model.experts", 0, "model.experts"),
        ("model.top_k", 5, "model.top_k"),
        ("model.name", None, "model.name"),
        ("model.config_sha256", "abc", "model.config_sha256"),
        ("kv", None, "kv"),
        ("kv.dtype", "int8", "kv.dtype"),
        ("kv.tokens", 0, "kv.tokens"),
        ("kv.max_running_requests", 1.5, "kv.max_running_requests"),
        ("kt", {"threads": 0, "subpools": 1}, "kt.threads"),
    ],
)
def test_refuses_what_the_full_reader_refuses(tmp_path: Path, where: str, value: Any, field: str) -> None:
    content = document()
    *sections, name = where.split(".")
    target = content
    for section in sections:
        target = target[section]
    target[name] = value
    path = write(tmp_path, content)
    with pytest.raises(PlacementError) as caught:
        load(path)
    assert f"field {field} " in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInputError):
        read_placement(path)


@pytest.mark.parametrize("length", [0, 1, 40, 400])
def test_a_damaged_file_is_refused_on_one_line(tmp_path: Path, length: int) -> None:
    path = tmp_path / "placement.json"
    path.write_text(json.dumps(document())[:length])
    with pytest.raises(PlacementError, match="is damaged") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": NaN}', '{"schema": 1}', "[" * 100_000, "\xff"])
def test_other_files_are_refused_on_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "placement.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(PlacementError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_unknown_fields_of_a_later_minor_version_are_let_pass(tmp_path: Path) -> None:
    content = document(schema="placer.placement/1.7", later={"field": 1})
    assert load(write(tmp_path, content)).hot_total == 2


def run(code: str, *arguments: object, isolated: bool = False) -> str:
    """What Python without its site packages prints: nothing that is installed can be imported."""
    flags = ["-I", "-S"] if isolated else []
    command = [sys.executable, *flags, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_nothing_but_the_standard_library_is_imported() -> None:
    code = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]); import placer.runtime\n"
        "print(*sorted({n.partition('.')[0] for n in set(sys.modules) - before} - sys.stdlib_module_names))\n"
        "print(*sorted(n for n in sys.modules if n.partition('.')[0] == 'placer'))"
    )
    for isolated in (True, False):
        third_party, ours = run(code, ROOT, isolated=isolated).splitlines()
        assert third_party.split() == ["placer"]
        assert ours.split() == ["placer", "placer.errors", "placer.runtime", "placer.runtime.load"]


def test_the_file_works_when_a_runtime_carries_it_along(tmp_path: Path) -> None:
    (tmp_path / "carried.py").write_bytes((ROOT / "placer" / "runtime" / "load.py").read_bytes())
    code = "import sys; sys.path.insert(0, sys.argv[1]); import carried; print(carried.load(sys.argv[2]).hot_total)"
    assert run(code, tmp_path, write(tmp_path, document()), isolated=True).strip() == "2"


def test_a_large_plan_is_read_in_fifty_milliseconds(tmp_path: Path) -> None:
    layers, experts = list(range(3, 95)), 896
    hot = {layer: list(range(0, experts, 2)) for layer in layers}
    content = placement_dict(hot, layers=layers, experts=experts, top_k=8)
    content["sensitivity"] = {
        "expert_bytes_per_gpu": 1,
        "value_us": {str(layer): [0.123456] * experts for layer in layers},
    }
    path = write(tmp_path, copy.deepcopy(content))
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from placer.runtime import load\n"
        "def once():\n"
        "    began = time.process_time(); plan = load(sys.argv[2]); masks = plan.masks\n"
        "    assert sum(map(sum, masks.values())) == plan.hot_total == 92 * 448\n"
        "    return time.process_time() - began\n"
        "print(1000 * min(once() for _ in range(5)))"
    )
    assert float(run(code, ROOT, path, isolated=True)) < READING_MS


def test_every_refusal_to_read_says_what_to_do(tmp_path: Path) -> None:
    for path, says in (
        ("x\0y", "cannot read .*: check the path"),
        (str(tmp_path / "none.json"), "cannot read .*: check the path"),
        (str(tmp_path), "cannot read .*: check the path"),
        (
            str(write(tmp_path, document() | {"schema": "placer.placement/2"})),
            "'placer solve' of this version",
        ),
    ):
        with pytest.raises(PlacementError, match=says) as caught:
            load(path)
        assert "\0" not in str(caught.value)
