"""The section ``what_if`` of placement.json: changes to the server, each solved again."""

from typing import Literal

from pydantic import Field

from placer.section import Section


class WhatIfSection(Section):
    """One change. Figures are given where it ``fits``; ``gained`` is each figure over the plan's, less 1.

    ``fits`` is null where it cannot be told; ``problem`` then says why, or which line breaks the change. ``regime``
    names a border of the CPU kernel that the change crosses.
    """

    name: str
    text: str
    origin: str
    fits: bool | None
    regime: str | None = None
    problem: str | None = None
    output_tokens_per_s: float | None = Field(default=None, ge=0)
    tpot_ms_p95: float | None = Field(default=None, ge=0)
    ttft_ms_p95: float | None = Field(default=None, ge=0)
    gained: dict[str, float] | None = None
    hot_experts: int | None = Field(default=None, ge=0)
    kv_tokens: int | None = Field(default=None, ge=1)
    kv_dtype: Literal["bf16", "fp8"] | None = None
    max_running_requests: int | None = Field(default=None, ge=1)
    chunked_prefill_size: int | None = Field(default=None, ge=1)
