"""The result of SGLang's bench_serving: one JSON object per run and line (sglang/bench_serving.py, sglang-kt 0.7.2)."""

from typing import Any, ClassVar

from pydantic import Field

from placer.errors import BadInputError
from placer.profiler.serving.server import Scheduler
from placer.profiler.serving_benchmark import ClientResult, ServingBenchmark

SGLANG_MARKS = frozenset({"backend", "sharegpt_output_len"})
"""Fields by which a result of this client is known; releases before 0.5 write no ``server_info``."""


class SglangResult(ClientResult):
    """The fields that are read; lengths of single requests are there with ``--output-details`` alone."""

    backend: str
    dataset_name: str | None = None
    server_info: dict[str, Any] | None = None
    accept_length: float | None = Field(default=None)

    lengths_option: ClassVar[str] = "--output-details"
    arrivals_option: ClassVar[str | None] = None
    counts_failed: ClassVar[bool] = False

    def run(self, name: str) -> ServingBenchmark:
        """The run; ``server_info`` names the model, because the client does not.

        Raises
        ------
        BadInputError
            As `ClientResult.benchmark`; and when prefill and decode ran on different servers.
        """
        info = self.server_info or {}
        if "decode" in info:
            raise BadInputError(
                f"{name} is of servers that share prefill and decode among them; predictions are of one server",
                "give the benchmark of the server that ran this placement",
            )
        model = info.get("model_path")
        return self.benchmark(
            name,
            client="sglang bench_serving",
            scheduler=next((each for each in Scheduler if self.backend.startswith(each.value)), None),
            model=model if isinstance(model, str) else None,
            dataset=self.dataset_name,
            # The client counts none; with --output-details `benchmark` counts the errors.
            failed=0,
            drafted=self.accept_length is not None or bool(info.get("speculative_algorithm")),
            server=self.server_info or None,
        )


def is_sglang_result(document: dict[str, Any]) -> bool:
    """Whether a document has the marks of this client."""
    return document.keys() >= SGLANG_MARKS
