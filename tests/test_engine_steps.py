"""What a stopwatch in vLLM's engine recorded, read as passes: by hand, for a model of four layers."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny_model

from placer.errors import BadInputError
from placer.examples.engine_steps import EngineSteps, read_engine_steps
from placer.examples.vllm_stopwatch import HEADER
from placer.profiler.step_load import StepLoad
from placer.profiler.trace.trace import Phase

LAYERS, EXPERTS_US, BETWEEN_US = 4, 100.0, 50.0


def calls(start_us: float, tokens: int, expert: int) -> bytes:
    """A pass whose layers take 100 us in the expert kernel and 50 between; every token chooses the same two."""
    ids = np.tile(np.array([expert, expert + 1], dtype="<u2"), (tokens, 1)).tobytes()
    begins = [start_us + layer * (EXPERTS_US + BETWEEN_US) for layer in range(LAYERS)]
    return b"".join(HEADER.pack(at / 1e6, (at + EXPERTS_US) / 1e6, tokens, 2) + ids for at in begins)


def recorded(
    folder: Path, passes: list[tuple[float, int, int]], marks: list[tuple[float, int, int, int]]
) -> EngineSteps:
    record, marked = folder / "calls.bin", folder / "marks.json"
    record.write_bytes(b"".join(calls(*each) for each in passes))
    marked.write_text(json.dumps([(at / 1e6, *rest) for at, *rest in marks]))
    return read_engine_steps(record, marked, tiny_model(folder / "tiny-moe"))


PASSES = [
    (0, 64, 0),  # A warm-up, before anything was asked for.
    *((2_000, 8, 0), (4_500, 1, 0), (5_500, 1, 0)),  # A prompt of 8 alone, and two decode steps of it.
    *((10_000, 3, 1), (11_100, 1, 1), (12_200, 1, 1)),  # A batch of one: a prompt of 3, then decode steps.
    *((20_000, 3, 2), (21_000, 4, 3), (22_200, 2, 4), (23_500, 2, 5), (24_800, 1, 6)),  # A batch of two.
]
MARKS = [(1_000, 8, 0, 0), (9_000, 3, 1, 0), (19_000, 3, 2, 0), (20_500, 3, 2, 1)]


def test_the_base_is_what_a_step_takes_beside_its_experts(tmp_path: Path) -> None:
    steps = recorded(tmp_path, PASSES, MARKS)
    # 2,500 us from the prompt's pass to the next, 400 of them in four layers' experts; 1,100 and 1,300 of decoding.
    assert steps.prompt_base_us == pytest.approx({8: 2_100})
    assert steps.decode_base_us == pytest.approx({1: 700, 2: 900})
    assert steps.experts_share == pytest.approx({1: 400 / 1_100, 2: 400 / 1_300})


def test_what_a_decoding_request_adds_is_beyond_its_token(tmp_path: Path) -> None:
    base = recorded(tmp_path, PASSES, MARKS).base_cost("a CPU")
    # Between one token's 700 us and eight tokens' 2,100, two tokens of a prompt take 900.
    assert base.step_us(StepLoad(chunk_tokens=8), kv_dtype="bf16") == pytest.approx(2_100)
    assert base.step_us(StepLoad(batch=1), kv_dtype="bf16") == pytest.approx(700)
    assert base.step_us(StepLoad(batch=2), kv_dtype="bf16") == pytest.approx(900)


def test_tokens_are_told_apart_by_their_rows(tmp_path: Path) -> None:
    trace = recorded(tmp_path, PASSES, MARKS).trace
    assert np.bincount(trace.request).tolist() == [5, 6, 5]
    assert (trace.phase == Phase.PREFILL).sum() == 9
    # The first of two decodes in the pass that prefills the second, whose rows come behind its own.
    second = trace.topk_ids[trace.request == 1][:, 0, 0].tolist()
    third = trace.topk_ids[trace.request == 2][:, 0, 0].tolist()
    assert (second, third) == ([2, 2, 2, 3, 4, 5], [3, 3, 3, 4, 5])


def test_a_record_of_another_model_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "calls.bin"
    record.write_bytes(calls(0, 1, 0) + HEADER.pack(0.0, 1.0, 1, 2) + b"\0" * 4)
    (tmp_path / "marks.json").write_text("[[0, 1, 1, 0]]")
    with pytest.raises(BadInputError, match="no passes of 4 layers"):
        read_engine_steps(record, tmp_path / "marks.json", tiny_model(tmp_path / "tiny-moe"))
