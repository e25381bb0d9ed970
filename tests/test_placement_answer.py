"""The answer of a solve as it is printed."""

from placements import figures, placement
from rich.console import Console

from placer.answer.placement import placement_answer
from placer.placement import PlacementDocument


def printed(document: PlacementDocument) -> str:
    console = Console(width=100, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(placement_answer(document, None))
    return capture.get()


def test_a_baseline_is_slower_by_tokens_per_second_not_by_its_decode_step() -> None:
    """The plan yields 400 tokens/s; a baseline that decodes faster, but serves 320, is 25 % slower."""
    document = placement(
        {0: [0]},
        layers=[0],
        experts=2,
        baselines={"uniform": {**figures(), "decode_step_ms": 19.0, "output_tokens_per_s": 320.0}},
    )
    row = next(line for line in printed(document).splitlines() if line.startswith("uniform"))
    assert row.split() == ["uniform", "19.00", "ms", "320.0", "+25.0%", "25.0%"]


def test_a_loss_beyond_sampling_error_is_said_to_be_one() -> None:
    gains = {
        "frequency": {"mean": -0.012, "low": -0.021, "high": -0.003, "distinct": True},
        "uniform": {"mean": 0.4, "low": 0.3, "high": 0.5, "distinct": True},
    }
    document = placement(
        {0: [0]},
        layers=[0],
        experts=2,
        baselines={"uniform": figures(), "frequency": figures()},
        heldout={"coverage": 0.5, "uniform_null": 0.5, "verdict": "it helps", "requests": 19, "gains": gains},
    )
    text = " ".join(printed(document).split())
    assert "slower than frequency beyond sampling error" in text
    assert "every gain" not in text
