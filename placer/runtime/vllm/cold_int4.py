"""Cold experts in INT4: on kt-kernel's RAWINT4, or on torch's own INT4 matmul where kt-kernel is not there."""

import torch
from torch import Tensor

from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import Int4Expert, quantise_int4
from placer.kernels.kt_rawint4 import KtRawInt4, Words
from placer.kernels.torch_int4 import PackedExpert, TorchInt4, pack
from placer.runtime.vllm.cold_experts import ColdExperts
from placer.runtime.vllm.staging import StagedCall, Staging


class ColdTorch(ColdExperts):
    """torch's INT4 matmul; it cannot run beside a GPU, nor be captured."""

    def __init__(self, count: int, backend: TorchInt4) -> None:
        super().__init__(count)
        self._backend = backend
        self._experts: list[PackedExpert | None] = [None] * count
        self._layer: int | None = None
        self._host_bytes = 0
        self._call: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def host_bytes(self) -> int:
        """See `ColdExperts.host_bytes`."""
        return self._host_bytes

    def _take(self, index: int, gate: Tensor, up: Tensor, down: Tensor) -> None:
        packed = pack(_int4(gate, up, down))
        self._host_bytes += sum(matrix.nbytes for matrix in packed)
        self._experts[index] = packed

    def _seal(self) -> None:
        self._layer = self._backend.add_layer([expert for expert in self._experts if expert is not None])
        self._experts = []

    def submit(self, x: Tensor, ids: Tensor, weights: Tensor) -> None:
        """See `ColdExperts.submit`."""
        self._call = (x, ids, weights)

    def collect(self) -> Tensor:
        """See `ColdExperts.collect`; all work is done here."""
        assert self._call is not None
        assert self._layer is not None
        x, ids, weights = self._call
        self._call = None
        out = self._backend.forward(
            self._layer, x.to("cpu", torch.bfloat16).contiguous(), ids.cpu(), weights.to("cpu", torch.float32)
        )
        return out.to(x.device, torch.float32)


class ColdKt(ColdExperts):
    """kt-kernel's RAWINT4: it works on its own threads between `submit` and `collect`.

    On a GPU both are queued on the current stream, so that its hot experts run meanwhile.
    """

    def __init__(
        self, count: int, shape: ExpertShape, backend: KtRawInt4, staging: Staging, max_tokens: int
    ) -> None:
        super().__init__(count)
        self._shape = shape
        self._count = count
        self._backend = backend
        self._staging = staging
        self._max_tokens = max_tokens
        self._experts: dict[int, tuple[Words, ...]] = {}
        self._layer: int | None = None
        self._call: StagedCall | None = None
        self._like = torch.empty(0)

    @property
    def host_bytes(self) -> int:
        """See `ColdExperts.host_bytes`."""
        return self._count * self._backend.bytes_per_expert(self._shape)

    def _take(self, index: int, gate: Tensor, up: Tensor, down: Tensor) -> None:
        expert = _int4(gate, up, down)
        self._experts[index] = tuple(Words(matrix) for matrix in (expert.gate, expert.up, expert.down))

    def _seal(self) -> None:
        experts = [self._experts[index] for index in range(self._count)]
        self._layer = self._backend.add_layer(self._shape, experts, self._max_tokens)
        self._experts = {}

    def submit(self, x: Tensor, ids: Tensor, weights: Tensor) -> None:
        """See `ColdExperts.submit`."""
        assert self._layer is not None
        call = self._staging.fill(x, ids, weights)
        self._call, self._like = call, x
        self._backend.submit(
            self._layer, call.tokens, call.x, call.ids, call.weights, call.out, stream=_stream(x)
        )

    def collect(self) -> Tensor:
        """See `ColdExperts.collect`."""
        assert self._call is not None
        self._backend.wait(_stream(self._like))
        out = self._call.out.to(self._like.device, non_blocking=True)
        self._call, self._like = None, torch.empty(0)
        return out.to(torch.float32)


def _int4(gate: Tensor, up: Tensor, down: Tensor) -> Int4Expert:
    return Int4Expert(*(quantise_int4(matrix) for matrix in (gate, up, down)))


def _stream(x: Tensor) -> int | None:
    """The CUDA stream that a call on ``x`` belongs to; None on the CPU."""
    return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
