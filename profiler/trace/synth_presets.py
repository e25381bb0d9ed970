"""Presets of the synthetic traces: how skewed, how local and how domain-bound the routers of a model are."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerShape:
    """Routing of one layer; layers between two given ones are interpolated.

    Attributes
    ----------
    layer
        Row of the MoE layer.
    base
        Gamma shape of the experts' own scores: small is skewed.
    request
        Gamma shape of a request's own factor: small is a narrow working set.
    reuse
        Probability ρ that a token keeps each of its predecessor's experts.
    """

    layer: int
    base: float
    request: float
    reuse: float


@dataclass(frozen=True)
class SynthPreset:
    """How the routers of one model behave.

    Attributes
    ----------
    model, layers, experts, top_k
        The model's name and shape.
    shapes
        Points over depth, first and last layer included.
    domain_shape, prompt_domain_shape
        Gamma shape of a domain's factor in outputs and in prompts: small is specific to the domain.
    prompt_overlap
        Share of experts whose own score is the same in prompts as in outputs; the rest draw another.
    prompt_reuse
        ρ in prompts as a share of ρ in outputs.
    origin
        Where the statistics come from.
    domains_compete
        Whether an expert that serves one domain serves others less, so that hot sets overlap less than by chance.
    """

    model: str
    layers: int
    experts: int
    top_k: int
    shapes: tuple[LayerShape, ...]
    domain_shape: float
    prompt_domain_shape: float
    prompt_overlap: float
    prompt_reuse: float
    origin: str
    domains_compete: bool = False


# Shapes and ρ were tuned by simulation (64 requests of 192 tokens, 4 domains) until pooled Gini, reuse
# between consecutive tokens and, for gpt-oss, reuse between random tokens of a request and the overlap of
# domains met the measured figures of layers at that depth. The tests compare whole traces with the figures.
_GPT_OSS_20B = SynthPreset(
    model="gpt-oss-20b",
    layers=24,
    experts=32,
    top_k=4,
    shapes=(
        LayerShape(0, 4.8, 6.3, 0.0),
        LayerShape(1, 2.65, 2.1, 0.08),
        LayerShape(3, 1.24, 1.0, 0.22),
        LayerShape(5, 1.6, 1.3, 0.2),
        LayerShape(7, 2.05, 1.65, 0.18),
        LayerShape(10, 0.67, 0.62, 0.33),
        LayerShape(13, 0.67, 0.62, 0.33),
        LayerShape(15, 1.6, 2.0, 0.23),
        LayerShape(17, 1.1, 1.6, 0.27),
        LayerShape(20, 1.75, 1.6, 0.19),
        LayerShape(21, 0.8, 1.0, 0.22),
        LayerShape(23, 0.64, 0.73, 0.27),
    ),
    domain_shape=4.0,
    prompt_domain_shape=16.0,
    prompt_overlap=0.8,
    prompt_reuse=0.8,
    origin="decode routing of gpt-oss-20b, AmanPriyanshu/GPT-OSS-MoE-ExpertFingerprinting @72b368f6",
)
_QWEN3_30B_A3B = SynthPreset(
    model="Qwen3-30B-A3B",
    layers=48,
    experts=128,
    top_k=8,
    shapes=(
        LayerShape(0, 1.91, 50.0, 0.0),
        LayerShape(1, 1.2, 8.0, 0.05),
        LayerShape(2, 0.83, 2.5, 0.1),
        LayerShape(5, 0.64, 1.1, 0.36),
        LayerShape(7, 0.64, 1.1, 0.53),
        LayerShape(20, 0.64, 1.1, 0.35),
        LayerShape(40, 0.56, 1.5, 0.23),
        LayerShape(47, 0.52, 6.0, 0.01),
    ),
    domain_shape=4.0,
    prompt_domain_shape=16.0,
    prompt_overlap=0.8,
    prompt_reuse=0.8,
    origin=(
        "decode counts of Qwen3-30B-A3B, doramirdor/mbolt @e7e9dbf7, and its reuse between tokens, "
        "gajsanders/moe-trace findings 005 and 006"
    ),
)
# One domain of it has the skew of the recorded counts, which come from instructions and code; the pool of several is
# flatter, by as much as gpt-oss-20b's pool is flatter than its domains (Gini .40 after .50 to .55).
_QWEN3_NEXT_80B_A3B = SynthPreset(
    model="Qwen3-Next-80B-A3B",
    layers=48,
    experts=512,
    top_k=10,
    shapes=(
        LayerShape(0, 6.1, 12.0, 0.02),
        LayerShape(1, 2.6, 5.0, 0.15),
        LayerShape(2, 5.3, 5.0, 0.2),
        LayerShape(4, 2.0, 1.6, 0.48),
        LayerShape(40, 1.5, 1.6, 0.48),
        LayerShape(47, 1.5, 3.0, 0.15),
    ),
    domain_shape=2.6,
    prompt_domain_shape=16.0,
    prompt_overlap=0.8,
    prompt_reuse=0.8,
    origin=(
        "decode counts of Qwen3-Next-80B-A3B, doramirdor/mbolt @e7e9dbf7, and the reuse between tokens of another "
        "model of its shape, jiro-prog/llamacpp-moe-expert-cache docs/findings.md"
    ),
)
# Skew by layer and reuse between random tokens of a request follow the recorded counts of 1,024 requests. How
# often the very next token reuses an expert was not recorded; 0.12 is about half of what skewed models show.
_OLMOE = SynthPreset(
    model="OLMoE-1B-7B",
    layers=16,
    experts=64,
    top_k=8,
    shapes=(
        LayerShape(0, 3.0, 2.4, 0.05),
        LayerShape(1, 4.6, 6.0, 0.12),
        LayerShape(2, 4.8, 3.0, 0.12),
        LayerShape(6, 2.5, 1.4, 0.12),
        LayerShape(9, 4.6, 3.0, 0.12),
        LayerShape(10, 4.6, 5.0, 0.12),
        LayerShape(12, 3.9, 2.0, 0.12),
        LayerShape(15, 2.9, 1.9, 0.12),
    ),
    domain_shape=4.0,
    prompt_domain_shape=16.0,
    prompt_overlap=0.8,
    prompt_reuse=0.8,
    origin=(
        "counts per request of OLMoE-1B-7B, pjordanandrsn/experts4bit-qlora @6abb0ad1 (reuse by the next "
        "token: assumed)"
    ),
)
_MIXTRAL = SynthPreset(
    model="Mixtral-8x7B",
    layers=32,
    experts=8,
    top_k=2,
    shapes=(
        LayerShape(0, 60.0, 20.0, 0.0),
        LayerShape(3, 40.0, 14.0, 0.05),
        LayerShape(31, 40.0, 14.0, 0.05),
    ),
    domain_shape=14.0,
    prompt_domain_shape=30.0,
    prompt_overlap=0.8,
    prompt_reuse=0.8,
    origin=(
        "fractions per request of Mixtral-8x7B on MMLU, ajtejankar/mixtral-vis-moe @5c2f185d (reuse by the next "
        "token: assumed)"
    ),
)
_DOMAIN_BOUND = SynthPreset(
    model="OLMoE-1B-7B",
    layers=16,
    experts=64,
    top_k=8,
    shapes=(LayerShape(0, 20.0, 3.5, 0.05), LayerShape(2, 20.0, 2.5, 0.12), LayerShape(15, 20.0, 2.5, 0.12)),
    domain_shape=0.65,
    prompt_domain_shape=2.0,
    prompt_overlap=0.8,
    prompt_reuse=0.8,
    origin=(
        "OLMoE-1B-7B on text and on code, allenai/OLMoE @357454f4 (domains that do not overlap; reuse by the next "
        "token: assumed)"
    ),
    domains_compete=True,
)
PRESETS = {
    "gpt-oss-20b": _GPT_OSS_20B,
    "qwen3-30b-a3b": _QWEN3_30B_A3B,
    "qwen3-next-80b-a3b": _QWEN3_NEXT_80B_A3B,
    "olmoe": _OLMOE,
    "mixtral": _MIXTRAL,
    "domain-bound": _DOMAIN_BOUND,
}
"""Presets by the name that ``--preset`` takes."""
