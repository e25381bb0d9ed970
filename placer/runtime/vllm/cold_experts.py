"""The cold experts of one layer: they take their weights as the checkpoint is read, and then compute on the CPU."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from placer.kernels.block_fp8 import BlockMatrix

MATRICES = ("gate", "up", "down")


class ColdExperts(ABC):
    """``count`` experts in host memory, numbered from 0.

    An expert is taken over when its three matrices are there, so no more than the experts that are being read are
    held in the checkpoint's precision. A matrix in FP8 is there with its scales.
    """

    def __init__(self, count: int) -> None:
        self._missing = set(range(count))
        self._arrived: dict[int, dict[str, Tensor]] = {}

    def put(self, index: int, matrix: str, part: Tensor, *, scale: bool = False) -> None:
        """Take a part of expert ``index``.

        ``part`` is a matrix ("gate" and "up" [I, H], "down" [H, I]) in floating point, or with ``scale`` the scales
        of one in FP8, one per block of 128 x 128.
        """
        arrived = self._arrived.setdefault(index, {})
        arrived[f"{matrix} scale" if scale else matrix] = part
        if not all(self._is_whole(arrived, name) for name in MATRICES):
            return
        self._take(index, *(self._matrix(arrived, name) for name in MATRICES))
        del self._arrived[index]
        self._missing.discard(index)
        if not self._missing:
            self._seal()

    @staticmethod
    def _is_whole(arrived: dict[str, Tensor], name: str) -> bool:
        matrix = arrived.get(name)
        return matrix is not None and (matrix.dtype != torch.float8_e4m3fn or f"{name} scale" in arrived)

    @staticmethod
    def _matrix(arrived: dict[str, Tensor], name: str) -> Tensor:
        matrix, scale = arrived[name].cpu(), arrived.get(f"{name} scale")
        return matrix if scale is None else BlockMatrix(matrix, scale.cpu().float()).dequantise()

    @property
    def missing(self) -> int:
        """Experts that are not there in full."""
        return len(self._missing)

    @property
    @abstractmethod
    def host_bytes(self) -> int:
        """Bytes of host memory that the weights take."""

    @abstractmethod
    def _take(self, index: int, gate: Tensor, up: Tensor, down: Tensor) -> None:
        """Take over an expert; the tensors are the checkpoint's own and are not kept."""

    @abstractmethod
    def _seal(self) -> None:
        """All experts are there."""

    @abstractmethod
    def submit(self, x: Tensor, ids: Tensor, weights: Tensor) -> None:
        """Begin a call: x [q, H], int64 ids [q, k] where -1 is left out, float32 weights [q, k]."""

    @abstractmethod
    def collect(self) -> Tensor:
        """End the call: float32 [q, H], on the device that ``x`` was on, in memory of its own."""
