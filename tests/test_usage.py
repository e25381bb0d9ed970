"""What is typed wrongly on the command line is told in one line, with what to do."""

import sys

import pytest

from placer.cli import main


@pytest.mark.parametrize(
    ("arguments", "what", "do"),
    [
        (
            ("explain", "p.json", "--layer", "three"),
            "--layer 'three' is not a whole number",
            "Index of the layer",
        ),
        (("explain", "p.json", "--layer=3x"), "--layer '3x' is not a whole number", "without a unit"),
        (
            ("solve", "--model", "m", "--trace", "t", "--profile", "p", "--slo-tpot", "50ms"),
            "--slo-tpot '50ms' is not a number",
            "give a number without a unit (p95 target, ms)",
        ),
        (
            ("inspect", "--model", "m", "--plan", "96.5"),
            "--plan '96.5' is not a whole number",
            "give a whole number (Hot experts per layer)",
        ),
        (("explain", "p.json", "--layr", "3"), "No such option: --layr", "see 'placer explain --help'"),
        (("explian",), "Did you mean 'explain'?", "see 'placer --help'"),
    ],
)
def test_usage_errors(
    arguments: tuple[str, ...],
    what: str,
    do: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["placer", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert what in first
    assert last.startswith("  do: ")
    assert do in last
