"""`placer.export_check`: does a server run the plan?"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.api.checked import checked
from placer.api.opened import Source, path_or_none
from placer.errors import BadInputError
from placer.exports.applied import Applied
from placer.exports.runtimes import check_applied


@dataclass(frozen=True)
class ExportCheck:
    """What a server runs against what was planned, by each file that says so."""

    checks: tuple[Applied, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(check.same for check in self.checks)

    def document(self) -> dict[str, Any]:
        """What ``export --check-log --json`` prints."""
        return {"same": self.same, "checks": [check.document() for check in self.checks]}


@checked
def export_check(
    placement: Source,
    *,
    runtime: str = "sglang-kt",
    check_log: Source | None = None,
    check_dump: Source | Sequence[Source] | None = None,
) -> ExportCheck:
    """Hold the placement in the file ``placement`` against a server's log, its dumped masks, or both.

    A server dumps a mask at every ``./record.sh dump``: ``check_dump`` takes one of them or any number.

    Raises
    ------
    BadInputError
        When neither is given, the runtime is unknown, or a file is invalid or of another model.
    """
    given = (
        ()
        if check_dump is None
        else (check_dump,)
        if isinstance(check_dump, str | os.PathLike)
        else check_dump
    )
    dumps = [Path(each) for each in given]
    if check_log is None and not dumps:
        raise BadInputError("there is nothing to check", "give --check-log, --check-dump or both")
    log = path_or_none(check_log)
    return ExportCheck(check_applied(Path(placement), runtime=runtime, log=log, dumps=dumps))
