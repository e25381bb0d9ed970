"""The sizing rule that people quote, and the exact ledger beside it."""

import json
from pathlib import Path

import pytest
from test_model import QWEN3_CODER_480B
from tiny_model import tiny_model

from placer.datasheet import gpu_datasheet
from placer.model.spec import read_model
from placer.modes.request import CompareRequest
from placer.modes.rule_of_thumb import ExactSize, RuleOfThumb, nominal_bytes, rule_of_thumb
from placer.workload import Workload

GIB = 2**30


def request(usable_bytes: int, **changes: int) -> CompareRequest:
    return CompareRequest(Workload(1024, 512, 16), (1,), usable_bytes, usable_bytes, **changes)


def test_the_rule_is_parameters_times_bytes_times_1_2() -> None:
    rule = RuleOfThumb(100_000_000_000, 2.0, 80 * 10**9, ExactSize(None, None, None, None))
    # 100 B · 2 · 1.2 = 240 GB: three GPUs of 80 GB, and a byte more would be four.
    assert (rule.rule_bytes, rule.rule_gpus) == (240 * 10**9, 3)
    more = RuleOfThumb(100_000_000_001, 2.0, 80 * 10**9, ExactSize(None, None, None, None))
    assert more.rule_gpus == 4


def test_a_parameter_counts_as_the_format_is_named(tmp_path: Path) -> None:
    # Block FP8 takes 1.0002 bytes of a parameter with its scales.
    assert nominal_bytes(tiny_model(tmp_path)) == 1.0


def test_the_480b_model_on_80_gb_gpus(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    model = read_model(tmp_path)
    rule = rule_of_thumb(model, request(gpu_datasheet("h100-sxm").usable_bytes), 80 * 10**9)
    # 480.155 B · 1.2 = 576 GB, 7.2 GPUs; on four GPUs the experts alone take 109 GiB each.
    assert (rule.rule_gpus, rule.exact.gpus) == (8, 8)
    assert rule.rule_bytes == pytest.approx(576.186e9, rel=1e-5)
    assert rule.exact.spread == "tp8+ep2"
    assert rule.exact.total_bytes is not None
    assert 447 * GIB < rule.exact.total_bytes < rule.rule_bytes


def test_the_exact_ledger_counts_the_kv_that_the_rule_does_not_ask_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    model, usable = read_model(tmp_path), gpu_datasheet("h100-sxm").usable_bytes
    rule = rule_of_thumb(model, request(usable, kv_tokens=1_500_000), 80 * 10**9)
    # 1.5 M tokens of 31,744 bytes are 44 GiB more on each of eight GPUs: sixteen are needed.
    assert (rule.rule_gpus, rule.exact.gpus) == (8, 16)


def test_no_number_of_gpus_holds_a_model_beside_a_reserve_that_fills_them(tmp_path: Path) -> None:
    rule = rule_of_thumb(tiny_model(tmp_path), request(GIB), 10**9)
    assert rule.exact == ExactSize(None, None, None, None)
