"""What is known of the model behind a file before the file is read."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownModel:
    """The model that a trace must belong to; None is taken from the file where it says so.

    Attributes
    ----------
    name
        Its name in the trace's header.
    layers
        Checkpoint indices of its MoE layers.
    hidden_layers
        All layers, dense ones too.
    experts, top_k
        Routed experts per layer, and how many each token chooses.
    """

    name: str | None = None
    layers: Sequence[int] | None = None
    hidden_layers: int | None = None
    experts: int | None = None
    top_k: int | None = None
