"""Shown output: commands of a document are run in order, and what they print is held against what it shows."""

import os
from pathlib import Path

import pytest

from placer.cli.progress import ProgressLines
from placer.examples.shown_output import main, same_output, steps_of, walk, with_outputs

DOCUMENT = """# Counting

```sh
echo one 100 > numbers.txt
```

```sh exit=1
cat numbers.txt nowhere.txt
```

```text
one 100
…
```

```sh
echo took 17 s
```

```text machine
took 3 s
```
"""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("decode step 10.00 ms", "decode step 10.19 ms"),
        ("1,000 experts", "990 experts"),
        ("line one\nline two", "line\none line two"),
        ("first\n…\nlast", "first\nsecond\nthird\nlast"),
        ("first\n…\nlast", "first\nlast"),
        ("… seconds", "17 seconds"),
        ("share ███", "share ████"),
    ],
)
def test_the_same_output(shown: str, printed: str) -> None:
    assert same_output(shown, printed, any_numbers=False)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("decode step 10.00 ms", "decode step 10.30 ms"),
        ("decode step 10.00 ms", "decode step 10.00 s"),
        ("gain +0.5%", "gain -0.5%"),
        ("first\nlast", "first\nsecond\nlast"),
        ("first", "first\nlast"),
    ],
)
def test_another_output(shown: str, printed: str) -> None:
    assert not same_output(shown, printed, any_numbers=False)


def test_numbers_of_the_machine_may_be_any() -> None:
    assert same_output("MAPE 0.5%, bias -0.2%", "MAPE 14%, bias +3.0%", any_numbers=True)
    assert not same_output("MAPE 0.5%", "error 0.5%", any_numbers=True)


def test_times_of_the_machine_may_be_in_any_unit() -> None:
    assert same_output("decode step 2.185 ms", "decode step 985 µs", any_numbers=True)
    assert not same_output("decode step 2.185 ms", "decode step 985 µs", any_numbers=False)
    assert not same_output("decode step 2.185 ms", "decode step 985 tokens", any_numbers=True)


def test_steps_are_taken_in_one_folder(tmp_path: Path) -> None:
    taken = list(walk(steps_of(DOCUMENT), tmp_path, dict(os.environ)))
    assert [each.exit_code for each in taken] == [0, 1, 0]
    assert taken[1].printed.startswith("one 100\n")
    assert all(each.as_shown for each in taken)


def test_progress_is_no_output(tmp_path: Path) -> None:
    lines = ProgressLines(0.0, 10.0)
    said = [
        lines.due("starting", 0.0, None, 10.0),
        lines.due("timing call 3 of 7", 0.3, None, 20.0),
        lines.due("timing call 4 of 7", 0.4, 30.0, 30.0),
        lines.due("timing call 5 of 7", 0.5, 600.0, 40.0),
    ]
    (tmp_path / "log").write_text("\n".join(["first", *filter(None, said), "30% done"]), encoding="utf-8")
    (taken,) = walk(
        steps_of("```sh\ncat log\n```\n```text\nfirst\n30% done\n```\n"), tmp_path, dict(os.environ)
    )
    assert len(list(filter(None, said))) == 4
    assert taken.printed == "first\n30% done\n"


TIMED = """```sh
echo x >> tries; echo $(wc -l < tries) try
```

```text machine
1 try
```

```sh
test $(wc -l < tries) -ge WANTED && echo fine || echo spoilt
```

```text machine
fine
```
"""


@pytest.mark.parametrize(("wanted", "tries", "as_shown"), [(1, 1, True), (3, 3, True), (4, 3, False)])
def test_timings_are_taken_again_together_up_to_three_times(
    tmp_path: Path, wanted: int, tries: int, as_shown: bool
) -> None:
    taken = list(walk(steps_of(TIMED.replace("WANTED", str(wanted))), tmp_path, dict(os.environ)))
    assert taken[0].printed == f"{tries} try\n"
    assert [each.as_shown for each in taken] == [True, as_shown]


def test_what_is_no_longer_so_is_replaced(tmp_path: Path) -> None:
    document = DOCUMENT.replace("one 100\n…", "one 200\n…")
    taken = list(walk(steps_of(document), tmp_path, dict(os.environ)))
    assert [each.as_shown for each in taken] == [True, False, True]
    written = with_outputs(document, taken)
    assert "```text\none 100\n…\n```" in written
    assert "took 3 s" in written


def test_without_a_gap_all_that_is_printed_is_shown(tmp_path: Path) -> None:
    document = DOCUMENT.replace("one 100\n…", "one 200")
    written = with_outputs(document, list(walk(steps_of(document), tmp_path, dict(os.environ))))
    assert "```text\none 100\ncat: nowhere.txt" in written


def test_a_failed_step_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "document.md"
    path.write_text("```sh\nls examples/tiny-moe/nowhere\n```\n", encoding="utf-8")
    assert main([str(path)]) == 1
    assert "exit code 2" in capsys.readouterr().err
