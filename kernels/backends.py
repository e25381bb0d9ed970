"""Which kernel backends there are, and which one to use here."""

from placer.errors import BadInputError, MissingComponentError
from placer.kernels.expert_mlp import ExpertMLP, Problem
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.torch_fp8 import TorchFp8
from placer.kernels.torch_int4 import TorchInt4

CPU_BACKENDS: tuple[type[ExpertMLP], ...] = (KtRawInt4, TorchInt4)
"""In the order that "auto" tries them: what serves first, what is always there last."""
GPU_BACKENDS: tuple[type[ExpertMLP], ...] = (TorchFp8,)
"""In the order that "auto" tries them."""
AUTO = "auto"


def choose_cpu_backend(kind: str, shape: ExpertShape, threads: int = 1) -> tuple[type[ExpertMLP], str]:
    """The CPU backend called ``kind`` ("auto", "kt", "torch"), and why it was chosen.

    Nothing native is imported here: a backend can still fail when it is built.

    Raises
    ------
    BadInputError
        When no backend has that name.
    MissingComponentError
        When it cannot run these shapes on this machine; with "auto", when none can.
    """
    return _choose(CPU_BACKENDS, "--cpu-kernel", kind, shape, threads)


def choose_gpu_backend(kind: str, shape: ExpertShape) -> tuple[type[ExpertMLP], str]:
    """The GPU backend called ``kind`` ("auto", "torch"), and why it was chosen; raises as for the CPU."""
    return _choose(GPU_BACKENDS, "--gpu-kernel", kind, shape, 1)


def _choose(
    backends: tuple[type[ExpertMLP], ...], flag: str, kind: str, shape: ExpertShape, threads: int
) -> tuple[type[ExpertMLP], str]:
    if kind == AUTO:
        problems: list[Problem] = []
        for backend in backends:
            problem = backend.problem(shape, threads)
            if problem is None:
                passed_over = "".join(f"; not the one before it: {each}" for each in problems)
                return backend, f"{backend.name} ({backend.method}) is the first that runs here{passed_over}"
            problems.append(problem)
        raise MissingComponentError(
            f"no kernel runs here: {'; '.join(map(str, problems))}", problems[-1].cure
        )
    for backend in backends:
        if backend.name == kind:
            problem = backend.problem(shape, threads)
            if problem is not None:
                raise MissingComponentError(f"{flag} {kind} cannot run: {problem}", problem.cure)
            return backend, f"{flag} {kind} was asked for"
    names = ", ".join((AUTO, *(backend.name for backend in backends)))
    raise BadInputError(f"unknown kernel {kind!r}", f"use {flag} with one of: {names}")
