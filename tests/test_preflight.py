"""Preflight: what was found, what is needed, the verdict and the exit code, on machines made for each case."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kt_export import CONFIG, plan
from placements import placement_dict

from placer.answer.detail import Detail
from placer.answer.part import chosen_parts
from placer.answer.preflight import preflight_answer
from placer.hbm import LOAD_ORDER
from placer.placement import PlacementDocument
from placer.readiness.check import Check, Failure, Preflight, Verdict
from placer.readiness.checkpoint import check_checkpoint
from placer.readiness.cores import Cores, check_cores
from placer.readiness.disk import check_disk
from placer.readiness.gpu_memory import Gpu, Gpus, check_gpus, gpus
from placer.readiness.host_memory import HostMemory, NodeMemory, check_host_memory, host_memory
from placer.units import GIB, MIB

Run = Callable[..., tuple[int, str, str]]
HOT = {1: [2, 0], 2: [], 3: [1, 3, 0, 2]}


def verdicts(checks: Any) -> dict[str, str]:
    return {check.name: check.verdict.value for check in checks}


def only(checks: Any) -> Check:
    (check,) = checks
    assert isinstance(check, Check)
    return check


# --- the verdict over all ---------------------------------------------------------------------------------


def check(verdict: Verdict, failure: Failure = Failure.UNFIT) -> Check:
    return Check("x", verdict, "found", "needed", "how", "do", failure)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([], 0),
        ([check(Verdict.OK), check(Verdict.WARN), check(Verdict.UNKNOWN)], 0),
        ([check(Verdict.OK, Failure.MISSING), check(Verdict.FAIL)], 3),
        ([check(Verdict.FAIL), check(Verdict.FAIL, Failure.MISSING)], 4),
        ([check(Verdict.WARN, Failure.MISSING)], 0),
    ],
)
def test_what_is_missing_comes_before_what_does_not_fit(checks: list[Check], code: int) -> None:
    result = Preflight("sglang-kt 0.7.2", tuple(checks))
    assert result.exit_code == code
    failed = [each.name for each in checks if each.verdict is Verdict.FAIL]
    head = chosen_parts(preflight_answer(result), Detail.QUIET)
    assert len(head) == 1
    assert not failed or f"{len(failed)} fail ({', '.join(failed)})" in str(head[0])
    assert result.document()["ready"] is (code == 0)


# --- host memory ------------------------------------------------------------------------------------------


def memory_plan(total: int, subpools: int = 1) -> PlacementDocument:
    return plan(
        host={"ledger": {"experts": total - 100, "scratch": 60, "staging": 40}},
        kt={"threads": 2, "subpools": subpools},
    )


def test_all_experts_must_fit_the_host_hot_ones_too() -> None:
    for available, verdict in ((1000, "ok"), (999, "fail")):
        checks = list(check_host_memory(memory_plan(1000), HostMemory(available, None, ())))
        assert verdicts(checks) == {"host memory": verdict}


def test_the_limit_of_a_container_counts_where_it_is_lower() -> None:
    check = only(check_host_memory(memory_plan(1000), HostMemory(10**6, 900, ())))
    assert (check.verdict, check.how) == (Verdict.FAIL, "the limit of this cgroup (memory.max)")
    assert only(check_host_memory(memory_plan(1000), HostMemory(1000, 10**6, ()))).verdict is Verdict.OK


def test_each_numa_node_holds_its_part() -> None:
    # 900 of experts and 60 of scratch over two pools: 480 each.
    for second, verdict in ((480, "ok"), (479, "warn")):
        nodes = (NodeMemory(0, 5000), NodeMemory(1, second))
        checks = check_host_memory(memory_plan(1000, subpools=2), HostMemory(10**6, None, nodes))
        assert verdicts(checks)["host memory of a NUMA node"] == verdict


def test_memory_is_read_as_linux_tells_it(tmp_path: Path) -> None:
    (tmp_path / "cg").mkdir()
    (tmp_path / "cg" / "memory.max").write_text("1000\n")
    (tmp_path / "cg" / "memory.current").write_text("700\n")
    (tmp_path / "cg" / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    node = tmp_path / "nodes" / "node1"
    node.mkdir(parents=True)
    (node / "meminfo").write_text("Node 1 MemTotal: 9 kB\nNode 1 MemFree: 5 kB\nNode 1 FilePages: 2 kB\n")
    found = host_memory(tmp_path / "nodes", tmp_path / "cg")
    assert found.cgroup_bytes == 450  # 1000 - 700 + 150 of page cache
    assert found.nodes == (NodeMemory(1, 7 * 1024),)
    assert found.available_bytes > 0
    (tmp_path / "cg" / "memory.max").write_text("max\n")
    assert host_memory(tmp_path / "nodes", tmp_path / "cg").cgroup_bytes is None


# --- disk -------------------------------------------------------------------------------------------------


def test_disk_is_needed_for_experts_that_are_still_to_be_made(tmp_path: Path) -> None:
    huge = plan(host={"ledger": {"experts": 10**18}})
    place = str(tmp_path / "not" / "there" / "yet")
    assert only(check_disk(huge, place, present=False)).verdict is Verdict.FAIL
    assert only(check_disk(huge, place, present=True)).verdict is Verdict.OK
    assert only(check_disk(plan(), place, present=False)).found.endswith(f"free at {tmp_path}")
    assert only(check_disk(plan(), None, present=False)).verdict is Verdict.UNKNOWN


# --- cores ------------------------------------------------------------------------------------------------


def cores(usable: int = 16, nodes: tuple[tuple[int, int], ...] = ((0, 8), (1, 8)), **changes: Any) -> Cores:
    return Cores(**{"cpu": "a CPU", "isa": ("avx2", "avx512f"), "usable": usable, "nodes": nodes, **changes})


def test_threads_leave_cores_to_gpu_workers() -> None:
    document = plan(kt={"threads": 10, "subpools": 2}, tp=4)
    # The pool spins with eleven threads; four workers launch kernels.
    for usable, verdict in ((15, "ok"), (14, "warn"), (11, "warn"), (10, "fail")):
        assert verdicts(check_cores(document, cores(usable)))["CPU cores"] == verdict
    check = next(check_cores(document, cores(12)))
    assert "--threads 7" in check.do  # 12 - 1 - 4


@pytest.mark.parametrize(
    ("threads", "subpools", "nodes", "verdict"),
    [
        (10, 2, ((0, 8), (1, 8)), "ok"),
        (10, 1, ((0, 16),), "ok"),
        (10, 2, ((0, 16),), "fail"),
        (10, 2, ((0, 8), (2, 8)), "fail"),
        (10, 2, ((0, 12), (1, 4)), "warn"),
        (8, 1, ((0, 8), (1, 8)), "warn"),
        (10, 2, (), "unknown"),
    ],
)
def test_pool_i_is_bound_to_numa_node_i(
    threads: int, subpools: int, nodes: tuple[tuple[int, int], ...], verdict: str
) -> None:
    document = plan(kt={"threads": threads, "subpools": subpools})
    assert verdicts(check_cores(document, cores(nodes=nodes)))["NUMA nodes"] == verdict


def test_the_cpu_is_the_profiled_one_and_runs_the_method() -> None:
    document = plan(cpu_method="AMXINT4", kt={"threads": 2, "subpools": 1})
    found = verdicts(check_cores(document, cores()))
    assert (found["CPU instructions"], found["CPU model"]) == ("ok", "ok")
    found = verdicts(check_cores(document, cores(isa=("avx2",), cpu="another CPU")))
    assert (found["CPU instructions"], found["CPU model"]) == ("fail", "warn")
    unnamed = plan(kt={"threads": 2, "subpools": 1}, hardware={"provenance": "measured"})
    assert verdicts(check_cores(unnamed, cores()))["CPU model"] == "unknown"


def test_a_machine_with_too_few_cores_for_one_thread_is_told_so() -> None:
    # One thread and the pool's own, beside one GPU worker: no smaller --threads helps.
    check = next(check_cores(plan(kt={"threads": 1, "subpools": 1}), cores(1)))
    assert check.verdict is Verdict.FAIL
    assert check.needed.startswith("3: 2 for the CPU pool, which spin, 1 for GPU workers;")
    assert check.do.startswith("take a machine with at least 3 cores: the pool spins")
    assert "one thread more" in check.do
    # Three threads and the pool's own beside the worker are five cores; one thread would do with three.
    check = next(check_cores(plan(kt={"threads": 3, "subpools": 1}), cores(1)))
    assert check.do.startswith(
        "take a machine with at least 5 cores for this plan, or 3 to profile with --threads 1 and solve again: "
    )


def test_a_placement_without_threads_says_so() -> None:
    found = verdicts(check_cores(plan(kt=None), cores()))
    assert found["CPU cores"] == "unknown"
    # What needs no number of threads is checked all the same.
    assert {"CPU instructions", "CPU model"} <= set(found)


def test_checks_that_need_a_gpu_are_unknown_where_there_is_none() -> None:
    found = {each.name: each for each in check_gpus(plan(), Gpus((), "nvidia-smi is not here"))}
    assert found["GPUs"].do == "run this on the server: a plan needs one GPU at least"
    assert {found[name].verdict for name in ("free GPU memory", "memory fraction")} == {Verdict.UNKNOWN}
    few = {
        each.name: each
        for each in check_gpus(gpu_plan(attention=GIB, fraction=0.9, tp=4), Gpus((a_gpu(79),)))
    }
    assert few["GPUs"].do == "run this on the server, or solve again with --tp of at most 1"


# --- GPUs -------------------------------------------------------------------------------------------------


def gpu_plan(
    *, attention: int, loss: int = GIB, kv: int = 2 * GIB, fraction: float | None, tp: int = 1
) -> Any:
    """A placement whose ledger has every line; 1 GiB is kept beside weights and KV."""
    document = placement_dict(HOT, layers=[1, 2, 3], experts=4)
    lines = dict.fromkeys(LOAD_ORDER, 0) | {
        "free_memory_loss": loss,
        "attention": attention,
        "hot_experts": 60,
        "activations": GIB,
        "kv_pool": kv,
        "unused": 10,
    }
    document["hbm"] = {"budget_bytes_per_gpu": sum(lines.values()), "ledger": lines}
    document["kv"] |= {"bytes_per_token_per_gpu": 1, "tokens": kv - 1}
    document |= {"tp": tp, "mem_fraction_static": fraction}
    return PlacementDocument.model_validate(document)


def a_gpu(free: float, total: float = 80.0) -> Gpu:
    return Gpu("H100", int(total * GIB), int(free * GIB))


def test_the_fullest_gpu_must_hold_the_ledger() -> None:
    # 1 lost, 60 of attention, 1 of activations, 2 of KV: 64 GiB and 60 bytes.
    document = gpu_plan(attention=60 * GIB, fraction=0.98, tp=2)
    for second, verdict in ((65, "ok"), (63.9, "warn"), (63, "fail")):
        found = verdicts(check_gpus(document, Gpus((a_gpu(79), a_gpu(second), a_gpu(1)))))
        assert (found["GPUs"], found["free GPU memory"]) == ("ok", verdict)


def test_too_few_gpus_are_a_missing_component() -> None:
    check = next(check_gpus(gpu_plan(attention=60 * GIB, fraction=0.98, tp=4), Gpus((a_gpu(79), a_gpu(79)))))
    assert (check.verdict, check.failure) == (Verdict.FAIL, Failure.MISSING)
    check = next(check_gpus(plan(), Gpus((), "nvidia-smi is not here")))
    assert "nvidia-smi is not here" in check.found


def test_the_memory_fraction_must_leave_room_for_the_pool_at_what_is_free_now() -> None:
    # Weights and KV are 62 GiB: 62 / 79 = 0.785 of 80 GiB free less 1 lost, 62 / 69 = 0.899 of 70 less 1.
    document = gpu_plan(attention=60 * GIB, fraction=0.8)
    assert verdicts(check_gpus(document, Gpus((a_gpu(80),))))["memory fraction"] == "ok"
    checks = {each.name: each for each in check_gpus(document, Gpus((a_gpu(70),)))}
    assert checks["memory fraction"].verdict is Verdict.WARN
    assert "--mem-fraction-static 0.899" in checks["memory fraction"].do
    checks = {each.name: each for each in check_gpus(document, Gpus((a_gpu(63),)))}
    assert "more than is free" in checks["memory fraction"].do
    # A fraction that leaves less than the 1 GiB of activations: 78 / 79 is 0.987.
    checks = {
        each.name: each
        for each in check_gpus(gpu_plan(attention=60 * GIB, fraction=0.99), Gpus((a_gpu(80),)))
    }
    assert "--mem-fraction-static 0.785" in checks["memory fraction"].do
    # Hardly anything is free.
    for free in (1, 0.5):
        checks = {each.name: each for each in check_gpus(document, Gpus((a_gpu(free),)))}
        assert checks["memory fraction"].verdict is Verdict.WARN


def test_an_unknown_fraction_and_a_smaller_gpu_are_named() -> None:
    assert (
        verdicts(check_gpus(plan(mem_fraction_static=None), Gpus((a_gpu(80),))))["memory fraction"]
        == "unknown"
    )
    hardware = {
        "gpu": {"name": "h200", "usable_bytes": 140 * GIB, "provenance": "datasheet"},
        "cpu": {"name": "a CPU", "provenance": "measured"},
    }
    assert verdicts(check_gpus(plan(hardware=hardware), Gpus((a_gpu(80),))))["GPU model"] == "warn"


LISTING = "0, GPU-aaa, NVIDIA H100, 81559, 81000\n1, GPU-bbb, NVIDIA H100, 81559, 500\n"


def nvidia_smi(folder: Path, text: str = LISTING, code: int = 0) -> str:
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\ncat << 'END'\n{text}END\nexit {code}\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("visible", "free"),
    [
        (None, [81000, 500]),
        ("1", [500]),
        ("1,0", [500, 81000]),
        ("GPU-b", [500]),
        ("0,9,1", [81000]),
        ("", []),
    ],
)
def test_gpus_are_those_that_cuda_would_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, free: list[int]
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = gpus(nvidia_smi(tmp_path))
    assert [gpu.free_bytes // MIB for gpu in found.seen] == free
    assert bool(found.problem) is not bool(free)


def test_a_driver_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "is not here" in gpus(str(tmp_path / "none")).problem
    assert "couldn't communicate" in gpus(nvidia_smi(tmp_path, "couldn't communicate\n", 9)).problem
    assert "lists no GPU" in gpus(nvidia_smi(tmp_path, "0, GPU-a, Card, [N/A], [N/A]\n")).problem


# --- the checkpoint ---------------------------------------------------------------------------------------


def checkpoint(folder: Path, *, cut: int = 0, **changes: Any) -> str:
    from safetensors.torch import save_file
    from torch import zeros

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    save_file({"model.norm.weight": zeros(256)}, folder / "model.safetensors")
    if cut:
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:-cut])
    return str(folder)


def test_a_whole_checkpoint_of_the_model_is_ready(tmp_path: Path) -> None:
    check = only(check_checkpoint(plan(), CONFIG, checkpoint(tmp_path / "m")))
    assert check.verdict is Verdict.OK
    assert check.found.startswith("1,024 B in")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"num_experts": 8}, "num_experts is 8, not 4"),
        ({"quantization_config": None}, "quant_method None"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weight_block_size None"),
        ({"cut": 4}, "cut short"),
    ],
)
def test_another_checkpoint_or_half_of_one_is_a_missing_component(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    check = only(check_checkpoint(plan(), CONFIG, checkpoint(tmp_path / "m", **changes)))
    assert (check.verdict, check.failure) == (Verdict.FAIL, Failure.MISSING)
    assert found in check.found
    assert check.do


def test_no_checkpoint_is_named_and_no_path_is_unknown(tmp_path: Path) -> None:
    assert only(check_checkpoint(plan(), CONFIG, None)).verdict is Verdict.UNKNOWN
    assert "has no config.json" in only(check_checkpoint(plan(), CONFIG, str(tmp_path))).found
    folder = Path(checkpoint(tmp_path / "m"))
    (folder / "model.safetensors").unlink()
    assert "no safetensors files" in only(check_checkpoint(plan(), CONFIG, str(folder))).found
    (folder / "config.json").write_text("{")
    assert "not valid JSON" in only(check_checkpoint(plan(), CONFIG, str(folder))).found


# --- the command ------------------------------------------------------------------------------------------


def test_the_command_prints_every_check_and_exits_by_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    nvidia_smi(tmp_path)
    document = placement_dict(HOT, layers=[1, 2, 3], experts=4)
    (tmp_path / "placement.json").write_text(json.dumps(document))
    arguments = ["preflight", tmp_path / "placement.json", "--python", sys.executable]
    code, out, err = run(*arguments)
    # sglang-kt is not in the environment of the tests.
    assert (code, out) == (4, "")
    assert err.startswith("not ready for sglang-kt 0.7.2: ")
    assert "fail: sglang-kt: not installed" in err
    assert "unknown: checkpoint: no --model-path" in err
    code, out, _ = run(*arguments, "--json")
    assert code == 4
    printed = json.loads(out)
    assert (printed["ready"], printed["exit_code"], printed["runtime"]) == (False, 4, "sglang-kt 0.7.2")
    assert {"name", "verdict", "found", "needed", "how", "do"} == set(printed["checks"][0])
    assert all(each["do"] for each in printed["checks"] if each["verdict"] != "ok")
    assert run("preflight", tmp_path / "placement.json", "--runtime", "vllm")[0] == 2
    assert run("preflight", tmp_path / "none.json")[0] == 2
