"""Text from files as it is printed: no control characters, and no name that fills the screen."""

import pytest
from rich.console import Console
from small_traces import token_trace

from placer.answer.trace import trace_answer
from placer.answer.visible import short_name, visible
from placer.profiler.trace.info import trace_info


def test_a_name_is_cut_at_its_last_column() -> None:
    assert short_name("law") == "law"
    assert short_name("x" * 40) == "x" * 40
    assert short_name("x" * 41) == "x" * 39 + "…"


def test_control_characters_are_spelled_out() -> None:
    assert visible("a\x1b[31m\u202e") == r"a\x1b[31m\u202e"


@pytest.mark.parametrize("domains", [("a" * 100_000,), ("a" * 100_000, "b" * 100_000)])
def test_a_domain_name_of_any_length_takes_one_line(domains: tuple[str, ...]) -> None:
    """With two domains of a thousand tokens their overlap is printed, too."""
    tokens = 2200
    trace = token_trace(
        [[[token % 3]] for token in range(tokens)],
        experts=3,
        request=[token // 100 for token in range(tokens)],
        domain=[token // 100 % len(domains) for token in range(tokens)],
        domains=domains,
    )
    document = trace_info(trace)
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(trace_answer(document))
    assert "a" * 27 in capture.get()
    assert "a" * 41 not in capture.get()
    # What programs read is whole.
    assert document["domains"] == list(domains)
