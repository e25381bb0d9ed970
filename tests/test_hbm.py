"""The HBM ledger: every byte has a line, and the lines close."""

import json
from pathlib import Path
from typing import Any

import pytest
from family_configs import DEEPSEEK_V3, DEEPSEEK_V3_2, DEEPSEEK_V4_PRO, FP8, HUNYUAN_A13B, QWEN3_5_122B
from hypothesis import given, settings
from hypothesis import strategies as st
from test_model import GPT_OSS_20B, KIMI_K2, QWEN3_30B, QWEN3_CODER_480B
from tiny_model import tiny_model

from placer.demand import MemoryDemand
from placer.errors import BadInputError
from placer.hbm import (
    WEIGHT_CLASSES,
    HbmLedger,
    ServerSettings,
    activation_bytes,
    free_memory_loss_bytes,
    given_loss_bytes,
    hbm_ledger,
    mem_fraction_static,
    repacking_bytes,
    stage_ledgers,
)
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec, read_model
from placer.parallelism import Parallelism
from placer.units import GIB

H100 = int(79.18 * GIB)
ONE_GPU = Parallelism()
QWEN3_235B = {
    **QWEN3_30B,
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "moe_intermediate_size": 1536,
}

BF16_KIMI = {name: value for name, value in KIMI_K2.items() if name != "quantization_config"}


def read(folder: Path, config: dict[str, Any], **changes: Any) -> ModelSpec:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return read_model(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return read(tmp_path_factory.mktemp("coder"), QWEN3_CODER_480B)


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return read(tmp_path_factory.mktemp("deepseek"), DEEPSEEK_V3)


def ledger_of(
    model: ModelSpec,
    *,
    tokens: int,
    hot: int = 0,
    parallel: Parallelism = ONE_GPU,
    budget: int = H100,
    running: int = 64,
    dtype: str = "bf16",
    speculative: bool = False,
    **options: Any,
) -> HbmLedger:
    server = ServerSettings(running, tokens, 8192, dtype, speculative, options.pop("window_ratio", None))
    return hbm_ledger(
        model, parallel=parallel, budget_bytes=budget, settings=server, hot_experts=hot, **options
    )


def in_gib(ledger: HbmLedger, *names: str) -> float:
    return round(sum(ledger.lines[name] for name in names) / GIB, 2)


class TestA480BModelOnFourH100:
    """62 layers x 96 of 160 block-FP8 experts hot on four GPUs, 40,960 tokens: worked figures per GPU."""

    def test_weights_line_by_line(self, coder: ModelSpec) -> None:
        ledger = ledger_of(coder, tokens=40_960, hot=62 * 96, parallel=Parallelism(4))
        assert coder.expert_bytes("fp8_block") == 47_197_440
        assert ledger.lines["hot_experts"] == 62 * 96 * 47_197_440 // 4
        assert in_gib(ledger, "hot_experts") == 65.41
        assert in_gib(ledger, "attention") == 2.36
        assert in_gib(ledger, "embedding") == 0.87
        assert in_gib(ledger, "router") == 0.11
        assert round(ledger.weights_bytes / GIB, 2) == 68.75

    def test_kv_and_what_is_left(self, coder: ModelSpec) -> None:
        ledger = ledger_of(coder, tokens=40_960, hot=62 * 96, parallel=Parallelism(4))
        assert ledger.lines["kv_pool"] == 63_488 * 40_961
        assert in_gib(ledger, "kv_pool") == 2.42
        assert round((ledger.weights_bytes + ledger.kv_bytes) / GIB, 2) == 71.17
        free = H100 - ledger.lines["free_memory_loss"]
        assert round(free / GIB, 2) == 76.98
        assert round((free - ledger.weights_bytes - ledger.kv_bytes) / GIB, 1) == 5.8
        assert ledger.unused_bytes > 0

    def test_the_fraction_that_lets_it_start(self, coder: ModelSpec) -> None:
        ledger = ledger_of(coder, tokens=40_960, hot=62 * 96, parallel=Parallelism(4))
        assert mem_fraction_static(ledger, device_bytes=H100) == 0.925

    def test_131072_tokens_do_not_fit(self, coder: ModelSpec) -> None:
        ledger = ledger_of(coder, tokens=131_072, hot=62 * 96, parallel=Parallelism(4))
        assert in_gib(ledger, "kv_pool") == 7.75
        assert round((ledger.weights_bytes + ledger.kv_bytes) / GIB, 1) == 76.5
        free = H100 - ledger.lines["free_memory_loss"]
        assert round((free - ledger.weights_bytes - ledger.kv_bytes) / GIB, 1) == 0.5
        assert ledger.unused_bytes < 0
        assert ledger.binding_line == "kv_pool"

    def test_fp8_kv_is_worth_almost_two_experts_per_layer(self, coder: ModelSpec) -> None:
        whole = ledger_of(coder, tokens=40_960, parallel=Parallelism(4))
        half = ledger_of(coder, tokens=40_960, parallel=Parallelism(4), dtype="fp8")
        freed = half.unused_bytes - whole.unused_bytes
        assert round(freed / GIB, 2) == 1.21
        assert round(freed / expert_share_bytes(coder, 4) / 62, 1) == 1.8

    def test_a_6_gib_reserve_holds_95_or_96_experts_per_layer(self, coder: ModelSpec) -> None:
        # Free memory of 77.0 to 77.7 GiB, and three reserves: 6 GiB, SGLang's floor and its own choice.
        static = ledger_of(coder, tokens=40_960, parallel=Parallelism(4))
        fixed = static.weights_bytes + static.kv_bytes
        share = 62 * expert_share_bytes(coder, 4)

        def experts(free_gib: float, reserve_gib: float) -> int:
            return int(((free_gib - reserve_gib) * GIB - fixed) // share)

        assert [experts(free, 6) for free in (77.0, 77.7)] == [95, 96]
        assert [experts(free, 10) for free in (77.0, 77.7)] == [89, 90]
        assert [experts(free, 13.125) for free in (77.0, 77.7)] == [85, 86]


class TestAll480BExpertsOnEightGpus:
    """131,072 tokens and no cold expert: plain tp 8 cuts 2,560 to 320; whole experts or two stages do not."""

    def test_whole_experts(self, coder: ModelSpec) -> None:
        parallel = Parallelism(8, ep=8)
        assert Parallelism(8).problem(coder) is not None
        assert parallel.problem(coder) is None
        ledger = ledger_of(coder, tokens=131_072, hot=62 * 160, parallel=parallel)
        # Twenty whole experts of every layer.
        assert ledger.lines["hot_experts"] == 62 * 20 * 47_197_440
        assert in_gib(ledger, "hot_experts") == 54.51
        assert in_gib(ledger, "attention") == 1.18
        assert in_gib(ledger, "embedding") == 0.43
        assert in_gib(ledger, "router") == 0.11
        assert round(ledger.weights_bytes / GIB, 2) == pytest.approx(56.24, abs=0.011)
        assert ledger.lines["kv_pool"] == 31_744 * 131_073
        assert in_gib(ledger, "kv_pool") == 3.88
        free = H100 - ledger.lines["free_memory_loss"]
        left = free - ledger.weights_bytes - ledger.kv_bytes
        assert round(left / GIB, 1) == 16.5
        assert ledger.unused_bytes > 0

    def test_two_stages_of_four(self, coder: ModelSpec) -> None:
        first, last = stage_ledgers(
            coder,
            parallel=Parallelism(4, pp=2),
            budget_bytes=H100,
            settings=ServerSettings(64, 131_072, 8192, "bf16"),
            hot_experts=62 * 160,
        )
        for ledger in (first, last):
            assert in_gib(ledger, "hot_experts") == 54.51
            assert in_gib(ledger, "attention") == 1.18
            # One of the two tables, cut by four, is what two cut by eight are.
            assert in_gib(ledger, "embedding") == 0.43
            # Routers are whole on every GPU of a stage, and a stage has half of them.
            assert ledger.lines["router"] == 31 * 160 * 6144 * 2
            assert ledger.lines["kv_pool"] == 31_744 * 131_073
            assert ledger.lines["free_memory_loss"] == free_memory_loss_bytes(8)


# Server logs: model, precision of hot experts, their number, tp, tokens; GiB of weights and KV logged, and the
# relative error that formulas have against each.
@pytest.mark.parametrize(
    ("config", "expert_format", "hot", "tp", "tokens", "weights", "kv", "error"),
    [
        # sglang-kt 0.7.0, 32 bf16 experts of each layer on one H100; 25.14 GiB of keys and as much of values.
        pytest.param(QWEN3_30B, "bf16", 48 * 32, 1, 549_277, 16.41, 50.28, 0.003, id="30b-bf16-32-hot"),
        pytest.param(
            {**QWEN3_30B, "quantization_config": FP8},
            "fp8_block",
            48 * 128,
            1,
            392_920,
            29.15,
            35.98,
            0.005,
            id="30b-fp8",
        ),
        # Kimi-K2.5 on eight GPUs, less its vision tower of 0.88 GiB: the latent cache is whole on each.
        pytest.param(
            BF16_KIMI, "int4_g32", 60 * 384, 8, 2_454_421, 73.58 - 0.88, 160.63, 0.023, id="kimi-int4"
        ),
        pytest.param(
            {**QWEN3_235B, "quantization_config": FP8},
            "fp8_block",
            94 * 128,
            4,
            367_404,
            None,
            16.46,
            0.001,
            id="235b-fp8",
        ),
    ],
)
def test_weights_and_kv_agree_with_server_logs(
    tmp_path: Path,
    config: dict[str, Any],
    expert_format: str,
    hot: int,
    tp: int,
    tokens: int,
    weights: float | None,
    kv: float,
    error: float,
) -> None:
    model = read(tmp_path, config)
    ledger = ledger_of(model, tokens=tokens, hot=hot, parallel=Parallelism(tp), expert_format=expert_format)
    if weights is not None:
        assert ledger.weights_bytes / GIB == pytest.approx(weights, rel=error)
    assert ledger.lines["kv_pool"] / GIB == pytest.approx(kv, abs=0.011)


@pytest.mark.parametrize(("layers", "experts", "logged"), [(24, 32, 13.47), (36, 128, 64.38)])
def test_gpt_oss_agrees_with_server_logs(tmp_path: Path, layers: int, experts: int, logged: float) -> None:
    model = read(
        tmp_path,
        GPT_OSS_20B,
        num_hidden_layers=layers,
        num_local_experts=experts,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2),
    )
    hot = layers * experts
    ledger = ledger_of(model, tokens=16, hot=hot, expert_format="mxfp4")
    # On Hopper vLLM pads one dimension of an expert's matrices from 2,880 to 3,072, and holds its biases.
    share = 3 * 2880 * 3072 * 17 // 32 + 2 * (2 * 2880 + 3072)
    assert ledger.lines["hot_experts"] == hot * share
    assert ledger.weights_bytes / GIB == pytest.approx(logged, rel=0.004)


def test_deepseek_in_nvfp4_agrees_with_a_server_log(tmp_path: Path) -> None:
    # SGLang on four B200: 94.50 GiB. Attention, embedding and router are bf16, every MLP is NVFP4: half a byte
    # per weight, a byte-sized scale per 16 and two float32 per matrix, of which one is the weights'.
    model = read(tmp_path, {name: value for name, value in DEEPSEEK_V3.items() if value is not FP8})
    lines = ledger_of(model, tokens=16, parallel=Parallelism(4)).lines
    experts = 58 * 256 * (3 * 7168 * 2048 * 9 // 16 + 3 * 4) // 4
    others = (lines["shared_experts"] + lines["dense"]) * 9 // 32
    held = experts + others + sum(lines[name] for name in ("attention", "router", "embedding", "norms"))
    assert round(held / GIB, 2) == 94.28
    assert held / GIB == pytest.approx(94.50, rel=0.003)


def test_the_least_fraction_that_a_server_logged() -> None:
    # 125.65 GiB of weights on an H200 with 137.90 GiB free: the log says that 0.9113 is the least.
    lines = dict.fromkeys(("hot_experts", "repacking", *WEIGHT_CLASSES, "kv_pool", "request_state"), 0)
    lines |= {"hot_experts": int(125.65 * GIB), "free_memory_loss": int(1.9 * GIB), "unused": 0}
    ledger = HbmLedger(int(139.8 * GIB), lines)
    assert mem_fraction_static(ledger, device_bytes=int(139.8 * GIB)) == 0.912


def test_deepseek_v4_grows_when_it_is_repacked(tmp_path: Path, tiny: ModelSpec) -> None:
    # DeepSeek-V4-Pro on eight H200 with all experts in MXFP4 and float32 scales, 0.625 B a weight: 118.8 GiB of
    # tensors, and SGLang logs 125.65 GiB.
    model = read(tmp_path, DEEPSEEK_V4_PRO)
    assert repacking_bytes(model, 1_000) == 60
    assert repacking_bytes(tiny, 1_000) == 0
    lines = ledger_of(model, tokens=256, parallel=Parallelism(8), dtype="fp8", window_ratio=1.0).lines
    held = sum(lines[name] for name in WEIGHT_CLASSES) + 61 * 384 * 3 * 7168 * 3072 * 5 // 8 // 8
    assert held / GIB == pytest.approx(118.8, rel=0.005)
    assert (held + repacking_bytes(model, held)) / GIB == pytest.approx(125.65, rel=0.005)


def test_a_hot_expert_of_deepseek_v4_stays_in_four_bits(tmp_path: Path) -> None:
    # 3·7168·3072 weights of half a byte, and a float32 scale for every 32 of them: 0.625 bytes a weight.
    model = read(tmp_path, DEEPSEEK_V4_PRO)
    assert model.expert_format == {"checkpoint": "mxfp4", "gpu": "mxfp4_f32", "cpu": "rawint4"}
    assert expert_share_bytes(model, 1) == 3 * 7168 * 3072 * 5 // 8
    assert "mxfp4_f32" in model.provenance["gpu"]
    # All 61·384 of them on eight H200 make the 118.8 GiB of the log, and a server's repacked 125.65.
    ledger = ledger_of(
        model, hot=61 * 384, tokens=256, parallel=Parallelism(8), dtype="fp8", window_ratio=1.0
    )
    assert (ledger.weights_bytes - ledger.lines["repacking"]) / GIB == pytest.approx(118.8, rel=0.005)
    assert ledger.weights_bytes / GIB == pytest.approx(125.65, rel=0.005)


def test_a_hot_expert_of_deepseek_v4_takes_its_repacking_too(tmp_path: Path) -> None:
    model = read(tmp_path, DEEPSEEK_V4_PRO)
    demand = MemoryDemand(
        model=model,
        parallel=Parallelism(8),
        budget_bytes=int(100 * GIB),
        running=4,
        chunk_tokens=2048,
        kv_dtype="fp8",
        min_kv_tokens=0,
        request_tokens=4096,
    )
    room = demand.room_experts
    assert demand.ledger(hot_experts=room).unused_bytes >= 0
    assert demand.ledger(hot_experts=room + 2).unused_bytes < 0


def test_activations_by_hand(tiny: ModelSpec) -> None:
    # 10 tokens, top-2, I 128, H 256: 10·2·(3·128 + 256)·2 + 8·10·256·2.
    assert activation_bytes(tiny, 10, 1) == 25_600 + 40_960


def test_activations_of_a_480b_model(coder: ModelSpec) -> None:
    # A chunk of 8,192 on four GPUs: 1.0 GiB in the fused MoE and 0.75 GiB beside it.
    assert activation_bytes(coder, 8192, 4) / GIB == pytest.approx(1.0 + 0.75, abs=0.02)


def test_small_chunks_keep_the_reserve_floor(tiny: ModelSpec) -> None:
    server = ServerSettings(1, 16, 16, "bf16")
    lines = hbm_ledger(
        tiny, parallel=Parallelism(), budget_bytes=8 * GIB, settings=server, hot_experts=0
    ).lines
    assert lines["activations"] + lines["cuda_graphs"] + lines["fragmentation"] == int(2.5 * GIB)


def test_free_memory_after_start_is_a_table_unless_it_is_given(coder: ModelSpec) -> None:
    table = [free_memory_loss_bytes(gpus) / GIB for gpus in (1, 2, 3, 4, 5, 8, 16)]
    assert table == pytest.approx([0.6, 1.6, 2.2, 2.2, 2.6, 2.6, 2.6])
    loss = given_loss_bytes(device_bytes=H100, gpu_free_bytes=int(77.4 * GIB))
    ledger = ledger_of(coder, tokens=40_960, hot=62 * 96, parallel=Parallelism(4), loss_bytes=loss)
    assert (H100 - ledger.lines["free_memory_loss"]) / GIB == pytest.approx(77.4)
    left = H100 - ledger.lines["free_memory_loss"] - ledger.weights_bytes - ledger.kv_bytes
    assert round(left / GIB, 1) == 6.2
    assert given_loss_bytes(device_bytes=H100, gpu_free_bytes=None) is None
    with pytest.raises(BadInputError, match="--gpu-free"):
        given_loss_bytes(device_bytes=H100, gpu_free_bytes=H100 + 1)


def test_a_drafting_layer_is_loaded_whole_and_caches(deepseek: ModelSpec) -> None:
    off = ledger_of(deepseek, tokens=40_960, parallel=Parallelism(8))
    on = ledger_of(deepseek, tokens=40_960, parallel=Parallelism(8), speculative=True)
    assert off.lines["mtp"] == 0
    # 256 routed and one shared expert in block FP8 an eighth each; one layer of latent cache.
    experts = 257 * 44_050_944 // 8
    assert on.lines["mtp"] > experts + 40_961 * 576 * 2
    assert on.lines["mtp"] / GIB == pytest.approx(1.32 + 0.44 + 0.5, abs=0.5)
    # Its bytes are gone from the room of experts, and the fraction leaves them out: it is loaded later.
    assert off.unused_bytes - on.unused_bytes == on.lines["mtp"]
    assert mem_fraction_static(on, device_bytes=H100) == mem_fraction_static(off, device_bytes=H100)


def test_drafting_needs_a_layer_that_drafts(coder: ModelSpec) -> None:
    with pytest.raises(BadInputError, match="no MTP layer"):
        ledger_of(coder, tokens=16, speculative=True)


class TestDataParallelAttention:
    def test_latent_cache_is_shared_out_only_by_it(self, deepseek: ModelSpec) -> None:
        plain, spread = Parallelism(8), Parallelism(8, dp=8)
        assert ledger_of(deepseek, tokens=80_000, parallel=plain).lines["kv_pool"] == 80_001 * 70_272
        assert ledger_of(deepseek, tokens=80_000, parallel=spread).lines["kv_pool"] == 10_001 * 70_272

    def test_attention_is_whole_again_and_experts_stay_cut(self, deepseek: ModelSpec) -> None:
        one = ledger_of(deepseek, tokens=16)
        spread = ledger_of(deepseek, tokens=16, hot=58 * 256, parallel=Parallelism(8, dp=8))
        plain = ledger_of(deepseek, tokens=16, hot=58 * 256, parallel=Parallelism(8))
        assert spread.lines["attention"] == one.lines["attention"]
        for name in ("hot_experts", "shared_experts", "dense", "router", "norms"):
            assert spread.lines[name] == plain.lines[name]
        # The embedding is whole, the head stays cut by tp.
        table = 129_280 * 7168 * 2
        assert spread.lines["embedding"] == table + table // 8
        assert plain.lines["embedding"] == 2 * table // 8

    def test_grouped_heads_and_requests_are_shared_out(self, coder: ModelSpec) -> None:
        # Two groups of four GPUs: 8 KV heads over 4, half of the tokens and of the 64 requests each.
        lines = ledger_of(coder, tokens=40_960, parallel=Parallelism(8, ep=8, dp=2)).lines
        assert lines["kv_pool"] == (40_960 // 2 + 1) * 62 * 2 * 2 * 128 * 2
        assert lines["attention"] == ledger_of(coder, tokens=16, parallel=Parallelism(4)).lines["attention"]
        assert lines["embedding"] == 151_936 * 6144 * 2 * (1 / 4 + 1 / 8)

    def test_states_are_those_of_a_group_s_requests(self, tmp_path: Path) -> None:
        hybrid = read(tmp_path, QWEN3_5_122B)
        state = hybrid.state_bytes_per_request_per_gpu(1)
        assert ledger_of(hybrid, tokens=16, running=64).lines["request_state"] == (3 * 64 + 1) * state
        spread = ledger_of(hybrid, tokens=16, running=64, parallel=Parallelism(8, dp=8))
        assert spread.lines["request_state"] == (3 * 8 + 1) * state


class TestExpertParallelism:
    def test_experts_stay_whole_and_the_rest_is_cut_as_without_it(self, deepseek: ModelSpec) -> None:
        plain = ledger_of(deepseek, tokens=16, hot=58 * 256, parallel=Parallelism(8)).lines
        whole = ledger_of(deepseek, tokens=16, hot=58 * 256, parallel=Parallelism(8, ep=8)).lines
        # 32 of 256 experts of each layer, or an eighth of each: the same bytes.
        assert whole["hot_experts"] == plain["hot_experts"] == 58 * 32 * 44_050_944
        for name in (*WEIGHT_CLASSES, "kv_pool", "request_state", "free_memory_loss"):
            assert whole[name] == plain[name]
        # The shared expert is cut by tp all the same: 2,048 / 8 = 256 columns, two FP8 blocks.
        assert whole["shared_experts"] == 58 * 44_050_944 // 8

    def test_an_expert_may_be_cut_by_what_ep_leaves(self, coder: ModelSpec) -> None:
        lines = ledger_of(coder, tokens=16, hot=62 * 160, parallel=Parallelism(8, ep=2)).lines
        assert lines["hot_experts"] == 62 * 80 * 47_197_440 // 4
        # A chunk may go to one group whole: its experts' activations are those of tp 4.
        assert lines["activations"] == activation_bytes(coder, 8192, 4) * 3 // 2


def test_a_vocabulary_is_padded_before_it_is_cut(tmp_path: Path) -> None:
    # 128,167 rows are padded to 2,003 x 64 = 128,192; head and embedding are one table.
    tied = read(tmp_path, HUNYUAN_A13B)
    for tp in (1, 4, 8):
        lines = ledger_of(tied, tokens=16, parallel=Parallelism(tp)).lines
        assert lines["embedding"] == 128_192 // tp * 4096 * 2


def test_a_page_more_than_the_tokens_is_allocated(tmp_path: Path) -> None:
    # Sparse attention: pages of 64 tokens, so 16 tokens take two pages.
    sparse = read(tmp_path, DEEPSEEK_V3_2)
    assert ledger_of(sparse, tokens=16, parallel=Parallelism(8)).lines["kv_pool"] == 128 * 78_324


def test_a_tied_head_is_a_second_table_on_the_last_stage(tmp_path: Path) -> None:
    tied = tiny_model(tmp_path, tie_word_embeddings=True)
    table = 512 * 256 * 2
    server = ServerSettings(1, 16, 16, "bf16")
    for pp, expected in ((1, [table]), (2, [table, table]), (4, [table, 0, 0, table])):
        stages = stage_ledgers(
            tied, parallel=Parallelism(1, pp=pp), budget_bytes=GIB, settings=server, hot_experts=0
        )
        assert [stage.lines["embedding"] for stage in stages] == expected


def test_stages_together_hold_what_one_gpu_holds(deepseek: ModelSpec) -> None:
    server = ServerSettings(8, 4096, 2048, "bf16")
    options: dict[str, Any] = {"budget_bytes": 10**12, "settings": server, "hot_experts": 58 * 256}
    whole = hbm_ledger(deepseek, parallel=Parallelism(), **options)
    stages = stage_ledgers(deepseek, parallel=Parallelism(pp=3), **options)
    for name in ("hot_experts", "embedding", "dense"):
        assert sum(stage.lines[name] for stage in stages) == whole.lines[name]
    for name in ("attention", "router", "shared_experts", "norms", "kv_pool"):
        assert sum(stage.lines[name] for stage in stages) == pytest.approx(whole.lines[name], abs=4097 * 3)
    # The three dense layers are the first ones.
    assert [stage.lines["dense"] > 0 for stage in stages] == [True, False, False]


sizes = st.integers(min_value=1, max_value=64)


@settings(max_examples=60, deadline=None)
@given(
    running=sizes,
    tokens=st.integers(1, 100_000),
    chunk=st.integers(1, 8192),
    hot=st.integers(0, 32),
    budget=st.integers(1, 100 * GIB),
    parallel=st.sampled_from(
        [Parallelism(1), Parallelism(2), Parallelism(4, ep=2), Parallelism(2, dp=2), Parallelism(2, pp=2)]
    ),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
def test_lines_sum_to_the_budget(
    tiny: ModelSpec,
    running: int,
    tokens: int,
    chunk: int,
    hot: int,
    budget: int,
    parallel: Parallelism,
    dtype: str,
) -> None:
    server = ServerSettings(running, tokens, chunk, dtype)
    options: dict[str, Any] = {"budget_bytes": budget, "settings": server, "hot_experts": hot}
    ledger = hbm_ledger(tiny, parallel=parallel, **options)
    for each in (ledger, *stage_ledgers(tiny, parallel=parallel, **options)):
        assert sum(each.lines.values()) == budget
        assert each.needed_bytes + each.unused_bytes == budget
        assert all(size >= 0 for name, size in each.lines.items() if name != "unused")
        assert (each.binding_line is None) == (each.unused_bytes >= 0)
        assert each.unused_bytes >= ledger.unused_bytes
    if parallel.pp == parallel.ep == 1:
        assert ledger.lines["hot_experts"] == hot * expert_share_bytes(tiny, parallel.tp)


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 10_000),
    more=st.integers(0, 10_000),
    chunk=st.integers(1, 8192),
    budget=st.integers(GIB, 16 * GIB),
    larger=st.integers(0, GIB),
)
def test_context_only_takes_room_and_budget_only_gives_it(
    tiny: ModelSpec, tokens: int, more: int, chunk: int, budget: int, larger: int
) -> None:
    def unused(kv_tokens: int, budget_bytes: int) -> int:
        server = ServerSettings(4, kv_tokens, chunk, "bf16")
        return hbm_ledger(
            tiny, parallel=Parallelism(), budget_bytes=budget_bytes, settings=server, hot_experts=0
        ).unused_bytes

    assert unused(tokens + more, budget) <= unused(tokens, budget)
    assert unused(tokens, budget + larger) == unused(tokens, budget) + larger


@settings(max_examples=40, deadline=None)
@given(tp=st.sampled_from([1, 2, 4, 8, 16]), latent=st.booleans(), hot=st.integers(0, 500))
def test_tp_changes_only_what_the_rules_say(
    coder: ModelSpec, deepseek: ModelSpec, tp: int, latent: bool, hot: int
) -> None:
    model = deepseek if latent else coder
    one = ledger_of(model, tokens=10_000, hot=hot).lines
    cut = ledger_of(model, tokens=10_000, hot=hot, parallel=Parallelism(tp)).lines
    # Whole on every GPU.
    for name in ("router", "norms", "cuda_graphs", "runtime_staging"):
        assert cut[name] == one[name]
    # Cut by tp without a rest at these sizes (153,856 and 129,280 rows are padded to multiples of 64).
    for name in ("hot_experts", "embedding"):
        assert cut[name] == pytest.approx(one[name] / tp, abs=max(1, hot))
    # A latent cache and its down-projections are whole, KV heads are cut by at most their number.
    assert cut["kv_pool"] == one["kv_pool"] // (1 if latent else min(tp, 8))
    assert one["attention"] / tp <= cut["attention"] <= one["attention"]
    assert cut["free_memory_loss"] == free_memory_loss_bytes(tp)


def test_the_fraction_is_rounded_up(tmp_path: Path) -> None:
    tiny = tiny_model(tmp_path)
    server = ServerSettings(4, 4096, 512, "bf16")
    ledger = hbm_ledger(tiny, parallel=Parallelism(), budget_bytes=8 * GIB, settings=server, hot_experts=32)
    fraction = mem_fraction_static(ledger, device_bytes=8 * GIB)
    free = 8 * GIB - free_memory_loss_bytes(1)
    # SGLang's pool is fraction · free − weights: at this fraction it holds the plan's KV, one step below not.
    assert fraction * free >= ledger.weights_bytes + ledger.kv_bytes
    assert (fraction - 0.001) * free < ledger.weights_bytes + ledger.kv_bytes
