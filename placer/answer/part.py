"""Parts of an answer that are printed with `-q` too, or with `-v` alone."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.detail import Detail


class VerdictLine(Text):
    """What the answer comes to, in a sentence; all that `-q` prints."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, style="bold")


class InFull:
    """Parts that only `-v` prints."""

    def __init__(self, *parts: RenderableType) -> None:
        self.parts = parts

    def __rich__(self) -> Group:
        return Group(*self.parts)


def note_lines(notes: Iterable[str]) -> list[Text]:
    """Notes dimmed, and warnings among them not."""
    return [
        Text(note, style="yellow") if note.startswith("warning: ") else Text(f"note: {note}", style="dim")
        for note in notes
    ]


class Usually(InFull):
    """Parts that `-v` replaces by more."""


def chosen_parts(answer: RenderableType, detail: Detail) -> list[RenderableType]:
    """The parts of ``answer``, a group or one part, that are printed at ``detail``."""
    if isinstance(answer, InFull):
        level = Detail.USUAL if isinstance(answer, Usually) else Detail.FULL
        return list(answer.parts) if detail is level else []
    if isinstance(answer, Group):
        return [part for inner in answer.renderables for part in chosen_parts(inner, detail)]
    return [answer] if isinstance(answer, VerdictLine) or detail is not Detail.QUIET else []
