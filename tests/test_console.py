"""What reaches the terminal: 100 columns, commands whole, and nothing raw from names and files."""

import os
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group
from rich.table import Table
from rich.text import Text

from placer.answer.console import command, command_line, print_answer, print_line, wrapped
from placer.answer.visible import all_visible, visible

EVIL = "\x1b[31mred\x1b[0m\r\n\x07\u202efake"
SHOWN = r"\x1b[31mred\x1b[0m\r\n\x07\u202efake"


def test_control_characters_are_spelled_out() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("Größe 3 µs █▇ …") == "Größe 3 µs █▇ …"
    # A byte of a file name that is no UTF-8.
    assert visible("a\udcffb") == r"a\udcffb"


@given(st.text())
def test_what_is_visible_prints(text: str) -> None:
    assert visible(text).isprintable()


@dataclass(frozen=True)
class Named:
    name: str
    counts: tuple[int, ...]


class Colour(StrEnum):
    RED = "red"


def test_documents_are_made_visible_throughout() -> None:
    document = {EVIL: [EVIL, 3, None, Named(EVIL, (1, 2)), Colour.RED]}
    assert all_visible(document) == {SHOWN: [SHOWN, 3, None, Named(SHOWN, (1, 2)), Colour.RED]}


def test_no_answer_writes_a_control_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=EVIL, box=None)
    table.add_column(EVIL)
    table.add_row(EVIL)
    print_answer(Group(Text(EVIL), table))
    print_line(f"error: {EVIL}")
    err = capsys.readouterr().err
    assert all(line.isprintable() for line in err.splitlines())
    assert f"error: {SHOWN}" in err


def test_markup_in_names_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("[bold]domain[/bold]")
    table.add_row("[red]code[/red] :smile:")
    print_answer(table)
    assert capsys.readouterr().err.splitlines() == ["[bold]domain[/bold]", "[red]code[/red] :smile:"]


def test_errors_wrap_at_spaces_but_not_in_quotes_or_paths() -> None:
    text = "error: the model's file is not one that 'placer trace import' wrote"
    assert wrapped(text, width=36) == (
        "error: the model's file is not one\n  that 'placer trace import' wrote"
    )
    path = "/srv/" + "long/" * 10 + "my trace.safetensors"
    assert wrapped(f"cannot read {path}: no such file", width=40, whole=[path]).splitlines() == [
        "cannot read",
        f"  {path}:",
        "  no such file",
    ]


def test_a_long_command_goes_on_after_a_backslash(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(command("next:", ["placer export", "/srv/" + "x" * 60, "--runtime sglang-kt", "-o DIR"]))
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"next: placer export /srv/{'x' * 60} \\"
    assert second == "  --runtime sglang-kt -o DIR"
    print_answer(command("run:", ["./" + "y" * 150]))
    assert capsys.readouterr().err.splitlines() == ["run:", "  ./" + "y" * 150]
    folder = "/srv/" + "a b/" * 20 + "launch.sh"
    print_answer(command_line("launch:", f"MODEL_PATH=DIR '{folder}'"))
    assert capsys.readouterr().err.splitlines() == ["launch: MODEL_PATH=DIR \\", f"  '{folder}'"]


def test_an_option_stays_beside_its_value() -> None:
    assert wrapped("  do: solve again with --max-running 64 and --tp N", width=38) == (
        "  do: solve again with\n  --max-running 64 and --tp N"
    )


@pytest.mark.parametrize(
    ("columns", "width"), [("80", 80), ("20", 60), ("300", 100), ("wide", 100), ("", 100)]
)
def test_a_pipe_is_written_in_the_columns_that_were_asked_for(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_line("ab " * 100, indent="")
    assert max(map(len, capsys.readouterr().err.splitlines())) == width - (width + 1) % 3


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=40)))
def test_wrapped_text_keeps_its_words_and_its_width(words: list[str]) -> None:
    lines = wrapped(" ".join(words)).splitlines()
    assert " ".join(lines).split() == words
    assert all(len(line) <= 100 for line in lines)


def test_a_table_too_wide_for_the_terminal_cuts_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells wrap between their words; a row whose words do not fit runs over the edge."""
    table = Table(box=None, pad_edge=False)
    for header in ("placement", "decode step", "tokens/s"):
        table.add_column(header, justify="right")
    table.add_row("frequency", "24.35 ms (+6.7%)", "1,234.5")
    monkeypatch.setattr("placer.answer.console.WIDTH", 26)
    print_answer(table)
    err = capsys.readouterr().err
    words = "placement decode step tokens/s frequency 24.35 ms (+6.7%) 1,234.5"
    assert sorted(err.split()) == sorted(words.split())


@pytest.mark.parametrize(
    ("arguments", "code"), [(["hardware", "--list"], 0), (["inspect", "--model", "nowhere"], 2)]
)
@pytest.mark.parametrize("refusing", ["closed pipe", "full disk"])
def test_text_that_nobody_can_read_changes_no_exit_code(
    arguments: list[str], code: int, refusing: str
) -> None:
    if refusing == "full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "placer", *arguments], stdout=subprocess.PIPE, stderr=stderr, check=False
        )
    finally:
        os.close(stderr)
    assert done.returncode == code
