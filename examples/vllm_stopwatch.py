"""A stopwatch around the expert kernel of vLLM's CPU engine, and a record of the experts that tokens chose.

vLLM calls `attach` in each of its processes, as it does with every plugin; `plugin_folder` is what makes it one.
"""

import os
import struct
import time
from pathlib import Path
from typing import Any

RECORD = "PLACER_STOPWATCH"
"""Environment variable that names the file which calls are appended to."""
HEADER = struct.Struct("<ddii")
"""Of a call: start and end in seconds, tokens, top-k; uint16 ids [tokens, top-k] follow."""
_NAME = "placer_stopwatch"


def attach() -> None:
    """Time every call of the kernel from now on."""
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts  # noqa: PLC0415

    kernel = CPUUnquantizedExperts.apply
    record = os.open(os.environ[RECORD], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def apply(self: Any, *arguments: Any, **named: Any) -> None:
        start = time.perf_counter()
        kernel(self, *arguments, **named)
        end = time.perf_counter()
        ids = named["topk_ids"].numpy().astype("<u2")
        os.write(record, HEADER.pack(start, end, *ids.shape) + ids.tobytes())

    CPUUnquantizedExperts.apply = apply


def plugin_folder(folder: Path) -> Path:
    """Make ``folder`` one that, on PYTHONPATH, has vLLM attach the stopwatch."""
    about = folder / f"{_NAME}-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{_NAME} = {__name__}:attach\n")
    return folder
