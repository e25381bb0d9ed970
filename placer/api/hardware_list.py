"""`placer.hardware_list`: the CPUs and GPUs that are known by name."""

from placer.api.checked import checked
from placer.api.facts import Facts
from placer.sheets import sheets_document


@checked
def hardware_list() -> Facts:
    """The names that ``cpu`` and ``gpu`` take, with the figures of each datasheet and their sources."""
    return Facts(sheets_document())
