"""A GPU kernel's gate, without a GPU: device, capability, packages and sizes, each refusal by name."""

import pytest

from placer.kernels.backends import GPU_BACKENDS, Backend
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.gpu_needs import GpuNeeds, cuda_capability

SHAPE = ExpertShape(2048, 768, 128, 8)
HOPPER_ONLY = GpuNeeds(multiple=128, packages=("torch",), capabilities=((9, 0),))


@pytest.mark.parametrize(
    ("needs", "shape", "capability", "what"),
    [
        (HOPPER_ONLY, SHAPE, None, "finds no CUDA device"),
        (HOPPER_ONLY, SHAPE, (8, 6), "compute capability 8.6, FP8 needs 8.9"),
        (HOPPER_ONLY, SHAPE, (12, 0), "compute capability 12.0, this kernel is built for 9.0"),
        (GpuNeeds(128, packages=("no_such_package",)), SHAPE, (9, 0), "no_such_package is not installed"),
        (HOPPER_ONLY, ExpertShape(2048, 192, 8, 2), (9, 0), "expert width 192 is not a multiple of 128"),
        (HOPPER_ONLY, ExpertShape(2880, 128, 8, 2), (9, 0), "hidden size 2880 is not a multiple of 128"),
    ],
)
def test_what_is_not_met_is_named(
    needs: GpuNeeds, shape: ExpertShape, capability: tuple[int, int] | None, what: str
) -> None:
    problem = needs.problem(shape, capability)
    assert problem is not None
    assert what in problem.what
    assert problem.cure


def test_what_is_met_is_no_problem() -> None:
    assert HOPPER_ONLY.problem(SHAPE, (9, 0)) is None
    assert GpuNeeds(multiple=16).problem(ExpertShape(2880, 2880, 32, 4), (12, 0)) is None


@pytest.mark.skipif(cuda_capability() is not None, reason="there is a CUDA device")
@pytest.mark.parametrize("backend", GPU_BACKENDS, ids=lambda backend: backend.name)
def test_no_backend_runs_without_a_gpu(backend: Backend) -> None:
    problem = backend.problem(SHAPE, 1)
    assert problem is not None
    assert "no CUDA device" in problem.what
