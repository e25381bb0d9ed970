"""What an sglang-kt 0.7.2 server says of itself in its log: hot experts, pools, memory, its own arguments."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.units import GIB

MAX_LINE = 1 << 16
"""Characters of a line that are read; the arguments that a server prints take about ten thousand."""

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_START = re.compile(r"\bserver_args=ServerArgs\((?:(.*)\)\s*$)?")
_RANK = re.compile(r"^\[[^\]]*?\bTP(\d{1,5})\b")
_HOT = re.compile(r"KT GPU experts: layer (\d{1,9}) \(MoE\) has (\d{1,9}) GPU experts")
_STRATEGY = re.compile(r"Generated KT GPU experts masks using '([a-z-]{1,40})' strategy")
_POOL = re.compile(r"\bmax_total_num_tokens=(\d{1,15}), .*?\bmax_running_requests=(\d{1,9})\b")
_PROFILED = re.compile(r"max_total_tokens=\d{1,15} is larger than the profiled value (\d{1,15})")
_LOADED = re.compile(r"Load weight end\..*?\bmem usage=(-?\d{1,6}\.\d+) GB")
_CACHE = re.compile(
    r"KV Cache is allocated\. #tokens: \d{1,15}, "
    r"(?:K size: (\d{1,6}\.\d+) GB, V size: (\d{1,6}\.\d+) GB|KV size: (\d{1,6}\.\d+) GB)"
)
_STATES = re.compile(r"Mamba Cache is allocated\. max_mamba_cache_size: (\d{1,9}),")
_POOLS_END = "Memory pool end."
_ARGUMENT = re.compile(r"(?:^|, )([a-z_0-9]+)=('[^']*'|\"[^\"]*\"|\[[^\]]*\]|[^,\[\]'\"]*)")
_COMPLAINTS = {
    "WITHOUT activation frequency data": "the server found no ranking and chose experts by itself",
    "Could not determine num_layers or num_experts": "the server could not read the model's layers: KT is off",
    "Either kt_num_gpu_experts or kt_gpu_experts_ratio is required": "no --kt-gpu-experts-ratio: KT is off",
    "import failed: sglang.srt.layers.moe.kt_ep_wrapper": "the KT wrapper could not be imported: KT is off",
    "Ignore import error when loading sglang.srt.models.deepseek_v4": (
        "models/deepseek_v4.py, which brings in the KT wrapper, could not be imported: KT is off"
    ),
}
"""Warnings of the runtime after which the plan is not what runs, and what each one means."""


@dataclass
class ServerLog:
    """The last start of a server in its log; None or empty where the log does not say.

    Attributes
    ----------
    hot
        Hot experts of each layer that the runtime counts as MoE.
    strategy
        How it chose them.
    kv_tokens, running
        Capacity of the KV pool, and requests that may run together.
    states
        Slots for recurrent states of a hybrid model.
    profiled_tokens
        Room for tokens that it found, where that was less than it was told to make.
    weights_bytes, cache_bytes
        What weights and KV pools took, by tensor-parallel rank; the log rounds to 0.01 GiB.
    arguments
        The server's own arguments, after it has adjusted them, as text.
    complaints
        Warnings after which the plan is not what runs.
    """

    hot: dict[int, int] = field(default_factory=dict)
    strategy: str | None = None
    kv_tokens: int | None = None
    running: int | None = None
    states: int | None = None
    profiled_tokens: int | None = None
    weights_bytes: dict[int, int] = field(default_factory=dict)
    cache_bytes: dict[int, int] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    _pooled: set[int] = field(default_factory=set)

    def _read(self, line: str) -> bool:
        """Take in one line; whether it says anything."""
        rank_match = _RANK.match(line)
        rank = int(rank_match.group(1)) if rank_match else 0
        if match := _HOT.search(line):
            self.hot[int(match.group(1))] = int(match.group(2))
        elif match := _STRATEGY.search(line):
            self.strategy = match.group(1)
        elif match := _POOL.search(line):
            self.kv_tokens, self.running = int(match.group(1)), int(match.group(2))
        elif match := _PROFILED.search(line):
            self.profiled_tokens = int(match.group(1))
        elif match := _STATES.search(line):
            self.states = int(match.group(1))
        elif match := _LOADED.search(line):
            # A draft model is loaded after the model itself.
            self.weights_bytes.setdefault(rank, _gib_bytes(match.group(1)))
        elif match := _CACHE.search(line):
            if rank not in self._pooled:
                sizes = sum(_gib_bytes(size) for size in match.groups() if size)
                self.cache_bytes[rank] = self.cache_bytes.get(rank, 0) + sizes
        elif _POOLS_END in line:
            # The pools behind this line are those of a draft.
            self._pooled.add(rank)
        else:
            found = [meaning for words, meaning in _COMPLAINTS.items() if words in line]
            self.complaints += [meaning for meaning in found if meaning not in self.complaints]
            return bool(found)
        return True


def _gib_bytes(text: str) -> int:
    return int(float(text) * GIB)


def read_server_log(path: Path) -> ServerLog:
    """What the log at ``path`` says of the server's last start in it.

    The formats are those of kt_ep_wrapper.py, scheduler.py, model_runner.py, memory_pool.py and engine.py in
    sglang-kt 0.7.2.

    Raises
    ------
    BadInputError
        When the file cannot be read, or no line of it is one of a starting server.
    """
    path = checked_input(path, what="server log", cure="give the file that launch.sh's output went to")
    log, heard, other = ServerLog(), False, False
    try:
        for line in _lines(path):
            if match := _START.search(line):
                # A log that is appended to holds every start; only the last one runs.
                log, heard = ServerLog(arguments=_arguments(match.group(1) or "")), True
            else:
                heard = log._read(line) or heard
                other = other or "placer-placement" in line or "vLLM API server" in line
    except OSError as error:
        raise BadInputError(
            f"cannot read server log {path}: {error.strerror or error}", "check the path"
        ) from None
    if not heard:
        raise BadInputError(
            f"{path} holds no line of a starting sglang-kt server",
            "it is a log of vLLM: add --runtime vllm-plugin"
            if other
            else "start with: ./launch.sh 2>&1 | tee server.log (at log level info, the default)",
        )
    return log


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(MAX_LINE):
            yield COLOUR.sub("", line)


def _arguments(text: str) -> dict[str, str]:
    return {name: value.strip("'\"") for name, value in _ARGUMENT.findall(text)}
