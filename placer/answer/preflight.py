"""What `placer preflight` prints: the verdict, what to do, then every check with how it was made."""

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.part import VerdictLine
from placer.readiness.check import Check, Preflight, Verdict


def preflight_answer(preflight: Preflight) -> RenderableType:
    """One line for the verdict; each check: found, needed, how it was found, what to do."""
    count = {verdict: sum(check.verdict is verdict for check in preflight.checks) for verdict in Verdict}
    failed = ", ".join(check.name for check in preflight.checks if check.verdict is Verdict.FAIL)
    parts = ", ".join(
        f"{number} {verdict}{f' ({failed})' if verdict is Verdict.FAIL else ''}"
        for verdict, number in count.items()
        if number
    )
    ready = "not ready" if preflight.exit_code else "ready"
    if not preflight.exit_code and count[Verdict.UNKNOWN]:
        ready = "ready as far as could be checked"
    head = VerdictLine(f"{ready} for {preflight.runtime}: {parts}")
    worst = sorted(preflight.checks, key=lambda check: list(_ORDER).index(check.verdict))
    return Group(head, *[line for check in worst for line in _lines(check)])


_ORDER = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.OK)


def _lines(check: Check) -> list[Text]:
    how = f" ({check.how})" if check.how else ""
    lines = [Text(f"{check.verdict}: {check.name}: {check.found}{how}; needed: {check.needed}")]
    return [*lines, Text(f"    do: {check.do}")] if check.do else lines
