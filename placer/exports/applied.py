"""A plan held against what a runtime says it applied: one comparison per thing that the plan decides."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """One thing that the plan decides.

    Attributes
    ----------
    what
        Its name.
    planned, found
        As text; ``found`` is None where the source does not say.
    same
        Whether they agree; None where ``found`` is None and the plan can do without it.
    do
        What to do where they differ, or why it was not compared.
    """

    what: str
    planned: str
    found: str | None
    same: bool | None
    do: str = ""


@dataclass(frozen=True)
class Applied:
    """What ran against what was planned; ``source`` names the file that says so."""

    runtime: str
    source: str
    rows: tuple[Comparison, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(row.same is not False for row in self.rows)

    def document(self) -> dict[str, Any]:
        """What `placer export --check-log --json` prints."""
        return {
            "runtime": self.runtime,
            "source": self.source,
            "same": self.same,
            "rows": [asdict(row) for row in self.rows],
        }
