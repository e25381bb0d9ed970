"""The host ledger: kt-kernel holds every expert, hot ones too."""

import json
from pathlib import Path

import pytest
from test_model import QWEN3_CODER_480B

from placer.host import host_ledger
from placer.model.spec import read_model


def test_a_480b_model_holds_all_9920_experts_in_host_memory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    model = read_model(tmp_path)
    lines = host_ledger(model, cpu_method="RAWINT4", chunk_tokens=8192, numa_nodes=1).lines
    assert lines["experts"] == 9_920 * 29_491_200
    # The published scratch of one node of two at a chunk of 8,192 is 4.9 GB.
    both = host_ledger(model, cpu_method="AMXINT4", chunk_tokens=8192, numa_nodes=2).lines
    assert both["scratch"] / 2 / 1e9 == pytest.approx(4.9, abs=0.05)
    assert both["experts"] < lines["experts"]
