"""What every GPU backend shares: how it is opened and gated, what it runs on, and random FP8 stacks on the device."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from placer.kernels.expert_mlp import ExpertMLP
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.gpu_needs import GpuNeeds, cuda_capability
from placer.kernels.problem import Problem


class GpuExperts(ExpertMLP):
    """FP8 experts on one device: "cuda" in use, "cpu" in tests of backends whose arithmetic runs there too.

    Attributes
    ----------
    needs
        What the backend needs of a device, of packages and of sizes.
    """

    method: ClassVar[str] = "FP8"
    device: ClassVar[str] = "cuda"
    error_limit: ClassVar[float] = 0.08
    needs: ClassVar[GpuNeeds]

    def __init__(self, device: str = "cuda") -> None:
        self._device = torch.device(device)

    @classmethod
    def open(cls, threads: int, subpools: int) -> Self:
        """See `ExpertMLP.open`."""
        return cls()

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`; ``threads`` plays no part, and no package is imported."""
        return cls.needs.problem(shape, cuda_capability())

    def variant(self) -> str:
        """See `ExpertMLP.variant`."""
        if self._device.type == "cpu":
            return f"{self._kind()}, CPU"
        major, minor = torch.cuda.get_device_capability(self._device)
        return f"{self._kind()}, {torch.cuda.get_device_name(self._device)}, sm{major}{minor}"

    def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """See `ExpertMLP.forward`."""
        return self.bound(layer, x, ids, weights)()

    @abstractmethod
    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`."""

    @abstractmethod
    def _kind(self) -> str:
        """What runs, without the device."""

    def _random_values(self, experts: int, rows: int, columns: int, generator: torch.Generator) -> Tensor:
        """Normal values in float8_e4m3fn [E, rows, columns], drawn on the device by its ``generator``."""
        # One expert at a time: float32 values of a whole layer would take four times its bytes.
        values = torch.empty(experts, rows, columns, dtype=torch.float8_e4m3fn, device=self._device)
        for expert in range(experts):
            drawn = torch.randn(rows, columns, generator=generator, device=self._device)
            values[expert] = drawn.to(torch.float8_e4m3fn)
        return values
