"""The result of `vllm bench serve --save-result`: one JSON object per run (vllm/benchmarks/serve.py, 0.32.0)."""

from typing import Any

from pydantic import Field

from placer.profiler.serving.server import Scheduler
from placer.profiler.serving_benchmark import ClientResult, ServingBenchmark

VLLM_MARKS = frozenset({"endpoint_type", "model_id", "num_prompts"})
"""Fields by which a result of this client is known."""


class VllmResult(ClientResult):
    """The fields that are read; lengths of single requests are there with ``--save-detailed`` alone."""

    model_id: str
    failed: int = Field(default=0, ge=0)
    ramp_up_strategy: str | None = None
    spec_decode_acceptance_length: float | None = None

    def run(self, name: str) -> ServingBenchmark:
        """The run; the client knows neither the data set's name nor the server's arguments."""
        ramped = self if self.ramp_up_strategy is None else self.model_copy(update={"request_rate": "ramped"})
        return ramped.benchmark(
            name,
            client="vllm bench serve",
            scheduler=Scheduler.VLLM,
            model=self.model_id,
            dataset=None,
            failed=self.failed,
            drafted=self.spec_decode_acceptance_length is not None,
            server=None,
        )


def is_vllm_result(document: dict[str, Any]) -> bool:
    """Whether a document has the marks of this client."""
    return document.keys() >= VLLM_MARKS
