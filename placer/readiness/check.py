"""One check of a machine against a plan, and the verdict over all of them."""

from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from typing import Any

from placer.errors import InfeasibleError, MissingComponentError


class Verdict(StrEnum):
    """What a check came to; ``UNKNOWN`` where the machine does not tell."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Failure(Enum):
    """What a failed check means: it does not fit (exit code 3), or a component is missing or wrong (4)."""

    UNFIT = InfeasibleError.exit_code
    MISSING = MissingComponentError.exit_code


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    name
        What was checked.
    verdict
        What it came to.
    found, needed
        What the machine has and what the plan needs, as text.
    how
        Where ``found`` comes from.
    do
        What to do where the verdict is not ok.
    failure
        What it means where the check fails.
    """

    name: str
    verdict: Verdict
    found: str
    needed: str
    how: str
    do: str = ""
    failure: Failure = Failure.UNFIT


@dataclass(frozen=True)
class Preflight:
    """All checks of one machine against one plan, for ``runtime``."""

    runtime: str
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        """0 when no check failed, 4 when a component is missing or wrong, otherwise 3: the plan does not fit.

        Warnings and unknowns do not fail. A missing component comes first: what fits can change with it.
        """
        failed = {check.failure for check in self.checks if check.verdict is Verdict.FAIL}
        if Failure.MISSING in failed:
            return Failure.MISSING.value
        return Failure.UNFIT.value if failed else 0

    def document(self) -> dict[str, Any]:
        """What `placer preflight --json` prints."""
        return {
            "runtime": self.runtime,
            "ready": self.exit_code == 0,
            "exit_code": self.exit_code,
            "checks": [
                {name: value for name, value in asdict(check).items() if name != "failure"}
                | {"verdict": check.verdict.value}
                for check in self.checks
            ],
        }
