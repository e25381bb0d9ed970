"""The experts for the CPU: the right method, complete, cut for the plan's NUMA pools."""

from pathlib import Path
from typing import Any

import pytest
import torch
from placements import placement
from safetensors.torch import save_file
from test_preflight import CONFIG, only

from placer.placement import PlacementDocument
from placer.readiness.check import Check, Failure, Verdict
from placer.readiness.cpu_weights import check_cpu_weights

HOT = {1: [2, 0], 2: [], 3: [1, 3, 0, 2]}
H, INNER = 256, 128


def plan(method: str, subpools: int = 1) -> PlacementDocument:
    kt = {"threads": 16, "subpools": subpools}
    return placement(HOT, layers=[1, 2, 3], experts=4, cpu_method=method, kt=kt)


def checked(document: PlacementDocument, path: Path | str | None, config: Any = CONFIG) -> Check:
    return only(check_cpu_weights(document, config, None if path is None else str(path), "/m"))


def amx(
    folder: Path, *, bits: int = 4, nodes: int = 1, layers: tuple[int, ...] = (1, 2, 3), experts: int = 4
) -> Path:
    """Converted experts, merged, as kt_kernel/utils/loader.py reads them."""
    folder.mkdir()
    size = H * INNER * bits // 8 // nodes
    tensors = {
        f"blk.{layer}.ffn_{matrix}_exps.{expert}.numa.{node}.{kind}": torch.zeros(length, dtype=torch.uint8)
        for layer in layers
        for matrix in ("up", "gate", "down")
        for expert in range(experts)
        for node in range(nodes)
        for kind, length in (("weight", size), ("scale", 8))
    }
    save_file(tensors, folder / "model-00001-of-00001.safetensors")
    return folder


def amx_folders(folder: Path, *, bits: int = 4, nodes: int = 2, experts: int = 4) -> Path:
    """Converted experts as kt-kernel writes them before they are merged."""
    size = H * INNER * bits // 8 // nodes
    for layer in (1, 2, 3):
        for node in range(nodes):
            part = folder / f"_layer_{layer}" / f"_numa_{node}"
            part.mkdir(parents=True)
            for expert in range(experts):
                for matrix in ("up", "gate", "down"):
                    (part / f"INT{bits}_{matrix}_{expert}_{size}Byte_quant_.kt").write_bytes(bytes(size))
                    (part / f"INT{bits}_{matrix}_{expert}_8Byte_scale_.kt").write_bytes(bytes(8))
    return folder


def raw(
    folder: Path,
    *,
    group: int = 32,
    prefix: str = "model.",
    experts: int = 4,
    scales: torch.dtype = torch.bfloat16,
) -> Path:
    """A compressed-tensors INT4 checkpoint."""
    folder.mkdir()
    tensors = {}
    for layer in (1, 2, 3):
        for expert in range(experts):
            for matrix, (rows, columns) in {"up": (INNER, H), "gate": (INNER, H), "down": (H, INNER)}.items():
                name = f"{prefix}layers.{layer}.mlp.experts.{expert}.{matrix}_proj.weight"
                tensors[f"{name}_packed"] = torch.zeros(rows, columns // 8, dtype=torch.int32)
                tensors[f"{name}_scale"] = torch.zeros(rows, columns // group, dtype=scales)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(("method", "bits"), [("AMXINT4", 4), ("AMXINT8", 8)])
def test_converted_experts_of_the_method_and_numa_count_are_ready(
    tmp_path: Path, method: str, bits: int
) -> None:
    for nodes in (1, 2):
        folder = amx(tmp_path / f"amx-{nodes}", bits=bits, nodes=nodes)
        assert checked(plan(method, nodes), folder).verdict is Verdict.OK
        folder = amx_folders(tmp_path / f"kt-{nodes}", bits=bits, nodes=nodes)
        assert checked(plan(method, nodes), folder).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"nodes": 1}, "cut for 1 NUMA pool"),
        ({"nodes": 2, "bits": 8}, "8 bits a value"),
        ({"nodes": 2, "layers": (1, 3)}, "lacks 1 layer, the first is layer 2"),
        ({"nodes": 2, "experts": 3}, "layer 1 has 3 experts"),
    ],
)
def test_experts_of_another_conversion_are_refused_with_the_command_that_makes_them(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    check = checked(plan("AMXINT4", 2), amx(tmp_path / "amx", **changes))
    assert (check.verdict, check.failure) == (Verdict.FAIL, Failure.MISSING)
    assert found in check.found
    # A folder that exists is not written to: kt quant would take another name by itself.
    assert (
        f"`kt quant /m --method int4 --input-type fp8 --output {tmp_path}/amx-AMXINT4-NUMA2 "
        "--cpu-threads 16 --numa-nodes 2 --yes`" in check.do
    )


def test_missing_experts_are_made_where_they_are_expected(tmp_path: Path) -> None:
    check = checked(plan("AMXINT8", 1), tmp_path / "new")
    assert "does not exist" in check.found
    assert (
        f"--method int8 --input-type fp8 --output {tmp_path}/new --cpu-threads 16 --numa-nodes 1" in check.do
    )
    assert checked(plan("AMXINT8"), None).verdict is Verdict.UNKNOWN


def test_how_to_get_the_experts_is_said_for_each_method(tmp_path: Path) -> None:
    """`kt quant` makes AMX files alone; the wheel lacks its script, and an INT4 checkpoint is made by others."""
    quant = checked(plan("AMXINT4"), tmp_path / "new").do
    assert "kt-kernel/scripts of github.com/kvcache-ai/ktransformers" in quant
    assert "site-packages" in quant
    raw_do = checked(plan("RAWINT4"), tmp_path / "new").do
    assert "LLM Compressor" in raw_do
    assert "which `kt quant` does not make" in raw_do
    assert checked(plan("LLAMAFILE"), tmp_path / "new").do == "get the model as GGUF"


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_an_int4_checkpoint_is_ready_for_rawint4(tmp_path: Path, prefix: str) -> None:
    assert checked(plan("RAWINT4"), raw(tmp_path / "raw", prefix=prefix)).verdict is Verdict.OK


def test_other_groups_are_warned_of_and_other_scales_refused(tmp_path: Path) -> None:
    check = checked(plan("RAWINT4"), raw(tmp_path / "a", group=128))
    assert (check.verdict, "groups of 128" in check.found) == (Verdict.WARN, True)
    check = checked(plan("RAWINT4"), raw(tmp_path / "b", scales=torch.float16))
    assert (check.verdict, "F16" in check.found) == (Verdict.FAIL, True)


def test_experts_for_another_method_are_not_taken(tmp_path: Path) -> None:
    assert "no experts under names" in checked(plan("RAWINT4"), amx(tmp_path / "amx")).found
    assert "no experts under names" in checked(plan("AMXINT4"), raw(tmp_path / "raw")).found
    (tmp_path / "empty").mkdir()
    for method in ("RAWINT4", "AMXINT4"):
        assert checked(plan(method), tmp_path / "empty").verdict is Verdict.FAIL


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    file = amx(tmp_path / "amx") / "model-00001-of-00001.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    assert "cut short" in checked(plan("AMXINT4"), tmp_path / "amx").found


def test_sizes_are_not_judged_where_no_config_says_them(tmp_path: Path) -> None:
    assert checked(plan("AMXINT4"), amx(tmp_path / "amx", bits=8), None).verdict is Verdict.OK


def test_gguf_is_there_but_not_looked_into(tmp_path: Path) -> None:
    wide = CONFIG | {"moe_intermediate_size": 512}
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for path in (tmp_path, tmp_path / "model.gguf"):
        assert checked(plan("LLAMAFILE", 2), path, wide).verdict is Verdict.UNKNOWN
    # 512 is two blocks of 256: not for three pools; 128 is none.
    assert checked(plan("LLAMAFILE", 3), tmp_path, wide).verdict is Verdict.FAIL
    assert checked(plan("LLAMAFILE"), tmp_path, CONFIG).verdict is Verdict.FAIL
    (tmp_path / "model.gguf").unlink()
    assert "no .gguf file" in checked(plan("LLAMAFILE"), tmp_path, wide).found
