"""A server's scheduling rules: whose scheduler, and the limits that it was started with."""

from dataclasses import dataclass
from enum import StrEnum

from placer.errors import BadInputError


class Scheduler(StrEnum):
    """Whose rules decide what the next step holds."""

    SGLANG = "sglang"
    """Prefill first: while a prompt can be admitted nothing decodes. Retracts when the KV pool is full."""

    VLLM = "vllm"
    """Mixed steps: every running request decodes, prompts take what is left of the token budget."""


@dataclass(frozen=True)
class Server:
    """Limits of a server.

    Attributes
    ----------
    max_running
        Requests that hold KV at a time.
    kv_tokens
        Capacity of the KV pool.
    chunk_tokens
        Most prompt tokens of an SGLang prefill step (--chunked-prefill-size); most tokens of a vLLM step
        (--max-num-batched-tokens).
    page_tokens
        KV tokens are given out in pages of so many (SGLang 1, vLLM 16 by default).
    """

    scheduler: Scheduler
    max_running: int
    kv_tokens: int
    chunk_tokens: int
    page_tokens: int = 1

    def __post_init__(self) -> None:
        for name in ("max_running", "kv_tokens", "chunk_tokens", "page_tokens"):
            if getattr(self, name) < 1:
                raise BadInputError(f"{name} of the server is {getattr(self, name)}", "give at least 1")
        if self.scheduler is Scheduler.VLLM and self.chunk_tokens < self.max_running:
            raise BadInputError(
                f"vLLM refuses a step of {self.chunk_tokens} tokens for {self.max_running} running requests",
                "raise the chunk to the running requests at least",
            )
