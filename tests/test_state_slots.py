"""Slots of recurrent states: three per request with the prefix cache, and a server's log of them."""

from pathlib import Path
from typing import Any

import pytest
from family_configs import DEEPSEEK_V4_FLASH, KIMI_LINEAR_48B, QWEN3_5_122B, QWEN3_NEXT_80B
from test_model import QWEN3_30B
from test_remedy import model_of

from placer.hbm import ServerSettings, hbm_ledger
from placer.parallelism import Parallelism
from placer.pool import Pool, pools_bytes
from placer.speculation import MTP_SPECULATION
from placer.state_slots import state_pools, state_slots
from placer.units import GIB

QWEN3_5_397B: dict[str, Any] = {
    **QWEN3_5_122B,
    "text_config": {
        **QWEN3_5_122B["text_config"],
        "num_hidden_layers": 60,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 15,
        "hidden_size": 4096,
        "num_experts": 512,
        "num_experts_per_tok": 10,
    },
}


@pytest.mark.parametrize(
    ("config", "drafting", "slots"),
    [
        (QWEN3_NEXT_80B, False, 48),
        # SGLang has no prefix cache for drafting with states, nor for Kimi-Linear at all.
        (QWEN3_NEXT_80B, True, 16),
        (KIMI_LINEAR_48B, False, 16),
        # The rings of a compressed cache live in its pool.
        (DEEPSEEK_V4_FLASH, False, 0),
        (QWEN3_30B, False, 0),
    ],
)
def test_slots_for_sixteen_requests(
    tmp_path: Path, config: dict[str, Any], drafting: bool, slots: int
) -> None:
    model = model_of(tmp_path, config)
    assert state_slots(model, 16, MTP_SPECULATION if drafting else None) == slots


def test_a_397b_model_on_two_gpus_agrees_with_a_server_log(tmp_path: Path) -> None:
    """sglang-kt's log: 15,356 B a token (15,360 by the rule), 7.29 GiB of matrices, 0.13 GiB of convolutions."""
    model = model_of(tmp_path, QWEN3_5_397B)
    # 15 layers of one KV head of 256 on each GPU, key and value in bf16.
    assert model.kv_bytes_per_token_per_gpu(2, "bf16") == 15 * 2 * 256 * 2 == 15_360
    # 45 layers: 3 inputs of (2·16·128 + 64·128)/2 channels in bf16, and 32 matrices of 128 x 128 in float32.
    convolution = 45 * 3 * (2 * 16 * 128 + 64 * 128) // 2 * 2
    matrices = 45 * 32 * 128 * 128 * 4
    # The log names 82 slots, and one is spare.
    assert round(83 * matrices / GIB, 3) == 7.295
    assert round(83 * convolution / GIB, 3) == 0.128
    assert sum(state.bytes_per_gpu(2) for state in model.states) == convolution + matrices
    # 27 requests with the prefix cache want 81 slots; the ledger counts these and the spare one.
    (states,) = state_pools(model, running=27, attention_tp=2, speculation=None)
    assert states == Pool("states", 0, 82, convolution + matrices, 45)
    ledger = hbm_ledger(
        model,
        parallel=Parallelism(2),
        budget_bytes=80 * GIB,
        settings=ServerSettings(27, 40_960, 8192, "bf16"),
        hot_experts=0,
    )
    assert ledger.lines["request_state"] == 82 * (convolution + matrices)
    assert ledger.lines["kv_pool"] == 40_961 * 15_360


def test_drafts_keep_a_state_for_every_token_to_go_back_to(tmp_path: Path) -> None:
    model = model_of(tmp_path, QWEN3_NEXT_80B)
    pools = state_pools(model, running=16, attention_tp=1, speculation=MTP_SPECULATION)
    each = model.state_bytes_per_request_per_gpu(1)
    # 16 and a spare one; four drafted tokens of 17.
    assert [pool.slots for pool in pools] == [17, 68]
    assert pools_bytes(pools) == (17 + 68) * each
