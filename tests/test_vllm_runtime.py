"""Recording from a real vLLM server: the experts it returns are those that transformers runs, in every row."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from vllm_server import PYTHON, needs_vllm, vllm_server

from placer.errors import BadInputError
from placer.examples import example_folder
from placer.profiler.benchmark_file import read_benchmark_file
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


def test_what_vllms_benchmark_client_writes_is_read(url: str, model: Path, tmp_path: Path) -> None:
    client = (
        "from vllm.benchmarks.serve import add_cli_args, main; "
        "from vllm.utils.argparse_utils import FlexibleArgumentParser; "
        "parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
    )
    command = [PYTHON, "-c", client, "--backend", "openai", "--base-url", url, "--model", "tiny-moe"]
    command += [
        "--tokenizer",
        model,
        "--dataset-name",
        "random",
        "--random-input-len",
        "16",
        "--num-prompts",
        "3",
    ]
    command += ["--random-output-len", "4", "--max-concurrency", "2", "--save-result", "--save-detailed"]
    command += ["--result-dir", tmp_path, "--result-filename", "bench.json"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True)
    (run,) = read_benchmark_file(tmp_path / "bench.json").runs
    assert (run.client, run.model, run.clients, run.requests) == ("vllm bench serve", "tiny-moe", 2, 3)
    assert run.detailed
    assert run.output_tokens == (4, 4, 4)
    assert min(run.input_tokens) >= 16
    # In a closed loop of two clients, three requests take two turns of one TTFT and three TPOT.
    turn_ms = run.mean_ttft_ms + 3 * run.mean_tpot_ms
    assert 12 / run.output_tokens_per_s * 1e3 == pytest.approx(2 * turn_ms, rel=0.5)


def test_a_server_without_the_switch_is_told_which_flag_it_lacks(model: Path, tmp_path: Path) -> None:
    with (
        vllm_server(model, tmp_path) as address,
        pytest.raises(BadInputError, match="no routed_experts") as caught,
    ):
        record(RecordRequest(model, server=address), prompts(), tmp_path / "none.safetensors")
    assert "--enable-return-routed-experts" in caught.value.hint
    assert not (tmp_path / "none.safetensors").exists()
