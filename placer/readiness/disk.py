"""Disk: room for the CPU experts where they still have to be made."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from placer.placement import PlacementDocument
from placer.readiness.check import Check, Verdict
from placer.units import gib


def check_disk(placement: PlacementDocument, path: str | None, *, present: bool) -> Iterator[Check]:
    """Free bytes at ``path`` against all experts in the CPU method's format, unless they are ``present``."""
    if path is None:
        room = f"{gib(placement.host.ledger.get('experts', 0))} where the CPU experts are still to be written"
        yield Check("disk", Verdict.UNKNOWN, "no --kt-weight-path", room, "", "give --kt-weight-path PATH")
        return
    needed = 0 if present else placement.host.ledger.get("experts", 0)
    place = Path(path).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    fits = needed <= free
    yield Check(
        "disk",
        Verdict.OK if fits else Verdict.FAIL,
        f"{gib(free)} free at {place}",
        f"{gib(needed)} to write the CPU experts" if needed else "nothing more to write",
        "free space of the file system",
        "" if fits else "free some space, or put --kt-weight-path on another disk",
    )
