"""placement.json: what is written is read back, what is wrong is named."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_documents import check_document
from placements import placement, placement_dict

from placer.errors import BadInputError
from placer.placement import (
    PlacementDocument,
    read_placement,
    render_placement,
    write_placement,
)

Document = dict[str, Any]


def tiny() -> Document:
    return placement_dict({1: [2, 0], 3: [1]}, layers=[1, 3], experts=4)


def write_json(path: Path, document: Document) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    document = PlacementDocument.model_validate(tiny())
    write_placement(document, tmp_path / "placement.json")
    assert read_placement(tmp_path / "placement.json") == document


def test_the_text_is_the_document_in_the_order_of_the_schema() -> None:
    text = render_placement(PlacementDocument.model_validate(tiny()))
    assert list(json.loads(text))[:4] == ["schema", "placer_version", "created", "model"]
    assert '"3": [1]' in text
    assert '"1": [2, 0],\n' in text  # a hot list stays on one line
    assert text == render_placement(PlacementDocument.model_validate(json.loads(text)))


def test_optional_sections_that_were_not_given_are_not_written() -> None:
    document = tiny()
    del document["kt"], document["mem_fraction_static"]
    written = json.loads(render_placement(PlacementDocument.model_validate(document)))
    assert not {"kt", "mem_fraction_static", "trace", "profile_sha256"} & set(written)


def test_hot_mask_has_a_row_per_moe_layer() -> None:
    mask = placement({3: [1, 3]}, layers=[1, 3], experts=4).hot_mask()
    assert mask.dtype == np.bool_
    assert mask.tolist() == [[False] * 4, [False, True, False, True]]


def test_unknown_keys_of_a_later_minor_version_survive(tmp_path: Path) -> None:
    document = tiny() | {"schema": "placer.placement/1.2", "energy": {"joules": 3.5}}
    document["kv"]["page_tokens"] = 64
    read = read_placement(write_json(tmp_path / "p.json", document))
    again = json.loads(render_placement(read))
    assert again["energy"] == {"joules": 3.5}
    assert again["kv"]["page_tokens"] == 64
    assert again["schema"] == "placer.placement/1.2"


@pytest.mark.parametrize("schema", ["placer.placement/2", "placer.placement/10", "placer.placement/2.1"])
def test_another_major_version_is_refused(tmp_path: Path, schema: str) -> None:
    path = write_json(tmp_path / "p.json", tiny() | {"schema": schema})
    with pytest.raises(BadInputError, match=r"schema is .*; this version of placer reads"):
        read_placement(path)


@pytest.mark.parametrize(
    "schema", ["placer.placements/1", "placer.placement/one", None, 1, ["placer.placement/1"]]
)
def test_another_kind_of_file_is_refused(tmp_path: Path, schema: object) -> None:
    path = write_json(tmp_path / "p.json", tiny() | {"schema": schema})
    with pytest.raises(BadInputError, match="field schema is"):
        read_placement(path)


def remove(*path: str) -> Callable[[Document], None]:
    def edit(document: Document) -> None:
        *parents, last = path
        for name in parents:
            document = document[name]
        del document[last]

    return edit


def put(value: object, *path: str) -> Callable[[Document], None]:
    def edit(document: Document) -> None:
        *parents, last = path
        for name in parents:
            document = document[name]
        document[last] = value

    return edit


FAULTS: dict[str, tuple[Callable[[Document], None], str]] = {
    "missing field": (remove("kv", "tokens"), "kv.tokens"),
    "missing section": (remove("solver"), "solver"),
    "text for a number": (put("8", "kv", "max_running_requests"), "kv.max_running_requests"),
    "fraction of a token": (put(0.5, "kv", "tokens"), "kv.tokens"),
    "truth for a number": (put(True, "tp"), "tp"),
    "no GPU": (put(0, "tp"), "tp"),
    "share above one": (put(1.5, "heldout", "coverage"), "heldout.coverage"),
    "negative time": (put(-1.0, "predicted", "decode_step_ms"), "predicted.decode_step_ms"),
    "hash": (put("abc", "model", "config_sha256"), "model.config_sha256"),
    "KV precision": (put("int8", "kv", "dtype"), "kv.dtype"),
    "CPU method": (put("AVX", "cpu_method"), "cpu_method"),
    "layers out of order": (put([3, 1], "model", "layers"), "model.layers"),
    "layer twice": (put([1, 1, 3], "model", "layers"), "model.layers"),
    "no layers": (put([], "model", "layers"), "model.layers"),
    "top-k": (put(5, "model", "top_k"), "model.top_k"),
    "expert out of range": (put([0, 4], "hot", "1"), "hot.1: expert 4 is not in 0 to 3"),
    "negative expert": (put([-1, 0], "hot", "1"), "hot.1: expert -1"),
    "expert twice": (put([2, 2], "hot", "1"), "hot.1: names an expert twice"),
    "dense layer": (put([0], "hot", "2"), "hot.2: is not one of model.layers"),
    "layer as written otherwise": (put([0], "hot", "01"), "hot.01"),
    "total": (put(4, "hot_total"), "hot_total: is 4, but hot names 3"),
    "ledger does not close": (put(11, "hbm", "ledger", "unused"), "hbm.ledger: lines sum to 327,815 bytes"),
    "ledger below zero": (
        put({"hot_experts": 110, "unused": -10}, "hbm", "ledger"),
        "hbm.ledger.unused: -10 bytes is negative",
    ),
    "host below zero": (put(-1, "host", "ledger", "staging"), "host.ledger.staging"),
    "layer times": (put([1.0], "predicted", "per_layer_ms"), "predicted.per_layer_ms: has 1 entries for 2"),
    "baseline layer times": (
        put([1.0, -2.0], "baselines", "uniform", "per_layer_ms"),
        "baselines.uniform.per_layer",
    ),
    "hardware of unknown origin": (
        put({"name": "h100"}, "hardware", "gpu"),
        "hardware.gpu: says no provenance",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_by_its_field(tmp_path: Path, name: str) -> None:
    edit, expected = FAULTS[name]
    document = tiny()
    edit(document)
    with pytest.raises(BadInputError) as caught:
        read_placement(write_json(tmp_path / "p.json", document))
    assert f"field {expected}" in caught.value.what
    assert "\n" not in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, number: str) -> None:
    text = json.dumps(tiny()).replace('"decode_step_ms": 20.0', f'"decode_step_ms": {number}', 1)
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(BadInputError, match="finite"):
        read_placement(tmp_path / "p.json")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": "placer.placement/1"}']
)
def test_files_that_are_no_placement_end_in_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(BadInputError):
        read_placement(tmp_path / "p.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.json"):
        read_placement(tmp_path / "nowhere.json")


def test_a_null_is_written_only_with_its_reason(tmp_path: Path) -> None:
    document = tiny()
    document["solver"]["bound_us"] = None
    with pytest.raises(BadInputError, match=r"solver\.bound_us is null without a reason"):
        write_placement(PlacementDocument.model_validate(document), tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()
    for path in ("solver.bound_us", "solver"):
        document["null_reasons"] = tiny()["null_reasons"] | {path: "this solver proves nothing"}
        write_placement(PlacementDocument.model_validate(document), tmp_path / "p.json")
    document["null_reasons"] = tiny()["null_reasons"] | {"solver.bound": "not this field"}
    with pytest.raises(BadInputError, match="without a reason"):
        write_placement(PlacementDocument.model_validate(document), tmp_path / "p.json")


def test_a_carried_model_config_keeps_its_nulls() -> None:
    document = tiny()
    document["model"]["config"] = {"num_hidden_layers": 4, "rope_scaling": None}
    written = json.loads(render_placement(PlacementDocument.model_validate(document)))
    assert written["model"]["config"] == {"num_hidden_layers": 4, "rope_scaling": None}


def test_a_number_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    document = tiny()
    document["hardware"]["gpu"]["bandwidth_gb_s"] = math.inf
    with pytest.raises(BadInputError, match="not finite"):
        write_placement(PlacementDocument.model_validate(document), tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_a_placement_belongs_to_one_shape_of_model() -> None:
    document = PlacementDocument.model_validate(tiny())
    document.check_model(SimpleNamespace(name="same", moe_layers=(1, 3), experts=4, top_k=2))  # type: ignore[arg-type]
    other = SimpleNamespace(name="other", moe_layers=(0, 1, 2, 3), experts=4, top_k=2)
    with pytest.raises(BadInputError, match=r"made for tiny-moe .* not for other"):
        document.check_model(other)  # type: ignore[arg-type]


def test_a_placement_keeps_its_schema() -> None:
    check_document(["solve"], json.dumps(tiny()))


@given(st.data())
def test_any_hot_set_survives_the_file(data: st.DataObject) -> None:
    layers = sorted(data.draw(st.sets(st.integers(0, 90), min_size=1, max_size=5)))
    experts = data.draw(st.integers(2, 12))
    ids = st.lists(st.integers(0, experts - 1), unique=True)
    hot = {layer: data.draw(ids) for layer in layers if data.draw(st.booleans())}
    before = placement(hot, layers=layers, experts=experts)
    after = PlacementDocument.model_validate_json(render_placement(before), strict=True)
    assert np.array_equal(before.hot_mask(), after.hot_mask())
    assert after.hot_mask().sum() == after.hot_total
    assert {int(layer): list(ids) for layer, ids in after.hot.items()} == hot
