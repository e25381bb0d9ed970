"""Who computes the cold experts here: chosen once, and shared by all layers."""

from dataclasses import dataclass

import torch

from placer.errors import PlacerError
from placer.kernels.cores import usable_cores
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.torch_int4 import TorchInt4
from placer.runtime.load import Placement
from placer.runtime.vllm.cold_exact import ColdExact
from placer.runtime.vllm.cold_experts import ColdExperts
from placer.runtime.vllm.cold_int4 import ColdKt, ColdTorch
from placer.runtime.vllm.refusal import Refusal
from placer.runtime.vllm.settings import COLD, Settings
from placer.runtime.vllm.staging import Staging


@dataclass(frozen=True)
class ColdCalls:
    """What the layers' calls have in common: sizes, the most tokens of a call, and what the weights are held in."""

    shape: ExpertShape
    max_tokens: int
    dtype: torch.dtype
    on_gpu: bool


class ColdPool:
    """Makes the cold experts of each layer.

    Attributes
    ----------
    path
        The cold path in words, as it is logged.
    fallback
        Why kt-kernel was not taken, where it was looked for; None otherwise.
    """

    def __init__(self, settings: Settings, placement: Placement, calls: ColdCalls) -> None:
        self._calls = calls
        self._kt: KtRawInt4 | None = None
        self._torch: TorchInt4 | None = None
        self.fallback: str | None = None
        wanted = settings.cold
        if wanted in {"kt", "auto"}:
            threads = settings.threads or max(1, min(placement.cpu_threads or 2**16, usable_cores() - 1))
            problem = KtRawInt4.problem(calls.shape, threads)
            if problem is None:
                self._open_kt(threads, placement.cpu_subpools or 1)
                return
            if wanted == "kt":
                raise Refusal(f"{COLD} is kt, and {problem.what}", f"unset {COLD}, or {_cure(problem.cure)}")
            self.fallback = problem.what
        if wanted == "exact":
            self.path = f"exact {calls.dtype}".replace("torch.", "")
            return
        self._open_torch()

    def layer(self, count: int) -> ColdExperts:
        """``count`` cold experts of one layer, without weights."""
        if self._kt is not None:
            return ColdKt(count, self._calls.shape, self._kt, self._staging, self._calls.max_tokens)
        if self._torch is not None:
            return ColdTorch(count, self._torch)
        return ColdExact(count, self._calls.dtype)

    def _open_kt(self, threads: int, subpools: int) -> None:
        torch_threads = torch.get_num_threads()
        subpools = KtRawInt4.memory_nodes(self._calls.shape, min(subpools, threads))
        try:
            self._kt = KtRawInt4.open(threads, subpools)
        except PlacerError as error:
            raise Refusal(error.what, f"set {COLD}=torch, or reinstall kt-kernel") from None
        finally:
            # Beside kt-kernel's own threads placer gives torch one; the engine's are the engine's to choose.
            torch.set_num_threads(torch_threads)
        shape, room = self._calls.shape, self._calls.max_tokens
        self._kt.begin(shape.hidden_size, 1)
        self._staging = Staging(room, shape.hidden_size, shape.top_k, pinned=self._calls.on_gpu)
        self.path = f"kt RAWINT4, {threads} threads"

    def _open_torch(self) -> None:
        problem = TorchInt4.problem(self._calls.shape, 1)
        if problem is not None:
            raise Refusal(f"no INT4 kernel runs here: {problem.what}", f"set {COLD}=exact")
        self._torch = TorchInt4(torch.get_num_threads())
        self._torch.begin(self._calls.shape.hidden_size, self._calls.max_tokens)
        self.path = "torch INT4"


def _cure(cure: str) -> str:
    """``cure`` without the flag of placer's own commands, which a server does not have."""
    return cure.replace(", or use --cpu-kernel torch", "").replace(
        "use --cpu-kernel torch", "set it to torch"
    )
