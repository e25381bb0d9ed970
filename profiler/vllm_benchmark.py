"""The result of `vllm bench serve --save-result`: one JSON object per run (vllm/benchmarks/serve.py, 0.32.0)."""

from typing import Any, ClassVar

from pydantic import Field

from placer.profiler.serving.server import Scheduler
from placer.profiler.serving_benchmark import MOST_REQUESTS, ClientResult, ServingBenchmark

VLLM_MARKS = frozenset({"model_id", "num_prompts", "tokenizer_id"})
"""Fields by which a result of this client is known; its predecessor, benchmark_serving.py, writes them, too."""


class VllmResult(ClientResult):
    """The fields that are read; lengths of single requests are there with ``--save-detailed`` alone."""

    model_id: str
    num_prompts: int = Field(ge=0, le=MOST_REQUESTS)
    backend: str = ""
    failed: int | None = Field(default=None, ge=0, le=MOST_REQUESTS)
    ramp_up_strategy: str | None = None
    spec_decode_acceptance_length: float | None = None

    lengths_option: ClassVar[str] = "--save-detailed"
    arrivals_option: ClassVar[str | None] = "--save-detailed"

    def run(self, name: str) -> ServingBenchmark:
        """The run; the client knows neither the data set's name nor the server's arguments.

        Releases of 2025 do not count the requests that failed: those that were asked for and not answered.
        """
        asked = self.num_prompts if self.input_lens is None else len(self.input_lens)
        ramped = self if self.ramp_up_strategy is None else self.model_copy(update={"request_rate": "ramped"})
        return ramped.benchmark(
            name,
            client="vllm bench serve",
            scheduler=Scheduler.SGLANG if self.backend.startswith(Scheduler.SGLANG.value) else Scheduler.VLLM,
            model=self.model_id,
            dataset=None,
            failed=max(0, asked - self.completed) if self.failed is None else self.failed,
            drafted=self.spec_decode_acceptance_length is not None,
            server=None,
        )


def is_vllm_result(document: dict[str, Any]) -> bool:
    """Whether a document has the marks of this client."""
    return document.keys() >= VLLM_MARKS
