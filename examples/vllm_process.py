"""Processes of a vLLM environment: one that runs to its end, and a server that is ended with everything it started."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.errors import MissingComponentError
from placer.examples.cores import keep_off

READY_WITHIN_S = 300.0
_POLL_S = 0.2


@dataclass(frozen=True)
class VllmEnvironment:
    """Where vLLM is installed, and the core that its engine's one thread is bound to.

    Attributes
    ----------
    python
        Its interpreter; placer is installed beside it.
    core
        The engine's core. Client and API server take the others.
    """

    python: Path
    core: int

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """Environment variables of its processes."""
        return {
            **os.environ,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": str(self.core),
            # Worker processes wait for one another by spinning, which takes the clients' core where there are two.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            **more,
        }


def run_to_end(
    environment: VllmEnvironment,
    arguments: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    *,
    what: str,
) -> None:
    """Run ``python -P ARGUMENTS``; ``log`` keeps what it prints.

    Raises
    ------
    MissingComponentError
        When it fails; the message has the last line that it printed.
    """
    with _started(environment, arguments, log, variables) as process:
        code = process.wait()
    if code:
        raise _failure(what, code, log)


@contextlib.contextmanager
def serving(environment: VllmEnvironment, model: Path, flags: Sequence[str], log: Path) -> Iterator[int]:
    """A server of ``model``, called by its folder's name, on the port that this yields once it is ready.

    Raises
    ------
    MissingComponentError
        When it ends, or is not ready in time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    # "vllm serve" asks for metadata of a package that the CPU wheel calls otherwise; the module is the same.
    arguments = [
        *(
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(model),
            "--served-model-name",
            model.name,
        ),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--enforce-eager"),
        *flags,
    ]
    with _started(environment, arguments, log, {}) as process:
        deadline = time.monotonic() + READY_WITHIN_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise _failure("vLLM's server", process.poll(), log)
            time.sleep(_POLL_S)
        keep_off(environment.core, process.pid)
        yield port


@contextlib.contextmanager
def _started(
    environment: VllmEnvironment, arguments: Sequence[str], log: Path, variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, with all that it started, when the block is left."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(environment.python), "-P", *arguments],
            env=environment.variables(variables),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the others.
        )
        try:
            yield process
        finally:
            for number, patience_s in ((signal.SIGINT, 20.0), (signal.SIGKILL, None)):
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=patience_s)
            # Workers of an engine that was killed would live on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _answers(port: int) -> bool:
    with (
        contextlib.suppress(OSError, urllib.error.URLError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2),
    ):
        return True
    return False


def _failure(what: str, code: int | None, log: Path) -> MissingComponentError:
    how = "was not ready in time" if code is None else f"ended with code {code}"
    lines = [
        line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "rror" in line
    ]
    return MissingComponentError(
        f"{what} {how}: {lines[-1][-300:] if lines else 'no message'}",
        "see that vllm-cpu and placer are installed there (make test-runtimes), and that 6 GiB of memory are free",
    )
