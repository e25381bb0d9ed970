"""What `placer export --check-log` and `--check-dump` print: the verdict, then what differs and what to do."""

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.part import InFull, Usually, VerdictLine
from placer.exports.applied import Applied, Comparison

SHOWN = 8
"""Differences that are printed; --json has all."""
_NAMED = 3
"""Differences that the verdict names, which is all that ``-q`` prints."""


def applied_answer(applied: Applied) -> RenderableType:
    """The verdict, the differences with what to do about each, and what could not be compared."""
    different = [row for row in applied.rows if row.same is False]
    unknown = [row for row in applied.rows if row.same is None]
    same = len(applied.rows) - len(different) - len(unknown)
    if different:
        named = ", ".join(row.what for row in different[:_NAMED])
        more_of = f" and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
        head = VerdictLine(
            f"the server does not run the plan: {len(different)} of {len(applied.rows)} checks differ "
            f"({named}{more_of})"
        )
    else:
        head = VerdictLine(f"the server runs the plan: {same} checks agree")
    lines = [Text(f"{applied.source}, as {applied.runtime} writes it")]
    lines += [line for row in different[:SHOWN] for line in _difference(row)]
    rest = [line for row in different[SHOWN:] for line in _difference(row)]
    more = (
        [Usually(Text(f"... and {len(different) - SHOWN} more (-v shows all)")), InFull(*rest)]
        if rest
        else []
    )
    skipped = [Text(f"not compared: {row.what}: {row.do}", style="dim") for row in unknown]
    return Group(head, *lines, *more, *skipped)


def _difference(row: Comparison) -> list[Text]:
    found = "nothing" if row.found is None else row.found
    lines = [Text(f"{row.what}: planned {row.planned}, found {found}")]
    return [*lines, Text(f"    do: {row.do}")] if row.do else lines
