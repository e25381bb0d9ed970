"""What a serving runtime takes from placer: the plan, read with the standard library alone."""

from placer.runtime.load import Kv, Placement, PlacementError, load

__all__ = ["Kv", "Placement", "PlacementError", "load"]
