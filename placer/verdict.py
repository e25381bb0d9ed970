"""Whether static placement is worth anything here, in one plain sentence."""

from placer.solved import Solved

_WORTH = 0.01
"""A gain below one percent of the decode step is said to be none."""


def placement_verdict(solved: Solved) -> str:
    """One sentence on what the placement gains over the runtime's default on held-out requests."""
    if solved.hot.all():
        return (
            "every expert fits on the GPU: placement has nothing to decide, and the server needs no CPU experts "
            "(start vLLM, or SGLang without its --kt flags)"
        )
    if solved.coverage is None:
        return "unknown: no trace was given, so which experts are hot could not be judged"
    times = solved.baselines["uniform"].decode_step_ms / solved.prediction.decode_step_ms
    what = "held-out selections" if solved.held_out else "the same run's selections (nothing was held out)"
    served = f"hot experts serve {solved.coverage:.1%} of {what}, {solved.uniform_null:.1%} by chance"
    if times < 1.0 + _WORTH:
        return (
            f"static placement will not help here: {served}, and the decode step is within {_WORTH:.0%} of the "
            "runtime's default"
        )
    if solved.gains is not None and "uniform" in solved.gains.indistinct():
        return (
            f"static placement is not known to help here: {served}, and a gain over the runtime's default cannot be "
            f"told from sampling error on the {solved.gains.requests:,} reported requests"
        )
    if not solved.held_out:
        return (
            f"unknown on other traffic: {served}; on this run a decode step of uniform, the "
            f"runtime's default, takes {times:.2f} times as long; record requests or several windows to know"
        )
    return (
        f"static placement helps: {served}; a decode step of uniform, the runtime's default, takes {times:.2f} times "
        "as long"
    )
