"""Kernels that crash, hang, lack an instruction set or return wrong numbers: caught, named, and passed over.

A ``sitecustomize`` module puts the fault into the worker process; everything else there is real.
"""

import importlib.util
import re
from functools import partial
from pathlib import Path

import pytest

from placer.errors import MissingComponentError
from placer.kernels.backends import CPU_BACKENDS
from placer.kernels.cores import usable_cores
from placer.kernels.cpu_needs import cpu_flags
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_amx import KtAmxInt8
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.torch_int4 import TorchInt4
from placer.profiler.timing import cpu_profile, thread_sweep
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.cpu_profile import profile_cpu
from placer.profiler.timing.spec import CampaignSpec
from placer.profiler.timing.thread_sweep import settings, sweep_threads

SHAPE = ExpertShape(hidden_size=128, expert_intermediate_size=128, experts=8, top_k=2)
FAULTS = {
    "crash": "os.kill(os.getpid(), signal.SIGSEGV)",
    "hang": "time.sleep(600)",
    "wrong numbers": "return right(self, layer, x, ids, weights) * 1.1",
}
SIGNS = {
    "hang": r"kernel \w+ .*was stopped while checking: no sign of life",
    "crash": r"kernel \w+ .*was killed by SIGSEGV while checking",
    "wrong numbers": r"kernel \w+ returns wrong numbers",
}

with_kt = [
    pytest.mark.runtime,
    pytest.mark.skipif(importlib.util.find_spec("kt_kernel") is None, reason="kt-kernel is not installed"),
    pytest.mark.skipif(usable_cores() < 2, reason="kt-kernel needs two cores for one thread"),
]


def inject(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, kernel: str, fault: str) -> None:
    """Make every call of ``kernel`` in processes started from here do ``fault``."""
    (folder / "sitecustomize.py").write_text(
        "import os, signal, time\n"
        f"from placer.kernels.{module} import {kernel} as Kernel\n"
        "right = Kernel.forward\n"
        f"def forward(self, layer, x, ids, weights):\n    {FAULTS[fault]}\n"
        "Kernel.forward = forward\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))


def spec(kernel: str) -> CampaignSpec:
    return CampaignSpec(
        device="cpu",
        backend=kernel,
        threads=1,
        subpools=1,
        shape=SHAPE,
        seed=0,
        max_seconds=10.0,
        resident_bytes=1 << 20,
    )


@pytest.mark.parametrize("fault", ["crash", "wrong numbers"])
def test_a_faulty_kernel_is_named_with_its_fault(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(tmp_path, monkeypatch, "torch_int4", "TorchInt4", fault)
    with pytest.raises(MissingComponentError, match=SIGNS[fault]):
        time_campaign(spec("torch"))


def test_a_thread_sweep_gives_a_kernel_up_after_two_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(tmp_path, monkeypatch, "torch_int4", "TorchInt4", "crash")
    monkeypatch.setattr(thread_sweep, "settings", lambda kernel, shape: [(1, 1)] * 12)
    tried: list[Progress] = []
    call = Call((1, 1), 1, Role.HELDOUT, "trace")
    with pytest.raises(MissingComponentError, match="no thread count that was tried .*" + SIGNS["crash"]):
        sweep_threads(
            TorchInt4,
            SHAPE,
            call,
            max_seconds=24.0,
            seed=0,
            resident_bytes=1 << 20,
            progress=tried.append,
        )
    assert len(tried) == 2


class TestWithKt:
    pytestmark = with_kt

    @pytest.mark.parametrize("fault", FAULTS)
    def test_the_profile_completes_with_the_next_kernel(
        self, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inject(tmp_path, monkeypatch, "kt_rawint4", "KtRawInt4", fault)
        monkeypatch.setattr(cpu_profile, "time_campaign", partial(time_campaign, stall_seconds=15.0))
        profile = profile_cpu(SHAPE, max_seconds=6.0, resident_bytes=1 << 20)
        # 256 does not divide the width, so LLAMAFILE is out; AMXINT8 needs AVX-512.
        assert profile.method == ("torch" if KtAmxInt8.problem(SHAPE, 1) else "AMXINT8")
        assert 0 < profile.output_error < 0.05
        assert re.search("not kt: " + SIGNS[fault], profile.reason)
        assert re.search("kt was tried and failed: " + SIGNS[fault], " ".join(profile.notes))

    @pytest.mark.parametrize("fault", ["crash", "wrong numbers"])
    def test_the_next_kernel_gets_a_thread_sweep_of_its_own(
        self, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inject(tmp_path, monkeypatch, "kt_rawint4", "KtRawInt4", fault)
        profile = profile_cpu(SHAPE, threads=None, max_seconds=8.0, resident_bytes=1 << 20)
        assert re.search(
            "kt was tried and failed: no thread count .*" + SIGNS[fault], " ".join(profile.notes)
        )
        kernel = next(backend for backend in CPU_BACKENDS if backend.name == profile.backend)
        assert [(timing.threads, timing.subpools) for timing in profile.sweep] == settings(kernel, SHAPE)
        assert all(timing.problem is None for timing in profile.sweep)

    @pytest.mark.skipif("amx_tile" in cpu_flags(), reason="this CPU has AMX tiles")
    @pytest.mark.skipif(KtAmxInt8.problem(SHAPE, 1) is not None, reason="AMXINT8 does not run here")
    def test_an_instruction_that_the_cpu_lacks_is_named_by_its_signal(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The override makes kt-kernel load its build for AMX tiles.
        monkeypatch.setenv("KT_KERNEL_CPU_VARIANT", "amx")
        with pytest.raises(MissingComponentError, match=r"kernel kt-amxint8 .* killed by SIGILL"):
            time_campaign(spec("kt-amxint8"))

    @pytest.mark.skipif("avx_vnni" in cpu_flags(), reason="this CPU has AVX-VNNI")
    def test_a_class_that_this_cpu_has_not_got_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KT_RAWINT4_BACKEND", "avxvnni")
        with pytest.raises(MissingComponentError, match=r"no RAWINT4 class to run here.*avx_vnni"):
            time_campaign(spec(KtRawInt4.name))

    @pytest.mark.skipif(KtAmxInt8.problem(SHAPE, 1) is not None, reason="AMXINT8 does not run here")
    def test_a_build_without_the_class_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KT_KERNEL_CPU_VARIANT", "avx2")
        with pytest.raises(MissingComponentError, match="build for this CPU has no AMXINT8 class"):
            time_campaign(spec("kt-amxint8"))
