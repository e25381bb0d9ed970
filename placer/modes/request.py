"""What a comparison is asked for: the traffic, the numbers of GPUs, and the memory of either side."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.prediction import VLLM_PAGE_TOKENS
from placer.profiler.serving.server import Scheduler
from placer.runtime_behaviour import DEFAULT_BEHAVIOUR, RuntimeBehaviour
from placer.workload import Workload

MOST_GPUS = 64
GPU_COUNTS = f"numbers of GPUs between commas, 1 to {MOST_GPUS} each"


@dataclass(frozen=True)
class CompareRequest:
    """What the user asks of a comparison.

    Attributes
    ----------
    gpus
        Numbers of GPUs to compare, ascending.
    budget_bytes, device_bytes
        Device memory per GPU that the process may use, and that there is.
    kv_tokens
        Least capacity of the KV pool, in tokens.
    kv_dtype
        "bf16" or "fp8".
    host_memory_bytes
        RAM of the server, or None where it is not known.
    scheduler, behaviour
        Whose rules servers schedule by, and what the runtime of hot and cold experts does beyond its defaults.
    """

    workload: Workload
    gpus: tuple[int, ...]
    budget_bytes: int
    device_bytes: int
    kv_tokens: int = 0
    kv_dtype: str = "bf16"
    host_memory_bytes: int | None = None
    seed: int = 0
    scheduler: Scheduler = Scheduler.SGLANG
    behaviour: RuntimeBehaviour = DEFAULT_BEHAVIOUR

    def __post_init__(self) -> None:
        if not self.gpus or not all(1 <= count <= MOST_GPUS for count in self.gpus):
            raise BadInputError(
                f"--gpus is {','.join(map(str, self.gpus)) or 'empty'}",
                f"give {GPU_COUNTS}",
            )
        if self.kv_tokens < 0:
            raise BadInputError(f"--kv-tokens is {self.kv_tokens}", "give 0 or more")

    @property
    def least_kv_tokens(self) -> int:
        """Least KV pool: what was asked for, and room for the longest request in whole pages of any runtime."""
        longest = -(-self.workload.longest_request_tokens // VLLM_PAGE_TOKENS) * VLLM_PAGE_TOKENS
        return max(self.kv_tokens, longest)
