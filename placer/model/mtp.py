"""Multi-token-prediction layers: how many a checkpoint holds, under which names, and what they add."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from placer.model.config import Config
from placer.model.module import Module, Split


def _nothing(config: Config, layer: str) -> list[Module]:
    del config, layer
    return []


@dataclass(frozen=True)
class MtpLayers:
    """MTP layers as a family stores them. Each is a layer of the model besides what is listed here.

    Attributes
    ----------
    field
        Field with their number.
    at
        Name of the layer; ``{layer}`` counts on from the model's layers, ``{mtp}`` from 0.
    projections
        Matrices that join embedding and hidden state, with the multiple of H that their columns span.
    norms
        Vectors of width H.
    vocabularies
        Copies of embedding and head.
    shared_projections, shared_norms
        The same, once for all MTP layers, under their full names.
    quantised
        Whether a quantised checkpoint quantises the projections.
    dense
        Whether the layers hold a dense MLP instead of experts.
    extras
        Further modules of a layer.
    unless_stated
        Their number where config.json lacks ``field``.
    """

    field: str
    at: str = "model.layers.{layer}"
    projections: tuple[tuple[str, int], ...] = ()
    norms: tuple[str, ...] = ()
    vocabularies: tuple[str, ...] = ()
    shared_projections: tuple[tuple[str, int], ...] = ()
    shared_norms: tuple[str, ...] = ()
    quantised: bool = False
    dense: bool = False
    extras: Callable[[Config, str], list[Module]] = _nothing
    unless_stated: int = 0

    def name(self, num_layers: int, mtp: int) -> str:
        """Name of the ``mtp``-th MTP layer of a model of ``num_layers``."""
        return self.at.format(layer=num_layers + mtp, mtp=mtp)

    def own(self, config: Config, layer: str, H: int, vocab_size: int) -> Iterator[Module]:
        """What the layer holds beside attention, norms and MLP."""
        for name, multiple in self.projections:
            yield Module(f"{layer}.{name}", "mtp", (H, multiple * H), linear=self.quantised)
        for name in self.norms:
            yield Module(f"{layer}.{name}", "mtp", (H,))
        for name in self.vocabularies:
            yield Module(f"{layer}.{name}", "mtp", (vocab_size, H), Split.VOCAB)
        yield from self.extras(config, layer)

    def shared(self, H: int) -> Iterator[Module]:
        """What all MTP layers share."""
        for name, multiple in self.shared_projections:
            yield Module(name, "mtp", (H, multiple * H), linear=self.quantised)
        for name in self.shared_norms:
            yield Module(name, "mtp", (H,))


DEEPSEEK_MTP = MtpLayers(
    "num_nextn_predict_layers",
    projections=(("eh_proj", 2),),
    norms=("enorm", "hnorm", "shared_head.norm"),
    vocabularies=("embed_tokens", "shared_head.head"),
)
"""DeepSeek-V3 (its README_WEIGHTS.md), GLM-4.5 and later."""


def qwen_mtp(field: str) -> MtpLayers:
    """Qwen3-Next and Qwen3.5 (sglang/srt/models/qwen3_next_mtp.py); ``field`` has their number."""
    return MtpLayers(
        field,
        at="mtp.layers.{mtp}",
        shared_projections=(("mtp.fc", 2),),
        shared_norms=("mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"),
    )
