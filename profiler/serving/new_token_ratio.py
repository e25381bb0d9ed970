"""What SGLang first thinks that running requests will still write, as a share of what they may."""

NEW_TOKEN_RATIO = 0.7
"""Share of the output still to come that running requests are first thought to need: sglang-kt 0.7.2's default."""
