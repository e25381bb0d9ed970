"""Whether a profile may be planned with: made at the model's shapes, for the server's settings, with a usable fit."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.profiler.profile import Profile


@dataclass(frozen=True)
class ProfileUse:
    """What the server of a plan will run, where its profile must agree.

    Attributes
    ----------
    threads
        Kernel threads (``--kt-cpuinfer``), or None for the profile's.
    cpu_method
        CPU method, or None for the profile's.
    force
        Take a profile of other shapes, tensor-parallel size or threads, or with a large held-out error, all the
        same; a placement and its export keep the profiled threads. Never of another method: a plan timed with
        one is not exported for another.
    """

    threads: int | None = None
    cpu_method: str | None = None
    force: bool = False


AS_PROFILED = ProfileUse()


def check_profile_matches(
    profile: Profile, model: ModelSpec, *, tp: int, use: ProfileUse = AS_PROFILED
) -> tuple[str, ...]:
    """What does not match and was forced, one sentence each.

    Raises
    ------
    BadInputError
        When ``profile`` was made at other shapes, another tensor-parallel size or other threads than the plan
        needs and this is not forced, or with another CPU method.
    """
    if use.cpu_method not in (None, profile.cpu.method):
        raise BadInputError(
            f"the profile is of {profile.cpu.method}, the server is to run {use.cpu_method}",
            f"profile {use.cpu_method} on the server",
        )
    mismatches = _mismatches(profile, model, tp, use.threads)
    if mismatches and not use.force:
        raise BadInputError(*mismatches[0])
    forced = [what for what, _ in mismatches]
    if use.threads not in (None, profile.cpu.threads):
        forced[-1] += f"; the export keeps {profile.cpu.threads}, so change --kt-cpuinfer by hand"
    return tuple(forced)


MOST_MAPE = 0.3
"""Held-out error above which a plan would follow noise: more than the best placement gains over the runtime's
default on most traces (20 % to 350 %)."""


def check_profile_error(profile: Profile, *, force: bool = False) -> tuple[str, ...]:
    """What is wrong with the fits of ``profile`` and was forced, one sentence each.

    Raises
    ------
    BadInputError
        When a side's held-out error exceeds `MOST_MAPE` and this is not forced.
    """
    error = profile.heldout_error
    sides = [] if error is None else [("CPU", error.mape)]
    if profile.gpu.kernel is not None:
        sides.append(("GPU", profile.gpu.kernel.report.overall.mape))
    found = tuple(
        f"the {side} cost model is off by {mape:.0%} on held-out calls, {MOST_MAPE:.0%} is the most to plan with"
        for side, mape in sides
        if mape > MOST_MAPE
    )
    if found and not force:
        raise BadInputError(
            found[0], "run 'placer profile' again on an idle machine and for longer, or add --force-profile"
        )
    return found


def _mismatches(profile: Profile, model: ModelSpec, tp: int, threads: int | None) -> list[tuple[str, str]]:
    """(what does not match, what to do about it)."""
    made, found = profile.model, []
    for name, timed, wanted in (
        ("hidden size", made.hidden_size, model.hidden_size),
        ("expert width", made.expert_intermediate_size, model.expert_intermediate_size),
        ("experts per layer", made.experts, model.experts),
        ("top-k", made.top_k, model.top_k),
    ):
        if timed != wanted:
            found.append(
                (
                    f"the profile was made for {made.name} with {name} {timed}, {model.name} has {wanted}",
                    f"run 'placer profile --model DIR' for {model.name}",
                )
            )
    if profile.tp != tp:
        found.append(
            (
                f"the profile was made for tp {profile.tp}, not {tp}",
                f"run 'placer profile' again with --tp {tp}",
            )
        )
    if threads not in (None, profile.cpu.threads):
        found.append(
            (
                f"the profile was made with {profile.cpu.threads} CPU threads, the server is to run {threads}",
                f"run 'placer profile' again with --threads {threads}, or leave --threads out",
            )
        )
    return found
