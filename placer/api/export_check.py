"""`placer.export_check`: does a server run the plan?"""

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
    check_dump: Source | None = None,
) -> ExportCheck:
    """Hold the placement in the file ``placement`` against a server's log, its dumped mask, or both.

    Raises
    ------
    BadInputError
        When neither is given, the runtime is unknown, or a file is invalid or of another model.
    """
    if check_log is None and check_dump is None:
        raise BadInputError("there is nothing to check", "give --check-log, --check-dump or both")
    log, dump = path_or_none(check_log), path_or_none(check_dump)
    return ExportCheck(check_applied(Path(placement), runtime=runtime, log=log, dump=dump))
