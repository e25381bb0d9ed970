"""What `placer solve -v` prints of every layer."""

from rich.table import Table

from placer.placement import PlacementDocument
from placer.units import duration


def layer_table(document: PlacementDocument) -> Table:
    """Hot experts of every layer, and where its time of a decode step goes as far as the placement says."""
    split, times = document.predicted.time_split, document.predicted.per_layer_ms
    columns = {
        "in all": times,
        "hot": None if split is None else split.hot,
        "waiting for cold": None if split is None else split.cold_wait,
        "copies": None if split is None else split.transfer,
    }
    known = {name: column for name, column in columns.items() if column is not None}
    table = Table(title="by layer, of a decode step", title_justify="left", box=None, pad_edge=False)
    for header in ("layer", "hot experts", *known):
        table.add_column(header, justify="right")
    for place, layer in enumerate(document.model.layers):
        hot = f"{len(document.hot.get(str(layer), [])):,}"
        table.add_row(str(layer), hot, *(duration(1e3 * column[place]) for column in known.values()))
    return table
