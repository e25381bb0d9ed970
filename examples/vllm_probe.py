"""Runs vLLM's engine on prompts and batches of known sizes: ``python -m placer.examples.vllm_probe PROBE.json``.

Run by the Python of vLLM's environment, with the stopwatch attached; what it measures is read by `engine_steps`.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placer.examples.cores import keep_off

Mark = tuple[float, int, int, int]
"""When a request was added (seconds), its prompt tokens, the batch that it is one of (0: it runs alone), its place."""
_OUTPUT_TOKENS_ALONE = 4
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Probe:
    """What to run.

    Attributes
    ----------
    model, vocabulary
        Checkpoint directory, and tokens that random prompts are drawn from.
    engine_core
        The core that is left to the engine.
    max_running, chunk_tokens
        Limits of the engine (--max-num-seqs, --max-num-batched-tokens).
    chunks, repeats
        Tokens of prompts that run alone, and how often each does.
    batches, prompt_tokens, steps
        Requests that decode side by side, in the order of the runs; their prompts; decode steps of each run.
    marks
        File for the marks of all requests, in order.
    """

    model: str
    vocabulary: int
    engine_core: int
    max_running: int
    chunk_tokens: int
    chunks: tuple[int, ...]
    repeats: int
    batches: tuple[int, ...]
    prompt_tokens: int
    steps: int
    marks: str

    def to_json(self) -> str:
        """The probe as one JSON document."""
        return json.dumps(asdict(self))


class ProbedEngine:
    """vLLM's engine as its API server runs it: the core in a process of its own, outputs read here."""

    def __init__(self, probe: Probe) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

        self._engine: Any = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=probe.model,
                dtype="bfloat16",
                enforce_eager=True,
                block_size=32,
                enable_prefix_caching=False,
                max_num_seqs=probe.max_running,
                max_num_batched_tokens=probe.chunk_tokens,
            )
        )
        keep_off(probe.engine_core, os.getpid())
        self._probe = probe
        self._chosen = random.Random(0)
        self.marks: list[Mark] = []

    def close(self) -> None:
        """End the core's process."""
        self._engine.shutdown()

    async def alone(self, prompt_tokens: int) -> None:
        """One request, with nothing beside it."""
        async for _ in self._outputs(prompt_tokens, _OUTPUT_TOKENS_ALONE, 0, 0):
            pass

    async def together(self, batch: int) -> None:
        """So many requests that join one after another, until the first of them ends."""
        length = self._probe.steps + 4 * batch
        running: list[asyncio.Task[None]] = []
        for place in range(batch):
            started = asyncio.Event()
            running.append(asyncio.create_task(self._read(length, batch, place, started)))
            await started.wait()
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        # What was running when they were cancelled runs to its end.
        await asyncio.sleep(_PAUSE_S)

    async def _read(self, length: int, batch: int, place: int, started: asyncio.Event) -> None:
        async for _ in self._outputs(self._probe.prompt_tokens, length, batch, place):
            started.set()

    def _outputs(self, prompt_tokens: int, output_tokens: int, batch: int, place: int) -> AsyncIterator[Any]:
        from vllm import SamplingParams  # noqa: PLC0415

        prompt = [self._chosen.randrange(1, self._probe.vocabulary) for _ in range(prompt_tokens)]
        settings = SamplingParams(max_tokens=output_tokens, ignore_eos=True, temperature=0.0)
        self.marks.append((time.perf_counter(), prompt_tokens, batch, place))
        outputs: AsyncIterator[Any] = self._engine.generate(
            {"prompt_token_ids": prompt}, settings, str(len(self.marks))
        )
        return outputs


async def run(probe: Probe) -> list[Mark]:
    """Run everything; the marks."""
    engine = ProbedEngine(probe)
    try:
        for _ in range(probe.repeats):
            for tokens in probe.chunks:
                await engine.alone(tokens)
        for batch in probe.batches:
            await engine.together(batch)
    finally:
        engine.close()
    return engine.marks


def main(arguments: list[str]) -> int:
    """Run the probe in the given file and write its marks."""
    probe = Probe(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    Path(probe.marks).write_text(json.dumps(asyncio.run(run(probe))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
