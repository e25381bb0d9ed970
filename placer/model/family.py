"""What a family entry says: where a config.json has the counts, and how its checkpoints name the weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from placer.model.attention import Attention
from placer.model.config import Config
from placer.model.module import Module
from placer.model.mtp import MtpLayers
from placer.model.shared_experts import SharedExperts

EXPERT_COUNT_FIELDS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
"""Every field under which a family has the number of routed experts."""


@dataclass(frozen=True)
class Router:
    """The module that scores experts.

    Attributes
    ----------
    at, dtype
        Its place in a layer, and its element type where it is not the checkpoint's plain one.
    bias
        Whether it holds a bias [E] in the checkpoint's dtype.
    correction_at, correction_name
        Module and name of the score correction [E] in float32; None where there is none.
    has_correction
        Whether this config has the correction.
    hash_layers_field
        Field with the number of first layers that look experts up by token id, ``tid2eid`` [vocabulary, k],
        and need no correction.
    """

    at: str
    dtype: str | None = None
    bias: bool = False
    correction_at: str | None = None
    correction_name: str = "e_score_correction_bias"
    has_correction: Callable[[Config], bool] = lambda _config: True
    hash_layers_field: str | None = None


@dataclass(frozen=True)
class Experts:
    """Where a layer keeps its routed experts.

    Attributes
    ----------
    at
        Their place in a layer; expert e is ``{at}.{e}`` unless all are fused into one tensor.
    matrices
        Names of gate, up and down.
    bias
        Whether an expert holds biases, 2I + H values in bf16.
    """

    at: str = "mlp.experts"
    matrices: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    bias: bool = False


@dataclass(frozen=True)
class LatentExperts:
    """Routed experts that work on a narrower projection of the hidden state (Kimi-K3).

    Attributes
    ----------
    at
        Place in a layer of the projections down and up, ``routed_expert_down_proj`` and
        ``routed_expert_up_proj``, and of the norm between them.
    width_field, norm_field
        Field with the narrower width, absent where experts take the hidden state itself; and the field that
        switches the norm on.
    """

    at: str
    width_field: str = "routed_expert_hidden_size"
    norm_field: str = "latent_moe_use_norm"

    def modules(self, config: Config, layer: str, H: int) -> list[Module]:
        """The projections, whole on every GPU as the router is, and the norm; none without a narrower width."""
        if not config.has(self.width_field):
            return []
        width = config.count(self.width_field)
        at = f"{layer}.{self.at}"
        modules = [
            Module(f"{at}.routed_expert_down_proj", "router", (width, H)),
            Module(f"{at}.routed_expert_up_proj", "router", (H, width)),
        ]
        if config.flag(self.norm_field, default=False):
            modules.append(Module(f"{at}.routed_expert_norm", "norms", (width,)))
        return modules


def _no_modules(config: Config, layer: str) -> list[Module]:
    del config, layer
    return []


@dataclass(frozen=True)
class Family:
    """How to read the config.json and the checkpoint of one family.

    Attributes
    ----------
    model_types, architectures
        Values of ``model_type`` and ``architectures[0]`` that mean this family.
    experts_field, top_k_field, width_field
        Fields of E, k and the expert width I; several names of one count must agree, and each may be a list
        of equal numbers, one per layer.
    dense_width_field
        Fields of the width of layers that are not MoE layers: the first that is present.
    layer_rule
        Which layers are MoE layers.
    attention, router, experts, shared
        The weights of a layer; ``shared`` is None where there are no shared experts.
    latent
        The projections around routed experts that are narrower than the hidden state.
    mtp
        Multi-token-prediction layers, where the checkpoints hold some.
    block_scale_dtype, scale_name
        Element type of block-FP8 scales as this family's checkpoints store them, and their tensors' name
        where it is not ``weight_scale_inv``.
    norm_bias
        Whether the layer norms hold biases.
    layer_norms
        Names of a layer's norms of width H.
    dense_at, dense_matrices
        Place in a layer of a dense MLP, and the names of its gate, up and down.
    embedding_at, head_at
        Names of the embedding and of the output head.
    head_bias_field
        Field that gives the output head a bias.
    tied
        Whether head and embedding are one table when ``tie_word_embeddings`` is absent.
    layer_extras, model_extras
        Further modules of every layer, MTP layers included, and of the model.
    positions_field
        Fields of the tokens that positions reach: the first that is present.
    states_expert_dtype
        Whether a quantised config.json must give ``expert_dtype``, because its quantization_config names
        another format than that of the experts.
    hot_formats
        What a GPU holds routed experts in by their format in the checkpoint, where that is not block FP8.
    no_effect
        Structural fields that this family's published checkpoints carry and that change no size.
    """

    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    experts_field: tuple[str, ...]
    layer_rule: Callable[[Config, int], tuple[int, ...]]
    attention: Attention
    router: Router
    top_k_field: tuple[str, ...] = ("num_experts_per_tok",)
    width_field: tuple[str, ...] = ("moe_intermediate_size",)
    dense_width_field: tuple[str, ...] = ("intermediate_size",)
    experts: Experts = Experts()
    shared: SharedExperts | None = None
    latent: LatentExperts | None = None
    mtp: MtpLayers | None = None
    block_scale_dtype: str = "F32"
    scale_name: str = "weight_scale_inv"
    norm_bias: bool = False
    layer_norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    dense_at: str = "mlp"
    dense_matrices: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    embedding_at: str = "model.embed_tokens"
    head_at: str = "lm_head"
    head_bias_field: str | None = None
    tied: bool = False
    layer_extras: Callable[[Config, str], list[Module]] = _no_modules
    model_extras: Callable[[Config, str], list[Module]] = _no_modules
    positions_field: tuple[str, ...] = ("max_position_embeddings",)
    states_expert_dtype: bool = False
    hot_formats: Mapping[str, str] = field(default_factory=dict)
    no_effect: tuple[str, ...] = ()
