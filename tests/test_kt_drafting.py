"""Speculative decoding in an export: as planned, off unless planned, refused where the runtime is not known."""

from pathlib import Path
from typing import Any

import pytest
from family_configs import DEEPSEEK_V3, QWEN3_NEXT_80B
from planned import planned
from test_remedy import model_of

from placer.errors import BadInputError
from placer.exports.kt_drafting import DRAFTING_ARCHITECTURES, drafting_flags
from placer.exports.kt_flags import left_unset, server_flags
from placer.parallelism import Parallelism
from placer.placement import PlacementDocument


def flags_of(document: PlacementDocument, config: dict[str, Any]) -> dict[str, Any]:
    flags = server_flags(
        document, config, ratio=0.0, mem_fraction_static=0.5, model_path=None, kt_weight_path=None
    )
    return {flag.name: flag.value for flag in flags}


@pytest.mark.parametrize("config", [DEEPSEEK_V3, QWEN3_NEXT_80B])
def test_a_plan_that_drafts_starts_a_server_that_drafts(tmp_path: Path, config: dict[str, Any]) -> None:
    document = planned(model_of(tmp_path, config), speculative=True)
    flags = flags_of(document, config)
    assert flags["speculative-algorithm"] == "EAGLE"
    # Three tokens drafted one after another, and the one that follows from the last: four are verified.
    assert flags["speculative-num-steps"] == 3
    assert flags["speculative-eagle-topk"] == 1
    assert flags["speculative-num-draft-tokens"] == 4
    assert "speculative-algorithm" not in left_unset(document)
    assert document.hbm.ledger["mtp"] > 0


def test_a_plan_that_does_not_draft_says_to_leave_it_off(tmp_path: Path) -> None:
    document = planned(model_of(tmp_path, DEEPSEEK_V3))
    assert not any(name.startswith("speculative") for name in flags_of(document, DEEPSEEK_V3))
    assert "no memory for a draft" in left_unset(document)["speculative-algorithm"]


def test_an_architecture_that_was_not_verified_is_refused(tmp_path: Path) -> None:
    document = planned(model_of(tmp_path, DEEPSEEK_V3), speculative=True, parallel=Parallelism(8))
    config = {**DEEPSEEK_V3, "architectures": ["Ernie4_5_MoeForCausalLM"]}
    with pytest.raises(BadInputError, match=r"does so for Ernie4_5_MoeForCausalLM has not been verified"):
        drafting_flags(document, config)
    assert "Ernie4_5_MoeForCausalLM" not in DRAFTING_ARCHITECTURES
