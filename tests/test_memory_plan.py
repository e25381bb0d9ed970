"""`placer inspect --plan`: both ledgers for N hot experts per layer, the largest N, and what to tell a runtime."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from family_configs import DEEPSEEK_V4_FLASH, QWEN3_NEXT_80B
from rich.console import Console
from test_model import DEEPSEEK_V3, GPT_OSS_20B, QWEN3_30B, QWEN3_CODER_480B
from test_remedy import model_of, on_h100

import placer
from placer.answer.memory_plan import memory_plan_answer
from placer.demand import MemoryDemand
from placer.errors import BadInputError
from placer.memory_plan import memory_plan_document
from placer.model.spec import ModelSpec
from placer.parallelism import Parallelism
from placer.units import GIB

H100 = int(79.18 * GIB)


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return model_of(tmp_path_factory.mktemp("coder"), QWEN3_CODER_480B)


def document(demand: MemoryDemand, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "device_bytes": H100,
        "cpu_method": "AMXINT4",
        "numa_nodes": 2,
        "host_memory_bytes": None,
    }
    options |= changes
    demand = replace(demand, device_bytes=options["device_bytes"])
    plan = memory_plan_document(demand, **options)
    # The document is JSON: numbers finite, a reason beside every null.
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    assert sum(plan["hbm"]["ledger"].values()) == plan["hbm"]["budget_bytes_per_gpu"]
    for name in ("mem_fraction_static", "largest_hot_per_layer", "binding_line"):
        assert (plan[name] is None) == (name in plan["null_reasons"])
    return plan


def printed(plan: dict[str, Any], experts: int) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(memory_plan_answer(plan, experts=experts), highlight=False)
    return console.export_text()


def test_96_hot_experts_fit_four_h100(coder: ModelSpec) -> None:
    demand = on_h100(coder, hot=96, tokens=40_960, parallel=Parallelism(4))
    plan = document(demand)
    assert plan["fits"]
    assert (plan["hot_per_layer"], plan["hot_experts"]) == (96, 5952)
    assert plan["mem_fraction_static"] == 0.925
    assert round(plan["hbm"]["left_bytes"] / GIB, 1) == 5.8
    assert "weights 68.75 GiB and KV 2.42 GiB leave 5.81 GiB of the 76.98 GiB" in printed(plan, 160)
    assert plan["host"]["ledger"]["experts"] == 9_920 * 23_662_592
    most = plan["largest_hot_per_layer"]
    assert replace(demand, hot_per_layer=most).fits
    assert not replace(demand, hot_per_layer=most + 1).fits
    # SGLang's own reserve of 13,440 MiB would leave nothing for KV.
    sglang = plan["reserve"]["sglang"]
    assert sglang["reserve_bytes"] == 13_440 * 2**20
    assert sglang["kv_tokens"] == 0
    assert not sglang["holds_the_plan"]
    # vLLM: 2,560 blocks of 16 tokens and the null block.
    assert plan["reserve"]["vllm"]["kv_cache_memory_bytes"] == 2_561 * 16 * 63_488


def test_131072_tokens_do_not(coder: ModelSpec) -> None:
    plan = document(on_h100(coder, hot=96, tokens=131_072, parallel=Parallelism(4)))
    assert not plan["fits"]
    assert plan["binding_line"] == "kv_pool"
    assert {remedy["kind"] for remedy in plan["remedies"]} == {
        "kv_tokens",
        "kv_dtype",
        "hot_per_layer",
        "budget_bytes",
    }
    # No larger budget than the GPU has can be given: the advice is a larger GPU.
    assert plan["remedies"][-1]["advice"].startswith("a GPU with")


def test_a_smaller_gpu_makes_the_reason_null(coder: ModelSpec) -> None:
    demand = replace(on_h100(coder, hot=1, tokens=16, parallel=Parallelism()), budget_bytes=4 * GIB)
    plan = document(demand, device_bytes=4 * GIB)
    assert plan["largest_hot_per_layer"] is None
    assert plan["mem_fraction_static"] is None


def test_all_hot_on_eight_gpus_starts_by_default(coder: ModelSpec) -> None:
    plan = document(on_h100(coder, hot=160, tokens=131_072, parallel=Parallelism(8, ep=8)))
    assert plan["fits"]
    # About 245,000 tokens with the whole device as nvidia-smi reports it, a little less of what is usable.
    assert plan["reserve"]["sglang"]["kv_tokens"] == pytest.approx(245_000, rel=0.02)
    assert plan["reserve"]["sglang"]["holds_the_plan"]
    assert plan["mem_fraction_static"] == pytest.approx(0.79, abs=0.006)


def test_host_memory_counts(coder: ModelSpec) -> None:
    demand = on_h100(coder, hot=96, tokens=40_960, parallel=Parallelism(4))
    assert document(demand, host_memory_bytes=512 * GIB)["fits"]
    plan = document(demand, host_memory_bytes=128 * GIB)
    assert not plan["fits"]
    assert plan["host"]["fits"] is False
    assert plan["binding_line"] is None
    assert "does not fit in host memory" in printed(plan, 160)
    assert [remedy["kind"] for remedy in plan["remedies"]] == ["host_memory"]


def test_every_expert_hot_needs_no_host_memory(coder: ModelSpec) -> None:
    demand = on_h100(coder, hot=160, tokens=131_072, parallel=Parallelism(8, ep=8))
    plan = document(demand, host_memory_bytes=GIB)
    assert plan["fits"]
    assert not plan["remedies"]
    assert plan["host"]["fits"] is False
    text = " ".join(printed(plan, 160).split())
    assert text.startswith("fits: 160 of 160")
    assert "host memory (AMXINT4): not needed with every expert hot" in text
    # One expert fewer, and kt-kernel holds them all; that every expert would fit is a way out.
    plan = document(replace(demand, hot_per_layer=159), host_memory_bytes=GIB)
    assert not plan["fits"]
    assert plan["remedies"][0]["advice"].startswith("--plan 160 (")


def test_where_both_memories_are_short_a_change_mends_both(coder: ModelSpec) -> None:
    demand = on_h100(coder, hot=96, tokens=131_072, parallel=Parallelism(4))
    plan = document(demand, host_memory_bytes=128 * GIB)
    assert plan["binding_line"] == "kv_pool"
    assert "host memory is too small too: " in " ".join(printed(plan, 160).split())
    assert len(plan["remedies"]) == 4
    assert all(" and --host-memory of at least " in remedy["advice"] for remedy in plan["remedies"])


def test_a_plan_that_no_runtime_splits_is_said_below_the_verdict(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = tmp_path_factory.mktemp("oss") / "config.json"
    config.write_text(json.dumps(GPT_OSS_20B))
    inspection = placer.inspect(config, plan=16, gpu="h200")
    assert inspection.fits
    assert inspection.plan is not None
    # 2,880 columns are 22.5 blocks of 128.
    assert "sglang-kt runs experts of multiples of 128 only" in inspection.plan["split_problem"]
    text = printed(inspection.plan, 32)
    assert "warning: no runtime is known that runs it so: " in text.split("HBM per GPU")[0]
    assert "SGLang: no flags, as sglang-kt runs experts of multiples of 128 only" in " ".join(text.split())
    assert "--max-total-tokens" not in text
    assert "vLLM: " in text
    # With every expert hot nothing is split.
    whole = placer.inspect(config, plan=32, gpu="h200").plan
    assert whole is not None
    assert whole["split_problem"] is None
    assert "SGLang: --mem-fraction-static" in printed(whole, 32)
    # placer's vLLM plugin runs torch's CPU kernel, sglang-kt does not.
    config.write_text(json.dumps(QWEN3_30B))
    torch = placer.inspect(config, plan=16, gpu="h200", cpu_method="torch").plan
    assert torch is not None
    assert torch["split_problem"] is None
    assert "SGLang: no flags, as sglang-kt does not run torch's CPU kernel" in printed(torch, 128)
    config.write_text(json.dumps(GPT_OSS_20B))
    # Flags that are not shown have no notes.
    small = placer.inspect(config, plan=16, hbm_budget="4GiB").plan
    assert small is not None
    assert not any("vLLM" in note for note in small["notes"])


def test_drafting_takes_room(tmp_path_factory: pytest.TempPathFactory) -> None:
    deepseek = model_of(tmp_path_factory.mktemp("deepseek"), DEEPSEEK_V3)
    plain = on_h100(deepseek, hot=128, tokens=40_960, parallel=Parallelism(8))
    drafting = replace(plain, speculative=True)
    lost = document(plain)["largest_hot_per_layer"] - document(drafting)["largest_hot_per_layer"]
    # An expert more in each of 58 layers costs 58 · 44,050,944 / 8; the MTP layer costs seven of those.
    per_layer = 58 * 44_050_944 // 8
    assert lost in (
        drafting.ledger().lines["mtp"] // per_layer,
        drafting.ledger().lines["mtp"] // per_layer + 1,
    )
    assert lost == 7
    reserves = [document(demand)["reserve"]["sglang"]["reserve_bytes"] for demand in (plain, drafting)]
    assert reserves[1] - reserves[0] == 2 * GIB


def test_what_a_window_costs_is_noted_for_vllm(tmp_path_factory: pytest.TempPathFactory) -> None:
    gpt_oss = model_of(tmp_path_factory.mktemp("oss"), GPT_OSS_20B)
    plan = document(on_h100(gpt_oss, hot=32, tokens=40_960, parallel=Parallelism()))
    assert any("vLLM" in note for note in plan["notes"])
    # Requests of unknown length may fill the pool with windows: 24,576 B a token in the twelve whole layers and
    # as many in the twelve with a window, and a token more in each pool.
    assert plan["settings"]["window_ratio"] == 1.0
    assert plan["settings"]["max_total_tokens"] == plan["settings"]["kv_tokens"] == 40_960
    assert plan["hbm"]["ledger"]["kv_pool"] == 40_961 * 49_152
    assert plan["hbm"]["ledger"]["request_state"] == 0
    assert "--swa-full-tokens-ratio 1.0" in printed(plan, 32)


def test_recurrent_states_take_three_slots_a_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    qwen = model_of(tmp_path_factory.mktemp("qwen"), QWEN3_NEXT_80B)
    plan = document(on_h100(qwen, hot=1, tokens=40_960, parallel=Parallelism()))
    assert plan["settings"]["max_mamba_cache_size"] == 3 * 64
    assert "--max-mamba-cache-size 192" in printed(plan, 512)


def test_a_compressed_cache_is_fp8_in_pages_of_256(tmp_path_factory: pytest.TempPathFactory) -> None:
    v4 = model_of(tmp_path_factory.mktemp("v4"), DEEPSEEK_V4_FLASH)
    demand = replace(
        on_h100(v4, hot=1, tokens=40_960, parallel=Parallelism(4)),
        kv_dtype="fp8",
        running=4,
        chunk_tokens=2048,
    )
    plan = document(demand)
    assert plan["settings"]["page_tokens"] == 256
    assert any("'repacking' is 6 %" in note for note in plan["notes"])
    with pytest.raises(BadInputError, match=r"compressed cache of .* in FP8 only"):
        document(replace(demand, kv_dtype="bf16"))
    with pytest.raises(BadInputError, match="--chunk 2049 is not a whole number of pages"):
        document(replace(demand, chunk_tokens=2049))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hot_per_layer": 161}, "160 experts per layer"),
        ({"chunk_tokens": 32}, "--chunk 32"),
        ({"parallel": Parallelism(8)}, "FP8 blocks"),
        ({"speculative": True}, "no MTP layer"),
    ],
)
def test_what_no_gpu_could_do_is_refused(coder: ModelSpec, changes: dict[str, Any], message: str) -> None:
    demand = replace(on_h100(coder, hot=96, tokens=40_960, parallel=Parallelism(4)), **changes)
    with pytest.raises(BadInputError, match=message):
        document(demand)


@pytest.mark.parametrize("tokens", [40_960, 131_072])
def test_it_reads_in_a_hundred_columns(coder: ModelSpec, tokens: int) -> None:
    text = printed(document(on_h100(coder, hot=96, tokens=tokens, parallel=Parallelism(4))), 160)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert len(text.splitlines()) <= 30
    first = text.splitlines()[0]
    assert first.startswith("fits: 96 of 160" if tokens == 40_960 else "does not fit: 96 of 160")
    assert "per layer" in first
