"""Choosing a kernel: by name, by method, or the first that runs, with the reason said."""

from typing import get_args

import pytest

from placer.errors import BadInputError, MissingComponentError
from placer.host import CPU_FORMATS
from placer.kernels.backends import (
    AUTO_CPU,
    AUTO_GPU,
    CPU_BACKENDS,
    GPU_BACKENDS,
    Backend,
    choose_cpu_backend,
)
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_amx import KtAmxInt4, KtAmxInt8
from placer.kernels.kt_llamafile import KtLlamafile
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.problem import Problem
from placer.kernels.torch_int4 import TorchInt4
from placer.kernels.vllm_cpu import VllmCpu
from placer.model.formats import expert_bytes
from placer.placement_sections import CpuMethod

SHAPE = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=128, top_k=8)


@pytest.mark.parametrize("backend", CPU_BACKENDS, ids=lambda backend: backend.name)
def test_the_host_ledger_counts_the_bytes_that_a_kernel_holds(backend: Backend) -> None:
    ledger = expert_bytes(
        CPU_FORMATS[backend.method], H=SHAPE.hidden_size, width=SHAPE.expert_intermediate_size
    )
    assert backend.bytes_per_expert(SHAPE) == ledger


def test_every_cpu_method_is_one_field_from_kernel_to_placement() -> None:
    assert {backend.method for backend in CPU_BACKENDS} == set(CPU_FORMATS) == set(get_args(CpuMethod))


def test_names_are_unique_and_auto_tries_known_ones() -> None:
    for backends, automatic in ((CPU_BACKENDS, AUTO_CPU), (GPU_BACKENDS, AUTO_GPU)):
        assert len({backend.name for backend in backends}) == len(backends)
        assert set(automatic) <= set(backends)


def test_the_coarse_method_is_never_chosen_unasked() -> None:
    assert KtAmxInt4 not in AUTO_CPU


@pytest.fixture
def all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in CPU_BACKENDS:
        monkeypatch.setattr(backend, "problem", lambda shape, threads: None)


@pytest.mark.usefixtures("all_run")
@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        ("kt", KtRawInt4),
        ("RAWINT4", KtRawInt4),
        ("kt-amxint4", KtAmxInt4),
        ("AMXINT8", KtAmxInt8),
        ("amxint4", KtAmxInt4),
        ("LLAMAFILE", KtLlamafile),
        ("torch", TorchInt4),
        ("vllm-cpu", VllmCpu),
        ("VLLM-BF16", VllmCpu),
    ],
)
def test_a_kernel_is_found_by_its_name_and_by_its_method(kind: str, backend: Backend) -> None:
    assert choose_cpu_backend(kind, SHAPE) == (backend, f"--cpu-kernel {kind} was asked for")


def test_an_unknown_kernel_is_answered_with_those_there_are() -> None:
    with pytest.raises(BadInputError, match="unknown kernel 'marlin'") as caught:
        choose_cpu_backend("marlin", SHAPE)
    assert "auto, kt, kt-llamafile, kt-amxint8, kt-amxint4, torch" in caught.value.hint


@pytest.mark.usefixtures("all_run")
def test_auto_passes_over_what_has_failed_and_says_how() -> None:
    assert choose_cpu_backend("auto", SHAPE) == (KtRawInt4, "kt (RAWINT4) is the first that runs here")
    backend, reason = choose_cpu_backend("auto", SHAPE, failed={KtRawInt4: "it crashed"})
    assert backend is KtLlamafile
    assert reason == "kt-llamafile (LLAMAFILE) is the first that runs here; not kt: it crashed"


def test_auto_says_once_what_stands_in_the_way_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in AUTO_CPU[:-1]:
        monkeypatch.setattr(backend, "problem", lambda shape, threads: Problem("not installed", "install it"))
    _, reason = choose_cpu_backend("auto", SHAPE)
    assert reason.endswith("first that runs here; not kt, kt-llamafile, kt-amxint8: not installed")


@pytest.mark.usefixtures("all_run")
def test_when_everything_has_failed_all_of_it_is_said() -> None:
    failed: dict[Backend, str] = {backend: f"{backend.name} hung" for backend in AUTO_CPU}
    with pytest.raises(MissingComponentError, match=r"be timed.*kt: kt hung; .*torch: torch hung") as caught:
        choose_cpu_backend("auto", SHAPE, failed=failed)
    assert caught.value.hint.startswith("close other programs and try again")
