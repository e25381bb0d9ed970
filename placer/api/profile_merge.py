"""`placer.profile_merge`: the CPU's side of one profile beside the GPU's side of another."""

from pathlib import Path

from placer.api.checked import checked
from placer.api.opened import Source, opened, paths_of
from placer.output import checked_output
from placer.profiler.merged_profile import merge_profiles
from placer.profiler.profile import Profile, read_profile, write_profile


@checked
def profile_merge(cpu: Profile | Source, gpu: Profile | Source, *, output: Source | None = None) -> Profile:
    """The CPU's side of ``cpu`` beside the GPU's side of ``gpu``.

    Raises
    ------
    BadInputError
        When the two are of different models or shapes.
    """
    sides = [opened(side, read_profile) for side in (cpu, gpu)]
    merged = merge_profiles(*sides)
    if output is not None:
        checked_output(Path(output), paths_of(cpu, gpu))
        write_profile(merged, Path(output))
    return merged
