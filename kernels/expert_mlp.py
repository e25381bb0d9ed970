"""The one interface of all kernels: the experts of a layer applied to the rows that routing sends them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from placer.kernels.expert_shape import ExpertShape
from placer.kernels.problem import Problem

ExpertWeights = tuple[Tensor, Tensor, Tensor]
"""One expert: gate [I, H], up [I, H], down [H, I]."""
SKIP = -1
"""The expert id that marks a slot this side does not compute."""


class ExpertMLP(ABC):
    """Expert MLPs: out[t] = Σ_j weight[t, j] · down(silu(gate x_t) · up x_t) of expert ids[t, j].

    A backend is built, loaded once, and then called; it owns its weights.

    Attributes
    ----------
    name
        What ``--cpu-kernel`` or ``--gpu-kernel`` calls it.
    method
        The weight format and kernel family, as profiles, exports and ``--kt-method`` name it.
    device
        "cpu" or "cuda".
    error_limit
        An output on random weights that is off by more, relative to its norm, is wrong and not just rounded:
        about twice the largest error found over sizes from 256x256 to 7168x2048.
    """

    name: ClassVar[str]
    method: ClassVar[str]
    device: ClassVar[str]
    error_limit: ClassVar[float]

    @classmethod
    @abstractmethod
    def open(cls, threads: int, subpools: int) -> Self:
        """A backend of so many CPU threads, spread over so many memory nodes; GPU backends take no notice.

        Raises
        ------
        MissingComponentError
            When its library cannot be loaded.
        """

    @classmethod
    @abstractmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """Why this backend cannot run these shapes on this machine with so many threads; None when it can."""

    @classmethod
    @abstractmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """Bytes that one loaded expert takes and that reading it once moves."""

    @classmethod
    def border_hint(cls, shape: ExpertShape) -> int | None:
        """Tokens of a call up to which the first algorithm is said to run; None where there is only one.

        Only where to look first: a profile probes the border.
        """
        return None

    @classmethod
    def memory_nodes(cls, shape: ExpertShape, wanted: int) -> int:
        """Of ``wanted`` memory nodes, those that one expert can be spread over."""
        return 1

    @abstractmethod
    def variant(self) -> str:
        """The code path that runs here: instruction set and kernel class."""

    @abstractmethod
    def version(self) -> str:
        """The library and its version."""

    @abstractmethod
    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """Load ``layers`` layers for timing: every expert has its own memory, values may repeat.

        ``max_tokens`` is the most tokens any later call may hold.
        """

    @abstractmethod
    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """The float32 weights that an expert was loaded from, on the CPU: what its outputs are checked against."""

    @abstractmethod
    def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """Run one call.

        Parameters
        ----------
        layer
            Index into the loaded layers.
        x
            bfloat16 [q, H], moved to the backend's device where it is not there.
        ids
            int64 [q, k], expert ids, each at most once per token; `SKIP` leaves a slot out.
        weights
            float32 [q, k].

        Returns
        -------
        bfloat16 [q, H]; the next call may overwrite it.
        """

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """The call with its host-side work done, so that what is left can be timed or captured."""
        return lambda: self.forward(layer, x, ids, weights)


def reference_forward(
    experts: Callable[[int], ExpertWeights], x: Tensor, ids: Tensor, weights: Tensor
) -> Tensor:
    """The same sum in float32, slot by slot: what every backend is checked against.

    ``experts(e)`` gives float32 (gate [I, H], up [I, H], down [H, I]); other arguments as in
    `ExpertMLP.forward`. Returns float32 [q, H].
    """
    out = torch.zeros(x.shape, dtype=torch.float32)
    inputs = x.to(torch.float32)
    for expert in torch.unique(ids[ids != SKIP]).tolist():
        gate, up, down = experts(expert)
        tokens, slots = torch.nonzero(ids == expert, as_tuple=True)
        rows = inputs[tokens]
        hidden = torch.nn.functional.silu(rows @ gate.T) * (rows @ up.T)
        out.index_add_(0, tokens, (hidden @ down.T) * weights[tokens, slots, None])
    return out
