"""What a GPU kernel needs of the device, of installed packages and of an expert's sizes, as data."""

import importlib.util
from dataclasses import dataclass

import torch

from placer.kernels.expert_shape import ExpertShape
from placer.kernels.problem import Problem

FP8_CAPABILITY = (8, 9)
"""First CUDA compute capability with FP8 units."""
ELSEWHERE = "profile on the machine that has the GPU, or use --gpu NAME for its datasheet"


@dataclass(frozen=True)
class GpuNeeds:
    """A device, packages and sizes.

    Attributes
    ----------
    multiple
        What hidden size and expert width (of one GPU's share) must be multiples of.
    packages
        Import names, all of which must be installed.
    capabilities
        Compute capabilities that the kernel is built for; None for every one with FP8 units.
    """

    multiple: int
    packages: tuple[str, ...] = ()
    capabilities: tuple[tuple[int, int], ...] | None = None

    def problem(self, shape: ExpertShape, capability: tuple[int, int] | None) -> Problem | None:
        """What is not met by ``shape`` or a device of ``capability`` (None: no device); None when all is."""
        if capability is None:
            return Problem(f"torch {torch.__version__} finds no CUDA device", ELSEWHERE)
        found = f"the GPU has compute capability {_dotted(capability)}"
        if capability < FP8_CAPABILITY:
            return Problem(f"{found}, FP8 needs {_dotted(FP8_CAPABILITY)}", ELSEWHERE)
        if self.capabilities is not None and capability not in self.capabilities:
            built = ", ".join(map(_dotted, self.capabilities))
            return Problem(f"{found}, this kernel is built for {built}", "use another --gpu-kernel")
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return Problem(f"the package {package} is not installed", "use another --gpu-kernel")
        for name, size in (
            ("hidden size", shape.hidden_size),
            ("expert width", shape.expert_intermediate_size),
        ):
            if size % self.multiple:
                return Problem(
                    f"{name} {size} is not a multiple of {self.multiple}", "use --gpu NAME for its datasheet"
                )
        return None


def cuda_capability() -> tuple[int, int] | None:
    """Compute capability of the first GPU; None where torch finds none."""
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
