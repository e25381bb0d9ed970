"""Which kernel backends there are, and which one to use here."""

from collections.abc import Mapping

from placer.errors import BadInputError, MissingComponentError
from placer.kernels.deep_gemm_fp8 import DeepGemmFp8
from placer.kernels.expert_mlp import ExpertMLP
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_amx import KtAmxInt4, KtAmxInt8
from placer.kernels.kt_llamafile import KtLlamafile
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.problem import Problem
from placer.kernels.sglang_fp8 import SglangFp8
from placer.kernels.torch_fp8 import TorchFp8
from placer.kernels.torch_int4 import TorchInt4
from placer.kernels.triton_fp8 import TritonFp8
from placer.kernels.vllm_cpu import VllmCpu
from placer.kernels.vllm_fp8 import VllmFp8

Backend = type[ExpertMLP]

# ONNX Runtime's MatMulNBits is none of them. No server of hot and cold experts runs it, and it does not make up for
# a dependency: with one thread, at Qwen3-30B-A3B's sizes, an expert took 412 us with one row and 993 us with eight
# (torch's kernel 375 and 1227, RAWINT4 382 and 914), with two threads and one row 392 us (torch's 227).
CPU_BACKENDS: tuple[Backend, ...] = (KtRawInt4, KtLlamafile, KtAmxInt8, KtAmxInt4, TorchInt4, VllmCpu)
GPU_BACKENDS: tuple[Backend, ...] = (SglangFp8, VllmFp8, DeepGemmFp8, TritonFp8, TorchFp8)
AUTO_CPU: tuple[Backend, ...] = (KtRawInt4, KtLlamafile, KtAmxInt8, TorchInt4)
"""In the order that "auto" tries them: what a server runs at little loss, smallest weights first, then what is
always there. AMXINT4 rounds so coarsely that it is for those who ask for it; VLLM-BF16 is what an engine without a
GPU runs, which has nothing to place."""
AUTO_GPU: tuple[Backend, ...] = GPU_BACKENDS
"""In the order that "auto" tries them: what serves first, our own last."""
AUTO = "auto"

_NONE_FAILED: Mapping[Backend, str] = {}
_AFTER_FAILURE = "close other programs and try again, with --quick for a shorter one, or name a kernel"


def choose_cpu_backend(
    kind: str, shape: ExpertShape, threads: int = 1, failed: Mapping[Backend, str] = _NONE_FAILED
) -> tuple[Backend, str]:
    """The CPU backend that ``kind`` names, and why it was chosen.

    Parameters
    ----------
    kind
        "auto", the name of a backend ("kt", "torch", …) or its method ("RAWINT4", …).
    failed
        Backends that were tried already, and how they failed: "auto" passes over them.

    Nothing native is imported here: a backend can still fail when it is built.

    Raises
    ------
    BadInputError
        When no backend has that name.
    MissingComponentError
        When it cannot run these shapes on this machine; with "auto", when none can.
    """
    return _choose(CPU_BACKENDS, AUTO_CPU, "--cpu-kernel", kind, shape, threads, failed)


def choose_gpu_backend(
    kind: str, shape: ExpertShape, failed: Mapping[Backend, str] = _NONE_FAILED
) -> tuple[Backend, str]:
    """The GPU backend that ``kind`` names, and why it was chosen; all as for the CPU."""
    return _choose(GPU_BACKENDS, AUTO_GPU, "--gpu-kernel", kind, shape, 1, failed)


def _choose(
    backends: tuple[Backend, ...],
    automatic: tuple[Backend, ...],
    flag: str,
    kind: str,
    shape: ExpertShape,
    threads: int,
    failed: Mapping[Backend, str],
) -> tuple[Backend, str]:
    if kind == AUTO:
        return _first(automatic, shape, threads, failed)
    backend = _named(backends, flag, kind)
    problem = backend.problem(shape, threads)
    if problem is not None:
        raise MissingComponentError(f"{flag} {kind} cannot run: {problem}", problem.cure)
    return backend, f"{flag} {kind} was asked for"


def _named(backends: tuple[Backend, ...], flag: str, kind: str) -> Backend:
    by_name = [backend for backend in backends if backend.name == kind.lower()]
    by_method = [backend for backend in backends if backend.method.lower() == kind.lower()]
    found = by_name or by_method
    if len(found) == 1:
        return found[0]
    names = ", ".join((AUTO, *(backend.name for backend in backends)))
    raise BadInputError(f"unknown kernel {kind!r}", f"use {flag} with one of: {names}")


def _first(
    automatic: tuple[Backend, ...], shape: ExpertShape, threads: int, failed: Mapping[Backend, str]
) -> tuple[Backend, str]:
    passed_over: dict[Problem, list[str]] = {}
    for backend in automatic:
        problem = backend.problem(shape, threads)
        if problem is None and backend in failed:
            problem = Problem(failed[backend], _AFTER_FAILURE)
        if problem is None:
            others = "".join(f"; not {each}" for each in _reasons(passed_over))
            return backend, f"{backend.name} ({backend.method}) is the first that runs here{others}"
        passed_over.setdefault(problem, []).append(backend.name)
    cure = list(passed_over)[-1].cure
    what = "no kernel could be timed here" if failed else "no kernel runs here"
    raise MissingComponentError(f"{what}: {'; '.join(_reasons(passed_over))}", cure)


def _reasons(passed_over: Mapping[Problem, list[str]]) -> list[str]:
    """Names and what stands in their way, names with the same reason together."""
    return [f"{', '.join(names)}: {problem}" for problem, names in passed_over.items()]
