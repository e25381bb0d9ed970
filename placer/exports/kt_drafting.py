"""The sglang-kt flags of speculative decoding with the model's own MTP layer."""

from collections.abc import Mapping
from typing import Any

from placer.errors import BadInputError
from placer.exports.flag import Flag
from placer.exports.kt_selection import RUNTIME
from placer.placement import PlacementDocument

DRAFTING_ARCHITECTURES = (
    "BailingMoeV2ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV4ForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
)
"""Architectures of which the runtime makes a draft model out of the same checkpoint.

Source: _config_draft_model in sglang/srt/configs/model_config.py; without a draft path it takes the model's.
"""


def drafting_flags(placement: PlacementDocument, config: Mapping[str, Any]) -> list[Flag]:
    """Flags with which the MTP layer drafts as planned; none where the plan keeps no memory for it.

    Raises
    ------
    BadInputError
        When the plan drafts and the runtime is not known to find the model's MTP layer.
    """
    speculation = placement.kv.speculation
    if speculation is None:
        return []
    architecture = (config.get("architectures") or [placement.model.architecture])[0]
    if architecture not in DRAFTING_ARCHITECTURES:
        raise BadInputError(
            f"the plan drafts tokens with the MTP layer (kv.speculation); that {RUNTIME} does so for {architecture} "
            "has not been verified",
            "solve again without --speculative",
        )
    return [
        Flag("speculative-algorithm", "EAGLE", "Drafts with the MTP layer, for which the ledger has a line."),
        Flag("speculative-num-steps", speculation.steps, "Tokens drafted one after another."),
        Flag("speculative-eagle-topk", speculation.branches, "Candidates of a drafted token."),
        Flag("speculative-num-draft-tokens", speculation.draft_tokens, "Tokens that one pass verifies."),
    ]
