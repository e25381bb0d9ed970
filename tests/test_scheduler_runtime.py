"""The simulated schedulers against the runtimes' own code: every step holds the same requests and tokens."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sglang_schedule import play
from vllm_server import PYTHON, needs_vllm

from placer.examples import example_folder
from placer.profiler.serving.graph_batch import vllm_captured_batches
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.traffic import closed_loop

pytestmark = pytest.mark.runtime


@dataclass
class RecordedSteps:
    """Step times of 1 µs that keep what each step held: [decoding requests, prompt tokens]."""

    steps: list[list[int]] = field(default_factory=list)

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        self.steps += [[requests, 0]] * steps
        return np.ones(steps)

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        self.steps.append([requests, prompt_tokens])
        return 1.0


def simulated(
    server: Server, clients: int, prompts: list[int], outputs: list[int]
) -> tuple[list[list[int]], list[int]]:
    recorded = RecordedSteps()
    served = simulate(closed_loop(clients, np.array(prompts), np.array(outputs)), server, recorded)
    return recorded.steps, served.retractions.tolist()


def answer_of_vllm(script: str, asked: Any) -> Any:
    """What a script beside this file prints when vLLM's Python runs it on ``asked``."""
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    answer = subprocess.run(
        [str(PYTHON), script],
        cwd=os.path.dirname(__file__),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return json.loads(answer.stdout)


@pytest.mark.parametrize("page", [1, 16])
def test_sglang_takes_the_same_steps(page: int) -> None:
    random = np.random.default_rng(0)
    retracted = 0
    for _ in range(400):
        requests = int(random.integers(1, 25))
        prompts, outputs = (
            random.integers(1, 100, requests).tolist(),
            random.integers(1, 130, requests).tolist(),
        )
        clients, running = int(random.integers(1, 12)), int(random.integers(1, 9))
        kv_tokens, chunk = int(random.integers(235, 500)), int(random.integers(16, 300))
        if page > 1:
            # Whole pages, and one more than the longest request takes.
            kv_tokens, chunk = max(272, kv_tokens // page * page), chunk // page * page
        steps, retractions = play(
            max_running=running,
            kv_tokens=kv_tokens,
            chunk_tokens=chunk,
            clients=clients,
            prompts=prompts,
            outputs=outputs,
            page_tokens=page,
        )
        server = Server(Scheduler.SGLANG, running, kv_tokens, chunk, page_tokens=page)
        assert simulated(server, clients, prompts, outputs) == (steps, retractions)
        retracted += sum(retractions)
    # The cases reach what they are for.
    assert retracted > 20


@needs_vllm
def test_vllm_takes_the_same_steps() -> None:
    random = np.random.default_rng(1)
    cases = []
    for _ in range(40):
        requests, running = int(random.integers(1, 16)), int(random.integers(1, 8))
        cases.append(
            {
                "model": str(example_folder("tiny-moe")),
                "max_running": running,
                "blocks": int(random.integers(15, 40)),
                "block_tokens": 16,
                "step_tokens": max(running, int(random.integers(16, 128))),
                "clients": int(random.integers(1, 12)),
                "prompts": random.integers(1, 110, requests).tolist(),
                "outputs": random.integers(1, 110, requests).tolist(),
            }
        )
    played = answer_of_vllm("vllm_schedule.py", cases)
    for case, real in zip(cases, played, strict=True):
        server = Server(
            Scheduler.VLLM, case["max_running"], case["blocks"] * 16, case["step_tokens"], page_tokens=16
        )
        assert simulated(server, case["clients"], case["prompts"], case["outputs"]) == (
            real["steps"],
            real["retractions"],
        )
    assert sum(sum(real["retractions"]) for real in played) > 10


@needs_vllm
def test_vllms_graphs_are_those_that_it_chooses() -> None:
    asked = [
        (1, 64),
        (3, 3),
        (5, 2048),
        (12, 8),
        (16, 256),
        (100, 150),
        (128, 2048),
        (300, 8192),
        (600, 8192),
    ]
    found = answer_of_vllm("vllm_graphs.py", asked)
    assert [vllm_captured_batches(*each) for each in asked] == [tuple(sizes) for sizes in found]
