"""What a server runs, by its log and by its dumped mask, against the plan."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kt_export import CONFIG
from kt_server_logs import server_log
from placements import placement, placement_dict
from shared_data import SHARED_DATA, needs_shared_data

from placer.api.export_check import export_check
from placer.errors import BadInputError
from placer.exports.applied import Applied
from placer.exports.kt_applied import check_dump, check_log
from placer.exports.kt_flags import left_unset
from placer.exports.kt_server_log import read_server_log
from placer.hbm import LOAD_ORDER
from placer.placement import PlacementDocument
from placer.units import GIB

Run = Callable[..., tuple[int, str, str]]
HOT = {1: [2, 0], 2: [], 3: [1, 3, 0, 2]}
PLAN = placement(HOT, layers=[1, 2, 3], experts=4)


def checked(folder: Path, text: str, plan: PlacementDocument = PLAN) -> Applied:
    (folder / "server.log").write_text(text)
    return check_log(plan, folder / "server.log")


def differences(applied: Applied) -> dict[str, tuple[str, str | None]]:
    return {row.what: (row.planned, row.found) for row in applied.rows if row.same is False}


# --- the log ----------------------------------------------------------------------------------------------


def test_a_log_of_the_plan_agrees(tmp_path: Path) -> None:
    applied = checked(tmp_path, server_log(PLAN))
    assert differences(applied) == {}
    assert applied.same
    assert {row.what: row.found for row in applied.rows if row.what.startswith("layer")} == {
        "layer 1: hot experts": "2",
        "layer 2: hot experts": "0",
        "layer 3: hot experts": "4",
    }


def test_a_log_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(server_log(PLAN, weights_gib=3.25, cache_gib=1.5))
    log = read_server_log(tmp_path / "server.log")
    assert (log.hot, log.strategy) == ({1: 2, 2: 0, 3: 4}, "frequency")
    assert (log.kv_tokens, log.running) == (5120, 8)
    assert log.weights_bytes == {0: int(3.25 * GIB)}
    assert log.cache_bytes == {0: int(1.5 * GIB)}
    # A path that looks like an argument is none.
    assert log.arguments["tp_size"] == "1"
    assert log.arguments["cuda_graph_bs"] == "[1, 2, 4, 8]"


@pytest.mark.parametrize(
    ("changes", "what", "planned", "found"),
    [
        ({"hot": {1: 1}}, "layer 1: hot experts", "2", "1"),
        ({"hot": {0: 4}}, "layer 0: hot experts", "0 (a dense layer)", "4"),
        ({"without": ("layer 3 (MoE)",)}, "layer 3: hot experts", "4", None),
        ({"without": ("KT GPU experts: ",)}, "hot experts", "6 in 3 layers", None),
        ({"tokens": 4096}, "KV tokens", "5,120", "4,096"),
        ({"tokens": 6144}, "KV tokens", "5,120", "6,144"),
        ({"without": ("max_total_num_tokens",)}, "KV tokens", "5,120", None),
        ({"running": 4}, "running requests", "8", "4"),
        ({"cache_gib": 1.0}, "memory of the KV pool, per GPU", "0.3 MiB", "1.00 GiB"),
        ({"kt_method": "'AMXINT4'"}, "--kt-method", "RAWINT4", "AMXINT4"),
        ({"kt_cpuinfer": 16}, "--kt-cpuinfer", "32", "16"),
        ({"kt_threadpool_count": 1}, "--kt-threadpool-count", "2", "1"),
        ({"tp_size": 2}, "--tp-size", "1", "2"),
        ({"ep_size": 2}, "--ep-size", "1", "2"),
        ({"chunked_prefill_size": -1}, "--chunked-prefill-size", "2048", "-1"),
        ({"cuda_graph_max_bs": 4}, "--cuda-graph-max-bs", "8", "4"),
        ({"kv_cache_dtype": "'fp8_e4m3'"}, "--kv-cache-dtype", "bf16", "fp8_e4m3"),
        (
            {"kt_expert_placement_strategy": "'uniform'"},
            "--kt-expert-placement-strategy",
            "frequency",
            "uniform",
        ),
        ({"kt_gpu_prefill_token_threshold": 4096}, "--kt-gpu-prefill-token-threshold", "None", "4096"),
        ({"kt_enable_dynamic_expert_update": True}, "--kt-enable-dynamic-expert-update", "None", "True"),
        ({"kt_max_deferred_experts_per_token": 2}, "--kt-max-deferred-experts-per-token", "None", "2"),
        ({"speculative_algorithm": "'EAGLE'"}, "--speculative-algorithm", "None", "EAGLE"),
        ({"enable_eplb": True}, "--enable-eplb", "None", "True"),
        ({"enable_mixed_chunk": True}, "--enable-mixed-chunk", "None", "True"),
        ({"enable_dp_attention": True}, "--enable-dp-attention", "None", "True"),
        ({"cpu_offload_gb": 10}, "--cpu-offload-gb", "None", "10"),
        ({"moe_a2a_backend": "'deepep'"}, "--moe-a2a-backend", "None", "deepep"),
        ({"kt_num_gpu_experts": 3}, "--kt-num-gpu-experts", "None", "3"),
        ({"disable_cuda_graph": True}, "--disable-cuda-graph", "None", "True"),
        ({"quantization": "'awq'"}, "--quantization", "fp8", "awq"),
        ({"cuda_graph_bs": [1, 2, 4]}, "--cuda-graph-bs", "[1, 2, 4, 8]", "[1, 2, 4]"),
        ({"max_total_tokens": 99}, "--max-total-tokens", "5120", "99"),
    ],
)
def test_anything_else_is_named(
    tmp_path: Path, changes: dict[str, Any], what: str, planned: str, found: str | None
) -> None:
    applied = checked(tmp_path, server_log(PLAN, **changes))
    assert differences(applied)[what] == (planned, found)
    assert all(row.do for row in applied.rows if row.same is False)


def test_every_flag_that_undoes_the_plan_is_compared_and_its_default_agrees(tmp_path: Path) -> None:
    defaults = {name.replace("-", "_"): None for name in left_unset(PLAN)}
    defaults |= {"moe_a2a_backend": "'none'", "cpu_offload_gb": 0, "enable_eplb": False}
    applied = checked(tmp_path, server_log(PLAN, **defaults))
    assert applied.same
    assert {f"--{name}" for name in left_unset(PLAN)} <= {row.what for row in applied.rows}


def test_flags_that_follow_from_the_model_are_compared_where_the_plan_carries_its_config(
    tmp_path: Path,
) -> None:
    plan = PlacementDocument.model_validate(
        PLAN.model_dump(by_alias=True)
        | {
            "model": PLAN.model.model_dump() | {"config": CONFIG},
            "kv": PLAN.kv.model_dump() | {"page_tokens": 64},
        }
    )
    # Three layers of four experts, six of them hot: (6 + 1/2) / 12.
    planned = {"page_size": 64, "kt_gpu_experts_ratio": round(6.5 / 12, 9), "context_length": 5120}
    assert checked(tmp_path, server_log(plan, **planned), plan).same
    for name, other in (("page_size", 1), ("kt_gpu_experts_ratio", 0.9), ("context_length", 99)):
        found = differences(checked(tmp_path, server_log(plan, **planned | {name: other}), plan))
        assert found == {f"--{name.replace('_', '-')}": (str(planned[name]), str(other))}


def test_colours_do_not_hide_a_difference(tmp_path: Path) -> None:
    lines = server_log(PLAN, enable_eplb=True).splitlines()
    coloured = "".join(f"\x1b[1;32m{line}\x1b[0m\n" for line in lines)
    assert "--enable-eplb" in differences(checked(tmp_path, coloured))


@pytest.mark.parametrize("damage", ["without", "cut"])
def test_arguments_that_cannot_be_read_are_said_not_to_be_compared(tmp_path: Path, damage: str) -> None:
    first, *rest = server_log(PLAN).splitlines()
    text = "\n".join([*([first[:90]] if damage == "cut" else []), *rest])
    (row,) = [row for row in checked(tmp_path, text).rows if row.what == "arguments"]
    assert (row.same, row.found) == (None, None)
    assert "server_args" in row.do
    assert "tee server.log" in row.do


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (
            "Using frequency-based strategy WITHOUT activation frequency data (uniform distribution fallback)",
            "no rank",
        ),
        ("Could not determine num_layers or num_experts from model config.", "KT is off"),
        ("Either kt_num_gpu_experts or kt_gpu_experts_ratio is required but not set.", "KT is off"),
        ("DSV4 side-effect import failed: sglang.srt.layers.moe.kt_ep_wrapper -> No module", "KT is off"),
        (
            "Ignore import error when loading sglang.srt.models.deepseek_v4: No module named 'deep_gemm'",
            "KT is off",
        ),
    ],
)
def test_warnings_after_which_the_plan_does_not_run_are_differences(
    tmp_path: Path, line: str, meaning: str
) -> None:
    found = differences(checked(tmp_path, server_log(PLAN, extra=(f"[2026-11-29 12:00:06 TP0] {line}",))))
    assert meaning in str(found["warnings of the server"][1])


def test_a_pool_that_found_no_room_says_how_much_it_found(tmp_path: Path) -> None:
    warning = "[12:01:00] max_total_tokens=5120 is larger than the profiled value 4099. Use the profiled value instead."
    applied = checked(tmp_path, server_log(PLAN, tokens=4096, extra=(warning,)))
    row = next(row for row in applied.rows if row.what == "KV tokens")
    assert "found room for 4,099 tokens" in row.do


def test_slots_for_recurrent_states_are_compared_where_the_model_has_them(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"kv": PLAN.kv.model_copy(update={"max_mamba_cache_size": 24})})
    line = "[x TP0] Mamba Cache is allocated. max_mamba_cache_size: {}, conv_state size: 0.10GB, ssm_state size: 1.00GB"
    assert checked(tmp_path, server_log(plan, extra=(line.format(24),)), plan).same
    found = differences(checked(tmp_path, server_log(plan, extra=(line.format(8),)), plan))
    assert found == {"slots for recurrent states": ("24", "8")}


def ledger_plan(weights_bytes: int) -> PlacementDocument:
    """The small plan with a ledger of every line, ``weights_bytes`` of which are weights."""
    document = placement_dict(HOT, layers=[1, 2, 3], experts=4)
    lines = dict.fromkeys(LOAD_ORDER, 0) | {
        "attention": weights_bytes - 60,
        "hot_experts": 60,
        "kv_pool": 5121 * 64,
        "unused": 10,
    }
    document["hbm"] = {"budget_bytes_per_gpu": sum(lines.values()), "ledger": lines}
    return PlacementDocument.model_validate(document)


def test_weights_may_differ_by_a_fiftieth_or_a_quarter_of_a_gibibyte(tmp_path: Path) -> None:
    plan = ledger_plan(50 * GIB)
    for found, same in ((50.0, True), (50.99, True), (49.01, True), (51.1, False), (48.9, False)):
        assert checked(tmp_path, server_log(plan, weights_gib=found), plan).same is same
    small = ledger_plan(GIB)
    for found, same in ((1.24, True), (1.3, False)):
        assert checked(tmp_path, server_log(small, weights_gib=found), small).same is same


def test_the_worst_gpu_is_compared(tmp_path: Path) -> None:
    plan = ledger_plan(50 * GIB)
    other = (
        "[2026-11-29 12:01:00 TP1] Load weight end. elapsed=1.00 s, type=X, dtype=x, avail mem=1.00 GB, "
        "mem usage=60.00 GB."
    )
    found = differences(checked(tmp_path, server_log(plan, weights_gib=50, extra=(other,)), plan))
    assert found["memory of the weights, per GPU"] == ("50.00 GiB", "60.00 GiB (rank 1)")


def test_a_draft_that_is_loaded_afterwards_is_not_the_model(tmp_path: Path) -> None:
    plan = ledger_plan(50 * GIB)
    draft = server_log(plan, weights_gib=9, cache_gib=7).splitlines()[6:8]
    text = server_log(plan, weights_gib=50) + "\n".join(draft)
    assert checked(tmp_path, text, plan).same


def test_only_the_last_start_of_a_log_counts(tmp_path: Path) -> None:
    before, now = server_log(PLAN, hot={1: 1}, tokens=64), server_log(PLAN)
    assert checked(tmp_path, before + now).same
    assert not checked(tmp_path, now + before).same
    # A restart that has not come far: the earlier start does not answer for it.
    assert not checked(tmp_path, now + before.splitlines()[0]).same


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\xff\xfe\x00" * 100, b"x" * 10**6])
def test_a_file_that_is_no_server_log_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "server.log").write_bytes(content)
    with pytest.raises(BadInputError, match="no line of a starting sglang-kt server"):
        check_log(PLAN, tmp_path / "server.log")


def test_a_log_of_vllm_names_the_runtime_to_ask_for(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("INFO vLLM API server version 0.33.0\nplacer-placement layer=1\n")
    with pytest.raises(BadInputError) as caught:
        check_log(PLAN, tmp_path / "server.log")
    assert "--runtime vllm-plugin" in str(caught.value.hint)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file"):
        check_log(PLAN, tmp_path / "server.log")


# --- the dumped mask --------------------------------------------------------------------------------------


def dump(path: Path, masks: object) -> Path:
    torch.save({"gpu_expert_masks": masks}, path)
    return path


def masks(passes: int = 3, rows: int = 5) -> torch.Tensor:
    """The plan's mask in ``passes`` of ``rows`` rows: bool [rows, 4 layers, 4 experts], layer 0 dense."""
    made = torch.zeros(rows, 4, 4, dtype=torch.bool)
    made[:passes, 1:] = torch.from_numpy(PLAN.hot_mask())
    return made


def test_the_plans_mask_in_every_pass_agrees(tmp_path: Path) -> None:
    applied = check_dump(PLAN, dump(tmp_path / "d.pt", masks()))
    assert applied.same
    assert [row.found for row in applied.rows] == [
        "2, the same ones in 3 passes",
        "0, the same ones in 3 passes",
        "4, the same ones in 3 passes",
    ]


def test_as_many_other_experts_are_a_difference(tmp_path: Path) -> None:
    made = masks()
    made[:3, 1] = torch.tensor([True, True, False, False])
    row = check_dump(PLAN, dump(tmp_path / "d.pt", made)).rows[0]
    assert row.same is False
    assert row.found == "2 in 3 of 3 passes (not hot: 2; also hot: 1)"
    assert "another plan" in row.do


def test_a_hot_set_that_changes_while_serving_is_named(tmp_path: Path) -> None:
    made = masks()
    made[2, 3, 0] = False
    row = check_dump(PLAN, dump(tmp_path / "d.pt", made)).rows[2]
    assert row.found == "3 in 1 of 3 passes (not hot: 0)"
    assert "--kt-enable-dynamic-expert-update" in row.do


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (masks(passes=0), "no pass was recorded"),
        (torch.zeros(3, 4, 8, dtype=torch.bool), "4 layers with 8 experts"),
        (torch.zeros(3, 3, 4, dtype=torch.bool), "3 layers with 4 experts"),
        (torch.zeros(4, 4, dtype=torch.bool), "holds no masks"),
        (torch.zeros(3, 4, 4), "holds no masks"),
        (np.zeros((3, 4, 4), dtype=bool), "loads as plain data"),
        ([[True]], "holds no masks"),
    ],
)
def test_a_dump_of_something_else_is_refused(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        check_dump(PLAN, dump(tmp_path / "d.pt", content))


def test_a_dump_of_more_layers_is_not_said_to_agree(tmp_path: Path) -> None:
    made = torch.cat([masks(), torch.zeros(5, 2, 4, dtype=torch.bool)], dim=1)
    path = dump(tmp_path / "d.pt", made)
    unknown = [row for row in check_dump(PLAN, path).rows if row.same is None]
    assert [(row.what, row.planned) for row in unknown] == [("layers of the model", "4 or more")]
    document = PLAN.model_dump(by_alias=True)
    plan = PlacementDocument.model_validate(document | {"model": document["model"] | {"config": CONFIG}})
    assert check_dump(plan, dump(tmp_path / "own.pt", masks())).same
    with pytest.raises(BadInputError, match=r"6 layers with 4 experts; the plan is for 4 experts .* of 4"):
        check_dump(plan, path)


def test_a_dump_that_would_run_code_is_never_run(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path(tmp_path / "ran"),)  # type: ignore[return-value]

    with pytest.raises(BadInputError, match="loads as plain data"):
        check_dump(PLAN, dump(tmp_path / "d.pt", Attack()))
    assert not (tmp_path / "ran").exists()


@needs_shared_data
def test_a_dump_of_the_runtimes_own_recorder_is_read() -> None:
    path = SHARED_DATA / "runtime_fixtures" / "sglangkt072_stat_gpumask__gpu_expert_distribution.pt"
    some = [0, 3, 6, 9, 12, 15]
    hot = {1: some, 2: some, 3: [], 4: list(range(16)), 5: some}
    assert check_dump(placement(hot, layers=range(1, 6), experts=16), path).same
    wrong = check_dump(placement(hot | {5: some[1:]}, layers=range(1, 6), experts=16), path)
    assert [row.what for row in wrong.rows if not row.same] == ["layer 5: hot experts"]


# --- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with the placement and what its server left."""
    document = placement_dict(HOT, layers=[1, 2, 3], experts=4)
    (tmp_path / "placement.json").write_text(json.dumps(document))
    (tmp_path / "good.log").write_text(server_log(PLAN))
    (tmp_path / "bad.log").write_text(server_log(PLAN, hot={1: 1}))
    dump(tmp_path / "good.pt", masks())
    return tmp_path


def test_the_command_says_yes_with_0_and_no_with_1(served: Path, run: Run) -> None:
    code, out, err = run("export", served / "placement.json", "--check-log", served / "good.log")
    assert (code, out) == (0, "")
    assert err.startswith("the server runs the plan: ")
    code, _, err = run("export", served / "placement.json", "--check-log", served / "bad.log")
    assert code == 1
    assert err.startswith("the server does not run the plan: 1 of ")
    assert "layer 1: hot experts: planned 2, found 1" in err
    assert "do: start with launch.sh" in err
    # The verdict alone names what differs.
    code, _, err = run("export", served / "placement.json", "--check-log", served / "bad.log", "-q")
    assert code == 1
    assert "differ (layer 1: hot experts)" in " ".join(err.split())


def test_both_checks_at_once_as_json(served: Path, run: Run) -> None:
    arguments = ["--check-log", served / "bad.log", "--check-dump", served / "good.pt", "--json"]
    code, out, _ = run("export", served / "placement.json", *arguments)
    assert code == 1
    document = json.loads(out)
    assert document["same"] is False
    assert [check["same"] for check in document["checks"]] == [False, True]
    assert document["checks"][1]["rows"][0]["what"] == "layer 1: hot experts"


def test_every_dump_that_a_shell_names_is_compared(served: Path, run: Run) -> None:
    other = masks()
    other[:3, 1] = torch.tensor([True, True, False, False])
    dumps = [served / "good.pt", dump(served / "again.pt", masks()), dump(served / "other.pt", other)]
    assert run("export", served / "placement.json", "--check-dump", *dumps[:2])[0] == 0
    code, out, _ = run("export", served / "placement.json", "--check-dump", *dumps, "--json")
    checks = json.loads(out)["checks"]
    assert (code, [(check["source"], check["same"]) for check in checks]) == (
        1,
        [(str(dumps[0]), True), (str(dumps[1]), True), (str(dumps[2]), False)],
    )
    code, _, err = run("export", served / "placement.json", dumps[0], "-o", served / "out")
    assert (code, (served / "out").exists()) == (2, False)
    assert "dumps follow --check-dump" in err


def test_python_takes_one_dump_or_several(served: Path) -> None:
    for given in (served / "good.pt", str(served / "good.pt"), [served / "good.pt", served / "good.pt"]):
        found = export_check(served / "placement.json", check_dump=given)
        assert found.same
        assert len(found.checks) == (2 if isinstance(given, list) else 1)
    with pytest.raises(BadInputError, match="nothing to check"):
        export_check(served / "placement.json", check_dump=[])


def test_a_check_writes_nothing_and_an_export_needs_a_folder(served: Path, run: Run) -> None:
    before = sorted(served.iterdir())
    both = ["--check-log", served / "good.log", "-o", served / "out"]
    assert run("export", served / "placement.json", *both)[0] == 2
    assert run("export", served / "placement.json")[0] == 2
    assert run("export", served / "placement.json", "--check-log", served / "none.log")[0] == 2
    for runtime in ("vllm", "tgi"):
        other = ["--check-log", served / "good.log", "--runtime", runtime]
        assert run("export", served / "placement.json", *other)[0] == 2
    assert sorted(served.iterdir()) == before
