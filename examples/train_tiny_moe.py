"""Makes the example ``tiny-moe``: trains a small Qwen3-MoE on three domains of text, then records its routing."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

from placer.api.number import at_least
from placer.examples.ending import end_with
from placer.examples.tiny_moe_text import Domain, domains
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.record import RecordRequest, record

SEED = 0
STEPS = 2400
CONTEXT_TOKENS = 256
BATCH = 6
LEARNING_RATE = 3e-3
WARM_UP_STEPS = 100
BALANCE = 1e-3
"""Weight of the load-balancing loss: Qwen3-MoE's own, small enough that experts specialise."""
END = "<|endoftext|>"
PROMPT_CHARACTERS = 480
ANSWERS = GenerationSettings(new_tokens=96, temperature=1.0, seed=SEED)
REQUESTS = {"trace.safetensors": 32, "heldout.safetensors": 12}
"""Requests of each domain in the trace to plan with and in the one to judge plans with."""

# Widths are multiples of 128, which kt-kernel asks for; every layer is a MoE layer and the head is untied,
# because SGLang's loader of this family assumes both.
CONFIG: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "router_aux_loss_coef": BALANCE,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
    "dtype": "bfloat16",
}


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE of ``CONFIG["vocab_size"]`` entries; id 0 is `END`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"],
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def token_stream(tokenizer: Tokenizer, texts: tuple[str, ...]) -> NDArray[np.int64]:
    """All ``texts`` one after the other, each ended by `END`: int64 [T]."""
    encoded = tokenizer.encode_batch(list(texts))
    return np.concatenate([np.array([*one.ids, 0], dtype=np.int64) for one in encoded])


def train(streams: list[NDArray[np.int64]], steps: int) -> Qwen3MoeForCausalLM:
    """Train on windows drawn at random, every domain as often, and return the model in float32."""
    torch.manual_seed(SEED)
    # One thread: sums over threads depend on their number.
    torch.set_num_threads(1)
    random = np.random.default_rng(SEED)
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**CONFIG, "dtype": "float32"}))
    model.train()
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.95),
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share_of_rate(step, steps))
    smoothed = 0.0
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=steps)
        for step in range(steps):
            batch = torch.from_numpy(_windows(streams, random))
            answer = model(input_ids=batch, labels=batch, output_router_logits=True)
            optimizer.zero_grad(set_to_none=True)
            answer.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            balance = float(answer.aux_loss.detach())
            loss = float(answer.loss.detach()) - BALANCE * balance
            smoothed = loss if step == 0 else 0.98 * smoothed + 0.02 * loss
            bar.update(task, advance=1, description=f"training, loss {smoothed:.3f}")
            if step % 100 == 99 and not sys.stderr.isatty():
                print(f"step {step + 1}: loss {smoothed:.3f}, balance {balance:.3f}", file=sys.stderr)
    return model.eval()


def _share_of_rate(step: int, steps: int) -> float:
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    return float(0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * (step - WARM_UP_STEPS) / (steps - WARM_UP_STEPS))))


def _windows(streams: list[NDArray[np.int64]], random: np.random.Generator) -> NDArray[np.int64]:
    windows = []
    for row in range(BATCH):
        stream = streams[row % len(streams)]
        start = int(random.integers(0, stream.size - CONTEXT_TOKENS))
        windows.append(stream[start : start + CONTEXT_TOKENS])
    return np.stack(windows)


def held_out_loss(model: Qwen3MoeForCausalLM, stream: NDArray[np.int64], windows: int = 40) -> float:
    """Mean next-token loss in nats over evenly spaced windows of a stream that was not trained on."""
    starts = np.linspace(0, stream.size - CONTEXT_TOKENS - 1, windows).astype(int)
    with torch.inference_mode():
        losses = [
            float(model(input_ids=batch, labels=batch).loss)
            for batch in (torch.from_numpy(stream[None, at : at + CONTEXT_TOKENS]) for at in starts)
        ]
    return float(np.mean(losses))


def save(model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the checkpoint in bfloat16 with its tokenizer, as Hugging Face, vLLM and SGLang read it."""
    model.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        model_max_length=CONFIG["max_position_embeddings"],
    ).save_pretrained(folder)
    # transformers 5 writes names of its own; engines on transformers 4, such as SGLang's, ask for these.
    older = {"num_experts": CONFIG["num_experts"], "torch_dtype": CONFIG["dtype"]}
    _amend(folder / "config.json", older)
    _amend(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def _amend(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields, indent=2) + "\n")


def make_checkpoint(folder: Path, texts: tuple[Domain, ...], steps: int) -> None:
    """Train and write the checkpoint into ``folder``, with its held-out loss in ``training.json``."""
    tokenizer = train_tokenizer([text for domain in texts for text in domain.trained])
    streams = [token_stream(tokenizer, domain.trained) for domain in texts]
    model = train(streams, steps)
    losses = {domain.name: held_out_loss(model, token_stream(tokenizer, domain.held_out)) for domain in texts}
    save(model, tokenizer, folder)
    facts = {
        "steps": steps,
        "trained_tokens": steps * BATCH * CONTEXT_TOKENS,
        "text_tokens": {domain.name: stream.size for domain, stream in zip(texts, streams, strict=True)},
        "held_out_loss_nats": {name: round(loss, 3) for name, loss in losses.items()},
    }
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n")


def record_traces(folder: Path, texts: tuple[Domain, ...]) -> None:
    """Record prompts from texts that the model was not trained on; no text serves both traces."""
    # Apart from the checkpoint, whose readers take every safetensors file beside it for weights.
    traces = folder / "traces"
    traces.mkdir(exist_ok=True)
    with Progress(console=Console(stderr=True)) as bar:
        for part, (name, requests) in enumerate(REQUESTS.items()):
            prompts = [
                Prompt(domain.name, text=piece)
                for domain in texts
                for piece in _openings(domain.held_out[part :: len(REQUESTS)], requests)
            ]
            task = bar.add_task(name, total=1.0)
            request = RecordRequest(folder, settings=ANSWERS, device="cpu", dtype="float32")
            record(
                request,
                prompts,
                traces / name,
                lambda _text, share, task=task: bar.update(task, completed=share),  # type: ignore[misc]
            )
            bar.update(task, completed=1.0)


def _openings(texts: tuple[str, ...], number: int) -> list[str]:
    """Pieces from the midst of ``number`` places, spread evenly over the joined ``texts``."""
    joined = "\n".join(texts)
    starts = np.linspace(0, len(joined) - PROMPT_CHARACTERS, number).astype(int)
    return [joined[start : start + PROMPT_CHARACTERS] for start in starts]


def main() -> int:
    """Make the example from nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "tiny-moe")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    at_least(1, steps=arguments.steps)
    arguments.output.mkdir(parents=True, exist_ok=True)
    texts = domains()
    make_checkpoint(arguments.output, texts, arguments.steps)
    record_traces(arguments.output, texts)
    return 0


if __name__ == "__main__":
    end_with(main)
