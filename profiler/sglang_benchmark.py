"""The result of SGLang's bench_serving: one JSON object per run and line (sglang/bench_serving.py, sglang-kt 0.7.2)."""

from typing import Any

from pydantic import Field

from placer.profiler.serving.server import Scheduler
from placer.profiler.serving_benchmark import ClientResult, ServingBenchmark

SGLANG_MARKS = frozenset({"backend", "server_info", "sharegpt_output_len"})
"""Fields by which a result of this client is known."""


class SglangResult(ClientResult):
    """The fields that are read; lengths of single requests are there with ``--output-details`` alone."""

    backend: str
    dataset_name: str | None = None
    server_info: dict[str, Any] | None = None
    accept_length: float | None = Field(default=None)

    def run(self, name: str) -> ServingBenchmark:
        """The run; ``server_info`` names the model, because the client does not."""
        info = self.server_info or {}
        model = info.get("model_path")
        return self.benchmark(
            name,
            client="sglang bench_serving",
            scheduler=next((each for each in Scheduler if self.backend.startswith(each.value)), None),
            model=model if isinstance(model, str) else None,
            dataset=self.dataset_name,
            failed=0,
            drafted=self.accept_length is not None or bool(info.get("speculative_algorithm")),
            server=self.server_info,
        )


def is_sglang_result(document: dict[str, Any]) -> bool:
    """Whether a document has the marks of this client."""
    return document.keys() >= SGLANG_MARKS
