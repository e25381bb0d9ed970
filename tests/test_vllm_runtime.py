"""Recording from a real vLLM server: the experts it returns are those that transformers runs, in every row."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from vllm_server import needs_vllm, vllm_server

from placer.errors import BadInputError
from placer.examples import example_folder
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.record import RecordRequest, record
from placer.profiler.trace.routing_server import find_server
from placer.profiler.trace.trace import Phase, TokenTrace

pytestmark = [pytest.mark.runtime, needs_vllm]

GREEDY = GenerationSettings(new_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def model() -> Path:
    """The bundled example; the server tells its path, so the recorder needs no --model."""
    return example_folder("tiny-moe")


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # A small prefill chunk cuts the longer prompts into several steps.
    flags = ("--enable-return-routed-experts", "--max-num-batched-tokens", "64", "--max-num-seqs", "4")
    with vllm_server(model, tmp_path_factory.mktemp("vllm"), *flags) as address:
        yield address


def prompts() -> list[Prompt]:
    """Texts of all three domains, from a few tokens to a few chunks, and two that begin alike."""
    start = "And it came to pass in those days, that the king spake unto the people, saying, "
    return [
        Prompt("code", text="def main(self, argument):\n    return self"),
        Prompt("code", text="import os\nimport sys\n\nclass Reader:\n" + "    def read(self): pass\n" * 12),
        Prompt("addresses", text="Fellow citizens of the Senate and House of Representatives: " * 6),
        Prompt("scripture", text=start * 5 + "Hear me."),
        Prompt("scripture", text=start * 5 + "Go ye in peace, and fear not."),
        Prompt("tokens", token_ids=tuple(range(1, 100))),
    ]


def token_sets(trace: TokenTrace) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """Ids in rising order: a runtime's order within a token says nothing."""
    return np.sort(trace.topk_ids, axis=2)


def test_every_row_equals_what_transformers_runs_on_the_same_tokens(
    url: str, model: Path, tmp_path: Path
) -> None:
    recording = record(
        RecordRequest(None, server=url, settings=GREEDY, concurrency=3),
        prompts(),
        tmp_path / "served.safetensors",
    )
    served = recording.trace()
    assert recording.failures == {}
    assert set(served.phase) == {Phase.PREFILL, Phase.DECODE}
    # The tokens themselves are asked for once more; the second answers come from the prefix cache.
    server = find_server(url, timeout_s=60)
    tokens = []
    for index, prompt in enumerate(prompts()):
        choice = server.ask(prompt, GREEDY, index)["choices"][0]
        tokens.append((*choice["prompt_token_ids"], *choice["token_ids"][:-1]))
    again = [Prompt(prompt.domain, token_ids=ids) for prompt, ids in zip(prompts(), tokens, strict=True)]
    run = record(
        RecordRequest(model, device="cpu", dtype="float32"), again, tmp_path / "run.safetensors"
    ).trace()
    assert np.array_equal(served.request, run.request)
    assert np.array_equal(served.position, run.position)
    differing = np.argwhere((token_sets(served) != token_sets(run)).any(axis=2))
    assert not differing.size, f"rows (token, layer) that differ: {differing.tolist()}"


def test_rows_from_the_prefix_cache_equal_those_of_the_first_run(url: str, tmp_path: Path) -> None:
    request = RecordRequest(None, server=url, settings=GREEDY, concurrency=1)
    first = record(request, prompts(), tmp_path / "first.safetensors").trace()
    second = record(request, prompts(), tmp_path / "second.safetensors").trace()
    assert np.array_equal(token_sets(first), token_sets(second))


def test_the_header_says_where_the_trace_is_from_and_a_prompt_too_long_is_counted(
    url: str, tmp_path: Path
) -> None:
    long = Prompt("code", token_ids=tuple([5] * 4000))
    recording = record(
        RecordRequest(None, server=url, settings=GREEDY), [*prompts(), long], tmp_path / "t.safetensors"
    )
    trace = read_trace(tmp_path / "t.safetensors")
    assert isinstance(trace, TokenTrace)
    assert trace.header.source.startswith("vLLM 0.32.0 routed experts; 12 new tokens, temperature 0")
    assert trace.header.domains == ("code", "addresses", "scripture", "tokens")
    assert np.unique(trace.request).tolist() == [0, 1, 2, 3, 4, 5]
    assert sum(recording.failures.values()) == 1
    assert "1 of 7 requests failed: 1 × HTTP 400" in trace.header.notes[0]


def test_a_server_without_the_switch_is_told_which_flag_it_lacks(model: Path, tmp_path: Path) -> None:
    with (
        vllm_server(model, tmp_path) as address,
        pytest.raises(BadInputError, match="no routed_experts") as caught,
    ):
        record(RecordRequest(model, server=address), prompts(), tmp_path / "none.safetensors")
    assert "--enable-return-routed-experts" in caught.value.hint
    assert not (tmp_path / "none.safetensors").exists()
