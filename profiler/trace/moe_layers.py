"""Which rows of a runtime's dump are MoE layers, and which checkpoint layer each one is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError


@dataclass(frozen=True)
class MoeLayers:
    """The MoE rows of a dump.

    Attributes
    ----------
    rows
        int [L] into the dump's layer axis.
    layers
        Checkpoint index of each.
    notes
        What was taken for a dense layer.
    """

    rows: NDArray[np.intp]
    layers: tuple[int, ...]
    notes: tuple[str, ...]


def moe_layers(
    chosen: NDArray[np.bool_], layers: Sequence[int] | None, where: str, *, axes: str | None = None
) -> MoeLayers:
    """Match the rows of a dump (``chosen`` bool: a token was routed there) to the model's ``layers``.

    A dump has a row per hidden layer (row = checkpoint index) or a row per MoE layer. Without ``layers``,
    rows are hidden layers and those where nothing was routed are dense. ``axes`` are those that the dump's array must
    have, where its writer chose them.

    Raises
    ------
    BadInputError
        When rows and ``layers`` do not fit, or a MoE layer of the model has no selection.
    """
    rows = len(chosen)
    order = "" if axes is None else f"; the array's axes are {axes}"
    if layers is None:
        kept = np.flatnonzero(chosen)
        if not kept.size:
            raise BadInputError(
                f"{where}: no layer holds a selection", "record while the server answers requests"
            )
        dense = np.flatnonzero(~chosen).tolist()
        notes = (f"nothing was routed in rows {dense}: taken for dense layers and dropped",) if dense else ()
        return MoeLayers(kept, tuple(kept.tolist()), notes)
    wanted = tuple(int(layer) for layer in layers)
    if rows == len(wanted):
        kept = np.arange(rows)
    elif wanted and rows > max(wanted):
        kept = np.asarray(wanted, dtype=np.intp)
        others = np.setdiff1d(np.flatnonzero(chosen), kept)
        if others.size:
            raise BadInputError(
                f"{where}: tokens were routed in layer {others[0]}, which has no experts in the model",
                "give the model that made this dump, and count layers as its checkpoint does (dense layers too)"
                f"{order}",
            )
    else:
        raise BadInputError(
            f"{where}: {rows} layers, the model has {len(wanted)} MoE layers up to {max(wanted, default=-1)}",
            f"give the model that made this dump{order}",
        )
    silent = kept[~chosen[kept]]
    if silent.size:
        named = wanted[int(np.flatnonzero(kept == silent[0])[0])]
        raise BadInputError(
            f"{where}: nothing was routed in MoE layer {named} of the model",
            "give the model that made this dump, or record again",
        )
    return MoeLayers(kept, wanted, ())
