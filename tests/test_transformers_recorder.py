"""Recording through transformers: phases, resumption, interruption, and checkpoints that must not be used."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from routing_rules import FAMILIES

from placer.errors import BadInputError, MissingComponentError
from placer.extra import install_command
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.record import RecordRequest, record
from placer.profiler.trace.recording import RecordingInterrupted
from placer.profiler.trace.trace import Phase, TokenTrace

pytest.importorskip("transformers", minversion="5")

PROMPTS = [
    Prompt(name, token_ids=tuple(range(3, 3 + length))) for name, length in (("a", 9), ("b", 4), ("a", 6))
]
SAMPLED = GenerationSettings(new_tokens=5, temperature=1.0, seed=3)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES["Qwen3-MoE, first layer dense"].save(tmp_path_factory.mktemp("checkpoint"))


def test_prompts_are_prefill_and_answers_decode_but_for_the_last_token(
    checkpoint: Path, tmp_path: Path
) -> None:
    trace = record(RecordRequest(checkpoint, settings=SAMPLED), PROMPTS, tmp_path / "t.safetensors").trace()
    assert trace.header.layers == (1, 2)
    for index, prompt in enumerate(PROMPTS):
        phases = trace.phase[trace.request == index].tolist()
        assert prompt.token_ids is not None
        assert phases == [Phase.PREFILL] * len(prompt.token_ids) + [Phase.DECODE] * 4
    assert trace.domain is not None
    assert [trace.header.domains[at] for at in trace.domain[np.flatnonzero(trace.position == 0)]] == [
        "a",
        "b",
        "a",
    ]


def test_answers_route_as_the_same_tokens_read_at_once(checkpoint: Path, tmp_path: Path) -> None:
    """Decoding with a cache chooses the experts that one pass over the whole text chooses."""
    import transformers

    greedy = GenerationSettings(new_tokens=5, temperature=0.0)
    decoded = record(
        RecordRequest(checkpoint, settings=greedy), PROMPTS[:1], tmp_path / "d.safetensors"
    ).trace()
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32")
    tokens = list(PROMPTS[0].token_ids or ())
    for _ in range(4):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    read = record(
        RecordRequest(checkpoint), [Prompt("a", token_ids=tuple(tokens))], tmp_path / "r.safetensors"
    ).trace()
    assert np.array_equal(np.sort(decoded.topk_ids), np.sort(read.topk_ids))


def test_the_hash_layers_of_deepseek_v4_follow_the_generated_tokens(tmp_path: Path) -> None:
    family = FAMILIES["DeepSeek-V4"]
    folder = family.save(tmp_path / "v4")
    tokens = (7, 8, 9)
    trace = record(
        RecordRequest(folder, settings=GenerationSettings(3, 0.0)),
        [Prompt("a", token_ids=tokens)],
        tmp_path / "t.safetensors",
    ).trace()
    model = family.model()
    table = model.model.layers[0].mlp.gate.tid2eid.numpy()
    assert np.array_equal(np.sort(trace.topk_ids[:3, 0]), np.sort(table[list(tokens)]))
    written = model.generate(torch.tensor([tokens]), max_new_tokens=3, do_sample=False)[0, 3:5]
    assert np.array_equal(np.sort(trace.topk_ids[3:, 0]), np.sort(table[written.numpy()]))


def test_an_interruption_keeps_whole_requests_and_resuming_gives_the_same_trace(
    checkpoint: Path, tmp_path: Path
) -> None:
    request = RecordRequest(checkpoint, settings=SAMPLED)
    whole = record(request, PROMPTS, tmp_path / "whole.safetensors").trace()

    def interrupt(text: str, _share: float) -> None:
        if text.startswith("recording, 2"):
            raise KeyboardInterrupt

    path = tmp_path / "part.safetensors"
    with pytest.raises(RecordingInterrupted, match="2 of 3 requests"):
        record(request, PROMPTS, path, progress=interrupt)
    kept = read_trace(path)
    assert kept.header.notes == ("stopped early: 2 of 3 requests are recorded",)
    again = RecordRequest(checkpoint, settings=SAMPLED, resume=True)
    resumed = record(again, PROMPTS, path).trace()
    assert np.array_equal(resumed.topk_ids, whole.topk_ids)
    assert resumed.header == whole.header
    found = read_trace(path)
    assert isinstance(found, TokenTrace)
    assert np.array_equal(found.topk_ids, whole.topk_ids)


def test_a_prompt_beyond_the_context_is_counted_and_left_out(checkpoint: Path, tmp_path: Path) -> None:
    long = Prompt("a", token_ids=tuple([3] * 126))
    strange = Prompt("a", token_ids=(3, 64))
    recording = record(
        RecordRequest(checkpoint, settings=SAMPLED), [long, PROMPTS[1], strange], tmp_path / "t.safetensors"
    )
    assert recording.failures == {
        "longer than the model's context of 128 tokens": 1,
        "a token id is beyond the vocabulary of 64": 1,
    }
    assert np.unique(recording.trace().request).tolist() == [1]
    with pytest.raises(BadInputError, match="no prompt could be recorded: longer than"):
        record(RecordRequest(checkpoint, settings=SAMPLED), [long], tmp_path / "none.safetensors")
    assert not (tmp_path / "none.safetensors").exists()


def test_absent_weights_are_refused_where_transformers_would_draw_them(
    checkpoint: Path, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(checkpoint, tmp_path / "holed"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.gate.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=r"1 weights are absent .*layers.1.mlp.gate.weight"):
        record(RecordRequest(folder), PROMPTS, tmp_path / "t.safetensors")


def test_code_of_a_checkpoint_runs_only_when_it_is_trusted(checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "custom"))
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    config |= {"model_type": "own_moe", "architectures": ["Qwen3MoeForCausalLM"], "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(BadInputError, match="transformers cannot load it") as caught:
        record(RecordRequest(folder), PROMPTS, tmp_path / "t.safetensors")
    assert "--trust-remote-code" in caught.value.hint
    assert not (tmp_path / "ran").exists()


def test_a_missing_tokenizer_and_a_missing_checkpoint_are_told(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="its tokenizer cannot be loaded"):
        record(RecordRequest(checkpoint), [Prompt("a", text="words")], tmp_path / "t.safetensors")
    (tmp_path / "bare").mkdir()
    shutil.copy(checkpoint / "config.json", tmp_path / "bare")
    with pytest.raises(BadInputError, match="transformers cannot load it"):
        record(RecordRequest(tmp_path / "bare"), PROMPTS, tmp_path / "t.safetensors")
    with pytest.raises(BadInputError, match="--device 'tpu' is not known"):
        record(RecordRequest(checkpoint, device="tpu"), PROMPTS, tmp_path / "t.safetensors")


def test_without_transformers_the_way_to_it_is_named(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingComponentError) as caught:
        record(RecordRequest(checkpoint), PROMPTS, tmp_path / "t.safetensors")
    assert install_command("hf") in caught.value.hint
    assert caught.value.exit_code == 4
