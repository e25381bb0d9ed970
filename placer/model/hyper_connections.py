"""Hyper-connections of DeepSeek-V4: several residual streams and the matrices that mix them, in float32."""

from placer.model.config import Config
from placer.model.module import Module


def layer_connections(config: Config, layer: str) -> list[Module]:
    """The mixers around attention and MLP of the layer named ``layer``.

    Each maps the ``hc_mult`` streams, side by side, to n read, n write and n·n mixing weights
    (sglang/srt/models/deepseek_v4.py, DeepseekV4DecoderLayer).
    """
    streams, hidden = config.count("hc_mult"), config.count("hidden_size")
    mixes = (2 + streams) * streams
    return [
        Module(layer, "norms", shape, dtype="F32", parameter=f"hc_{at}_{name}")
        for at in ("attn", "ffn")
        for name, shape in (("fn", (mixes, streams * hidden)), ("base", (mixes,)), ("scale", (3,)))
    ]


def head_connections(config: Config, prefix: str) -> list[Module]:
    """What joins the streams before the output head; ``prefix`` is that of an MTP layer, or empty."""
    streams, hidden = config.count("hc_mult"), config.count("hidden_size")
    shapes = (("fn", (streams, streams * hidden)), ("base", (streams,)), ("scale", (1,)))
    if prefix:
        return [
            Module(prefix, "mtp", shape, dtype="F32", parameter=f"hc_head_{name}") for name, shape in shapes
        ]
    # The model's own lie at the top of the checkpoint, in no module.
    return [Module(f"hc_head_{name}", "norms", shape, dtype="F32", parameter="") for name, shape in shapes]
