"""The section ``gpu_only`` of placement.json: the same server with every expert on its GPUs and no CPU side."""

from typing import Literal

from pydantic import Field

from placer.predicted_sections import BandSection
from placer.section import Section


class GpuOnlySection(Section):
    """What a runtime without CPU experts gives, as `placer compare` predicts it, where every expert fits on the GPUs.

    Figures and settings are given where it ``fits``; ``problem`` says what stands in its way otherwise. A latency is
    null where an open loop outruns the server.
    """

    fits: bool
    problem: str | None = None
    output_tokens_per_s: BandSection | None = None
    tpot_ms_p95: BandSection | None = None
    ttft_ms_p95: BandSection | None = None
    kv_tokens: int | None = Field(default=None, ge=1)
    kv_dtype: Literal["bf16", "fp8"] | None = None
    max_running_requests: int | None = Field(default=None, ge=1)
    chunked_prefill_size: int | None = Field(default=None, ge=1)
    provenance: dict[str, str] | None = None
