"""Parts of an export's README.md that every runtime's shares."""

from collections.abc import Iterable

from placer.exports.flag import Flag


def one_line(text: str) -> str:
    """A name from a file, without what would end a heading or move a terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def flag_table(flags: Iterable[Flag]) -> list[str]:
    """A table of flags, their values and what each does for the plan."""
    return [
        "| flag | value | what it does for the plan |",
        "|---|---|---|",
        *(f"| `--{flag.name}` | `{_cell(flag)}` | {flag.why} |" for flag in flags),
    ]


def _cell(flag: Flag) -> str:
    if isinstance(flag.value, tuple):
        return " ".join(str(item) for item in flag.value)
    return f"{flag.value:.9f}" if flag.name == "kt-gpu-experts-ratio" else str(flag.value)
