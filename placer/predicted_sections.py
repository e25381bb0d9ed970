"""The predicted figures of placement.json: latencies, throughput, occupancy, the split of a step, bands."""

from pydantic import Field

from placer.section import Section


class Spread(Section):
    """A latency over requests, in milliseconds."""

    mean: float | None = Field(default=None, ge=0)
    p50: float | None = Field(default=None, ge=0)
    p95: float | None = Field(default=None, ge=0)
    p99: float | None = Field(default=None, ge=0)


class KvOccupancy(Section):
    """KV tokens held, over time and at most."""

    mean: float = Field(ge=0)
    peak: int = Field(ge=0)


class Figures(Section):
    """Predicted figures of one placement; ``per_layer_ms`` follows ``model.layers``, ``moe_step_us`` is all of them.

    ``queue_ms`` is from a request's arrival to its place on the server. ``goodput_tokens_per_s`` counts the output of
    requests that keep every target. ``retractions_per_request`` is how often a request lost its KV.
    """

    decode_step_ms: float = Field(ge=0)
    tpot_ms: Spread
    ttft_ms: Spread
    output_tokens_per_s: float = Field(ge=0)
    cold_share: float = Field(ge=0, le=1)
    per_layer_ms: tuple[float, ...] | None = None
    queue_ms: Spread | None = None
    requests_per_s: float | None = Field(default=None, ge=0)
    goodput_tokens_per_s: float | None = Field(default=None, ge=0)
    kv_tokens: KvOccupancy | None = None
    retractions_per_request: float | None = Field(default=None, ge=0)
    moe_step_us: float | None = Field(default=None, ge=0)


class TimeSplitSection(Section):
    """Where the mean decode step's time goes, in milliseconds; lists follow ``model.layers``.

    ``base``, ``attention_kv``, ``hot``, ``cold_wait`` and ``transfer`` sum to the step; ``cold`` is what the CPU
    computes beside them. ``base`` is everything outside the experts but reading KV, the merge of the sides included;
    ``cold_wait`` how long the CPU takes beyond the GPU, copies apart.
    """

    base: float = Field(ge=0)
    attention_kv: float = Field(ge=0)
    hot: tuple[float, ...]
    cold_wait: tuple[float, ...]
    transfer: tuple[float, ...]
    cold: tuple[float, ...]


class BandSection(Section):
    """What a figure lies between, as far as the cost model's own error says; null where it has no bound."""

    low: float | None = Field(ge=0)
    mid: float | None = Field(ge=0)
    high: float | None = Field(ge=0)


class SpreadBands(Section):
    """Bands of a latency's percentiles."""

    p50: BandSection
    p95: BandSection


class BandsSection(Section):
    """Bands of the figures, simulated again with every part of the cost model at its low and high factor.

    ``rests_on`` says for each part where its factors come from. Routing and traffic are taken as known.
    """

    output_tokens_per_s: BandSection
    tpot_ms: SpreadBands
    ttft_ms: SpreadBands
    rests_on: dict[str, str]


class OpenLoopSection(Section):
    """Whether the server keeps up with requests that arrive by themselves.

    ``capacity_per_s`` is what it finishes when requests always wait.
    """

    arrivals_per_s: float | None = Field(default=None, gt=0)
    capacity_per_s: float = Field(gt=0)
    falls_behind: bool


class PredictedSection(Figures):
    """The plan's own figures, and in ``provenance`` where each part of them comes from."""

    provenance: dict[str, str]
    open_loop: OpenLoopSection | None = None
    time_split: TimeSplitSection | None = None
    band: BandsSection | None = None
