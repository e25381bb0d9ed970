"""What a placement document says of sampling error: its steps, gains with their intervals, and the worst domain."""

from dataclasses import asdict
from typing import Any

from placer.robust import Robust
from placer.sampling import decode_steps
from placer.solved import Solved


def heldout_sampling(solved: Solved, null_reasons: dict[str, str]) -> dict[str, Any]:
    """What ``heldout`` says of steps and requests; nothing without a trace."""
    said: dict[str, Any] = {}
    if (convergence := solved.convergence) is not None:
        steps = decode_steps(solved.level.settings.max_running_requests)
        said["steps"] = {
            "decode_steps": [factor * steps for factor in convergence.factors],
            "choosing_us": list(convergence.choosing_us),
            "used": convergence.used * steps,
            "converged": convergence.converged,
        }
    if (gained := solved.gains) is not None:
        said["requests"] = gained.requests
        said["gains"] = {
            name: {
                "mean": gain.mean,
                "low": gain.low,
                "high": gain.high,
                "distinct": None if gained.no_interval else gain.excludes_zero,
            }
            for name, gain in gained.over.items()
        }
        if gained.no_interval:
            null_reasons["heldout.gains"] = gained.no_interval
    return said


def robust_section(robust: Robust) -> dict[str, Any]:
    """The section ``robust``: the worst domain, what is proven of it, and every domain as it was reported."""
    return {
        "criterion": robust.criterion.value,
        "worst": robust.worst,
        "value": robust.value,
        "bound": robust.bound,
        "gap": robust.gap,
        "rounds": robust.rounds,
        "seconds": round(robust.seconds, 3),
        "weights": dict(robust.weights),
        "domains": {name: {**asdict(each), "regret": each.regret} for name, each in robust.domains.items()},
        "left_out": dict(robust.left_out),
    }
