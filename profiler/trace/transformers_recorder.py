"""Records the routing of a checkpoint by running it in Hugging Face transformers on this machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from placer.errors import BadInputError, MissingComponentError, PlacerError
from placer.extra import install_command
from placer.model.spec import ModelSpec
from placer.profiler.trace.expert_hook import ExpertHook
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt, prompts_digest
from placer.profiler.trace.recording import RecordedRequest, Recording, RecordingInterrupted, open_recording
from placer.profiler.trace.trace import TraceHeader


def record_with_transformers(
    model: ModelSpec,
    checkpoint: Path,
    prompts: Sequence[Prompt],
    path: Path,
    settings: GenerationSettings,
    *,
    device: str = "auto",
    dtype: str = "auto",
    resume: bool = False,
    trust_remote_code: bool = False,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Recording:
    """Run every prompt through the checkpoint and write the ids of the experts that ran to ``path``.

    One request at a time, so that no padding is routed. Whatever ends the run, the requests that were
    finished are in ``path``; ``resume`` takes them over. A token that generation returns last is not fed
    back, so it has no routing: a request of P prompt and G new tokens holds P + G - 1.

    Raises
    ------
    MissingComponentError
        When transformers is not installed, or is older than 5.
    BadInputError
        When the checkpoint cannot be loaded whole, its layers or experts differ from ``model``, or ``path``
        cannot be used.
    """
    transformers = _transformers()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    progress("loading the checkpoint", 0.0)
    loaded = _load(transformers, checkpoint, device, dtype, trust_remote_code)
    tokenizer = _tokenizer(transformers, checkpoint, prompts, trust_remote_code)
    hook = ExpertHook(loaded)
    if hook.layers != tuple(model.moe_layers):
        raise BadInputError(
            f"{checkpoint}: transformers routes in layers {hook.layers}, its config names {model.moe_layers}",
            "record from a running server instead (--server URL)",
        )
    header = TraceHeader(
        model=model.name,
        layers=hook.layers,
        experts=model.experts,
        top_k=model.top_k,
        source=(
            f"transformers {transformers.__version__} on {device}, {str(loaded.dtype).removeprefix('torch.')}; "
            f"{settings}; {len(prompts)} prompts sha256 {prompts_digest(prompts)[:12]}"
        ),
    )
    recording = open_recording(header, prompts, path, resume=resume)
    # All of them before the first is run: a prompt that cannot be rendered should not end an hour's recording.
    tokens_of = {index: _tokens(tokenizer, prompts[index], index) for index in recording.missing}
    try:
        with hook, torch.inference_mode():
            for index in recording.missing:
                progress(
                    f"recording, {len(recording)} of {len(prompts)} requests", len(recording) / len(prompts)
                )
                tokens = tokens_of[index]
                if problem := _problem(tokens, settings, model):
                    recording.fail(problem)
                else:
                    recording.add(index, _run(loaded, hook, tokens, settings, index))
    except KeyboardInterrupt:
        raise RecordingInterrupted(recording) from None
    except torch.OutOfMemoryError:
        raise BadInputError(
            f"the GPU's memory does not hold request {index} ({len(tokens):,} tokens)",
            "give --device cpu or shorter prompts (--cut), then continue with --resume",
        ) from None
    except PlacerError:
        raise
    except Exception as error:  # kernels and models raise kinds of their own
        raise BadInputError(
            f"{checkpoint}: transformers cannot run it ({_one_line(error)})",
            "record from a running server instead (--server URL)",
        ) from None
    finally:
        recording.save()
    if not len(recording):
        reason = max(recording.failures, key=recording.failures.__getitem__)
        raise BadInputError(f"no prompt could be recorded: {reason}", "give shorter prompts (--cut)")
    return recording


def _problem(tokens: list[int], settings: GenerationSettings, model: ModelSpec) -> str:
    """Why a request cannot be run; empty when it can."""
    if not tokens:
        return "it has no tokens"
    if max(tokens) >= model.vocab_size:
        return f"a token id is beyond the vocabulary of {model.vocab_size:,}"
    if len(tokens) + settings.new_tokens > model.max_context_tokens:
        return f"longer than the model's context of {model.max_context_tokens:,} tokens"
    return ""


def _run(
    model: Any, hook: ExpertHook, tokens: list[int], settings: GenerationSettings, index: int
) -> RecordedRequest:
    prompt = torch.tensor([tokens], device=model.device)
    if settings.new_tokens:
        torch.manual_seed(settings.seed + index)
        sampling: dict[str, Any] = {}
        if settings.temperature is not None:
            sampling = {"do_sample": settings.temperature > 0}
            if settings.temperature > 0:
                sampling["temperature"] = settings.temperature
        whole = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=settings.new_tokens,
            num_beams=1,
            **sampling,
        )
        rows = whole.shape[1] - 1
    else:
        model(input_ids=prompt, use_cache=False, logits_to_keep=1)
        rows = len(tokens)
    ids = hook.take()
    if len(ids) != rows:
        raise BadInputError(
            f"request {index} has {rows} tokens to route, the model routed {len(ids)}",
            "record from a running server instead (--server URL)",
        )
    return RecordedRequest(ids, np.arange(rows, dtype=np.int32), min(len(tokens), rows))


def _tokens(tokenizer: Any, prompt: Prompt, index: int) -> list[int]:
    if prompt.token_ids is not None:
        return list(prompt.token_ids)
    if prompt.messages is not None:
        try:
            rendered = tokenizer.apply_chat_template(
                list(prompt.messages), add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # templates are programs of their own and raise what they like
            raise BadInputError(
                f"prompt {index + 1} ({prompt.domain}): the chat template refuses its messages ({_one_line(error)})",
                "check the messages, or give the rendered text as 'prompt'",
            ) from None
        # A template writes the special tokens itself.
        return list(tokenizer(rendered, add_special_tokens=False).input_ids)
    return list(tokenizer(prompt.text).input_ids)


def _transformers() -> Any:
    try:
        import transformers  # noqa: PLC0415
    except ImportError:
        raise MissingComponentError(
            "recording through transformers needs it, and it is not installed",
            f"{install_command('hf')}, or record from a running server (--server URL)",
        ) from None
    if int(transformers.__version__.split(".")[0]) < 5:
        raise MissingComponentError(
            f"transformers {transformers.__version__} does not hand expert ids to its expert modules",
            f"{install_command('hf')} (transformers 5 or newer)",
        )
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _load(transformers: Any, checkpoint: Path, device: str, dtype: str, trust_remote_code: bool) -> Any:
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
        model = model.to(device).eval()
    except PlacerError:
        raise
    except Exception as error:  # transformers and torch raise kinds of their own
        hint = "give a whole checkpoint of safetensors files, or record from a running server (--server URL)"
        if "trust_remote_code" in str(error):
            hint = "it runs Python code of its own: read it, then add --trust-remote-code"
        raise BadInputError(f"{checkpoint}: transformers cannot load it ({_one_line(error)})", hint) from None
    absent = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
    if absent:
        # transformers draws absent weights at random and only warns.
        raise BadInputError(
            f"{checkpoint}: {len(absent)} weights are absent or of another shape, such as {absent[0]}",
            "give the whole checkpoint",
        )
    return model


def _tokenizer(
    transformers: Any, checkpoint: Path, prompts: Sequence[Prompt], trust_remote_code: bool
) -> Any:
    if all(prompt.token_ids is not None for prompt in prompts):
        return None
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            checkpoint, local_files_only=True, trust_remote_code=trust_remote_code
        )
        files = {"tokenizer.json", *tokenizer.vocab_files_names.values()}
        if not any((checkpoint / file).is_file() for file in files):
            # transformers builds an empty tokenizer, to which no text has tokens.
            raise FileNotFoundError(f"none of {', '.join(sorted(files))} is there")
    except Exception as error:  # transformers and tokenizers raise kinds of their own
        raise BadInputError(
            f"{checkpoint}: its tokenizer cannot be loaded ({_one_line(error)})",
            "add the tokenizer's files, or give prompts as 'prompt_token_ids'",
        ) from None
    return tokenizer


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
