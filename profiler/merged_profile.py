"""One profile from two: the CPU's side of one machine, the GPU's side of another."""

from dataclasses import replace
from datetime import UTC, datetime

from placer import __version__
from placer.errors import BadInputError
from placer.profiler.profile import MergedFrom, Profile, ProfileOrigin


def merge_profiles(cpu: Profile, gpu: Profile) -> Profile:
    """The cold side of ``cpu`` beside the hot side, and the rest of a layer, of ``gpu``.

    Both origins are kept; a side that was merged before keeps its first origin. A calibration is not: it
    belongs to both sides of one server.

    Raises
    ------
    BadInputError
        When the two were made at different shapes or tensor-parallel sizes.
    """
    for name, first, second in (
        ("hidden size", cpu.model.hidden_size, gpu.model.hidden_size),
        ("expert input width", cpu.cpu.shape.hidden_size, gpu.cpu.shape.hidden_size),
        ("expert width", cpu.model.expert_intermediate_size, gpu.model.expert_intermediate_size),
        ("experts per layer", cpu.model.experts, gpu.model.experts),
        ("top-k", cpu.model.top_k, gpu.model.top_k),
    ):
        if first != second:
            raise BadInputError(
                f"the profiles are of different models: {name} {first} ({cpu.model.name}) and {second} "
                f"({gpu.model.name})",
                "profile the same model on both machines",
            )
    if cpu.tp != gpu.tp:
        raise BadInputError(
            f"the profiles are for different tensor-parallel sizes: tp {cpu.tp} and tp {gpu.tp}",
            "give placer profile the same --tp on both machines",
        )
    return replace(
        cpu,
        placer_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        gpu=gpu.gpu,
        calibration=None,
        merged=MergedFrom(
            cpu=cpu.merged.cpu if cpu.merged else _origin(cpu, cpu.cpu.device),
            gpu=gpu.merged.gpu if gpu.merged else _origin(gpu, gpu.gpu.name),
        ),
    )


def _origin(profile: Profile, device: str) -> ProfileOrigin:
    return ProfileOrigin(profile.created, profile.placer_version, device, profile.sha256)
