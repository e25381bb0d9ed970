"""What `placer verify` prints of both sides at once, or the reason why they were not run."""

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.part import VerdictLine
from placer.joined_verification import JoinedVerification
from placer.units import duration, percent


def joined_answer(verification: JoinedVerification) -> RenderableType:
    """Measured against the longer of the two predicted sides."""
    errors = verification.errors
    if errors is None:
        return Text(f"hot side not run: {verification.not_run}", style="dim")
    document = verification.document()
    return Group(
        VerdictLine(
            f"both sides at once, measured against predicted: MAPE {errors.mape:.1%}, p90 {errors.p90_error:.1%}, "
            f"bias {errors.bias:+.1%} over {errors.calls} layer-steps",
        ),
        Text(
            f"a layer-step takes {duration(document['measured_us'])} measured, "
            f"{duration(document['predicted_us'])} predicted; the hot side is the longer one in "
            f"{percent(document['hot_bound_share'])} of them"
        ),
        Text(verification.kernels),
    )
