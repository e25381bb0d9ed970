"""The attention of a model: which kind of attention each layer has."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from placer.model.config import Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module


class LayerAttention(Protocol):
    """What one kind of attention answers about a config."""

    def modules(self, config: Config, layer: str) -> list[Module]:
        """Weights of the attention of the layer named ``layer`` (``model.layers.3``)."""
        ...

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """Weights that the runtime derives while loading and keeps beside the checkpoint's own."""
        ...

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """What ``layers`` layers of this kind keep per token, windows included."""
        ...

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """What ``layers`` layers of this kind keep per request beside windows."""
        ...

    def kv_heads(self, config: Config) -> int | None:
        """KV heads that tensor parallelism divides; None where there is one latent vector."""
        ...


def one_kind(config: Config, num_layers: int) -> tuple[str, ...]:
    """Every layer has the attention named ``full``."""
    del config
    return ("full",) * num_layers


@dataclass(frozen=True)
class Attention:
    """The kinds of attention of a family, and the rule that gives every layer its kind.

    Attributes
    ----------
    by_kind
        Attention of a layer by the name of its kind; ``full`` is that of MTP layers too, unless ``mtp`` says
        otherwise.
    kinds
        Name of the kind of every layer. Entries beyond the last layer belong to MTP layers, whose cache the
        runtime keeps whether it drafts or not.
    mtp
        Kind of the MTP layers.
    """

    by_kind: Mapping[str, LayerAttention]
    kinds: Callable[[Config, int], tuple[str, ...]] = one_kind
    mtp: str = "full"

    def layers(self, config: Config, num_layers: int) -> list[LayerAttention]:
        """The attention of every layer, and after them that of MTP layers where ``kinds`` has them."""
        return [self.by_kind[kind] for kind in self.kinds(config, num_layers)]

    def cache(self, config: Config, num_layers: int) -> tuple[CacheGroup, ...]:
        """What all layers keep per token."""
        return tuple(
            group
            for kind, layers in self._counts(config, num_layers)
            for group in self.by_kind[kind].cache(config, layers)
        )

    def states(self, config: Config, num_layers: int) -> tuple[RequestState, ...]:
        """What all layers keep per request beside windows."""
        return tuple(
            state
            for kind, layers in self._counts(config, num_layers)
            for state in self.by_kind[kind].states(config, layers)
        )

    def kv_heads(self, config: Config) -> int | None:
        """KV heads of the full-attention layers."""
        return self.by_kind["full"].kv_heads(config)

    def _counts(self, config: Config, num_layers: int) -> list[tuple[str, int]]:
        counts = Counter(self.kinds(config, num_layers))
        return [(kind, counts[kind]) for kind in self.by_kind if counts[kind]]


def uniform(attention: LayerAttention) -> Attention:
    """The same attention in every layer."""
    return Attention({"full": attention})
