"""Which layers of a model are MoE layers, by the rules that families use."""

from placer.model.config import MAX_LAYERS, Config


def every_layer(config: Config, num_layers: int) -> tuple[int, ...]:
    """All layers (Mixtral, OLMoE, gpt-oss, Phi-3.5-MoE, MiniMax-M2)."""
    del config
    return tuple(range(num_layers))


def after_dense_prefix(config: Config, num_layers: int) -> tuple[int, ...]:
    """Layers i >= first_k_dense_replace with i % moe_layer_freq == 0; a list moe_layer_freq is a mask.

    Source: transformers/models/deepseek_v3, modeling_deepseek.py of DeepSeek-V3.
    """
    first = config.count("first_k_dense_replace", least=0, most=MAX_LAYERS)
    if config.has("moe_layer_freq") and isinstance(config.fields["moe_layer_freq"], list):
        mask = config.items("moe_layer_freq")
        if len(mask) != num_layers or any(entry not in (0, 1) for entry in mask):
            raise config.error("moe_layer_freq", mask, f"one 0 or 1 for each of the {num_layers} layers")
        return tuple(i for i in range(first, num_layers) if mask[i])
    every = config.count("moe_layer_freq", most=MAX_LAYERS, default=1)
    return tuple(i for i in range(first, num_layers) if i % every == 0)


def sparse_step(config: Config, num_layers: int) -> tuple[int, ...]:
    """Layers outside mlp_only_layers with (i + 1) % decoder_sparse_step == 0 (Qwen3-MoE)."""
    step = config.count("decoder_sparse_step", most=MAX_LAYERS, default=1)
    dense = config.items("mlp_only_layers")
    if not all(isinstance(layer, int) and not isinstance(layer, bool) and layer >= 0 for layer in dense):
        raise config.error("mlp_only_layers", dense, "a list of layer indices")
    skipped = set(dense)
    return tuple(i for i in range(num_layers) if i not in skipped and (i + 1) % step == 0)
