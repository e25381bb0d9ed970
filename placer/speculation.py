"""Speculative decoding with a model's own MTP layer: the settings that cost memory and become flags."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Speculation:
    """How many tokens the MTP layer drafts, in SGLang's terms.

    Attributes
    ----------
    steps
        Tokens that are drafted one after another (``--speculative-num-steps``).
    branches
        Candidates of a step (``--speculative-eagle-topk``).
    draft_tokens
        Tokens of a request that one pass verifies (``--speculative-num-draft-tokens``).
    """

    steps: int = 3
    branches: int = 1
    draft_tokens: int = 4


MTP_SPECULATION = Speculation()
"""What SGLang chooses for MTP layers (auto_choose_speculative_params in sglang/srt/server_args.py)."""
