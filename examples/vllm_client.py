"""Runs vLLM's own serving benchmark for several numbers of clients: ``python -m placer.examples.vllm_client RUNS``.

Run by the Python of vLLM's environment, in one process, because importing vLLM takes longer than a short run.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from placer.examples.cores import busy_share, keep_off


@dataclass(frozen=True)
class ClientRuns:
    """What to send.

    Attributes
    ----------
    model, served_name, port
        Checkpoint directory, whose tokenizer is used; what the server calls it, and where it listens.
    engine_core
        The core that is left to the engine.
    prompt_tokens, output_tokens, variation
        Mean lengths of random prompts and outputs, and how far they spread around them, as a share.
    runs
        (clients, requests, file for the result) of every run. `busy_file` of it takes how busy the cores of client
        and API server were.
    """

    model: str
    served_name: str
    port: int
    engine_core: int
    prompt_tokens: int
    output_tokens: int
    variation: float
    runs: tuple[tuple[int, int, str], ...]

    def to_json(self) -> str:
        """The runs as one JSON document."""
        return json.dumps(asdict(self))


def busy_file(result: Path) -> Path:
    """Where the share goes for which the cores of client and API server were busy in the run of ``result``."""
    return result.with_suffix(".busy.json")


def arguments(asked: ClientRuns, clients: int, requests: int, result: str) -> list[str]:
    """Those of `vllm bench serve`; every run draws the same requests."""
    flags = {
        "backend": "openai",
        "endpoint": "/v1/completions",
        "host": "127.0.0.1",
        "port": asked.port,
        "model": asked.served_name,
        "tokenizer": asked.model,
        "dataset-name": "random",
        "random-input-len": asked.prompt_tokens,
        "random-output-len": asked.output_tokens,
        "random-range-ratio": asked.variation,
        "num-prompts": requests,
        "max-concurrency": clients,
        "num-warmups": min(clients, 4),
        "percentile-metrics": "ttft,tpot,itl",
        "metric-percentiles": "95",
        "temperature": 0,
        "seed": 0,
        "result-filename": result,
    }
    switches = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
    return [*(text for name, value in flags.items() for text in (f"--{name}", str(value))), *switches]


def main(given: list[str]) -> int:
    """Do the runs in the given file."""
    from vllm.benchmarks.serve import add_cli_args  # noqa: PLC0415
    from vllm.benchmarks.serve import main as bench  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    asked = ClientRuns(**json.loads(Path(given[0]).read_text(encoding="utf-8")))
    keep_off(asked.engine_core, os.getpid())
    for clients, requests, result in asked.runs:
        parser = FlexibleArgumentParser()
        add_cli_args(parser)
        with busy_share(asked.engine_core) as busy:
            bench(parser.parse_args(arguments(asked, clients, requests, result)))
        busy_file(Path(result)).write_text(json.dumps(busy), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
