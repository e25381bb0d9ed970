"""Routed experts that SGLang and vLLM return with a request's answer, as arrays."""

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.npy import read_npy
from placer.profiler.trace.trace import PADDING

_NPY_MAGIC = b"\x93NUMPY"
_SWITCH = "start the server with --enable-return-routed-experts and ask for return_routed_experts"
_MOST_FUSED_SHARED = 4
"""Shared experts that a runtime may append to the routed ones of each token."""


@dataclass(frozen=True)
class RoutedResponse:
    """What one answer says of its tokens' routing.

    Attributes
    ----------
    ids
        uint16 [T, L, K], experts of each token in each row of the runtime's buffer (a row per hidden layer;
        rows of dense layers are zeros), as the runtime ordered them; `PADDING` marks an unused slot.
    first_position
        Position of the first token in the request; above 0 where a prefix was left out.
    prompt_rows
        How many leading tokens belong to the prompt; the others were generated.
    token_ids
        int64 [T], the tokens themselves, or None where the server did not send them.
    request
        The server's name of the request, or None.
    """

    ids: NDArray[np.uint16]
    first_position: int
    prompt_rows: int
    token_ids: NDArray[np.int64] | None
    request: str | None

    @property
    def generated_rows(self) -> int:
        """How many tokens were generated; the last one of an answer is routed only if it was fed back."""
        return len(self.ids) - self.prompt_rows


def parse_response(
    document: Mapping[str, Any], model: KnownModel, *, where: str
) -> tuple[RoutedResponse, ...]:
    """Routing of every choice of one answer: SGLang's ``/generate`` or either server's OpenAI routes.

    SGLang sends base64 of raw int32 (``meta_info.routed_experts``, [tokens − 1, hidden layers, top-k and fused
    shared experts]), whose shape needs the model's top-k (and, with fused shared experts, its layers and
    experts); vLLM sends base64 of a ``.npy`` (``choices[].routed_experts``, [tokens − 1, layers, top-k]). Both
    are logical ids.

    Raises
    ------
    BadInputError
        When the answer carries no routed experts, they are damaged, or their size does not fit its tokens.
    """
    request = _text(document.get("id"))
    choices = document.get("choices")
    if choices is None and not any(key in document for key in ("meta_info", "routed_experts", "usage")):
        raise BadInputError(
            f"{where}: neither 'choices' nor 'meta_info', so no answer of SGLang or vLLM",
            "use the server's whole answer",
        )
    if choices is None:
        meta = _mapping(document.get("meta_info"))
        return (_parsed(document, document, meta, model, _text(meta.get("id")) or request, where),)
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        raise BadInputError(f"{where}: it holds no choices", "use the server's whole answer")
    parsed = []
    for number, choice in enumerate(choices):
        if not isinstance(choice, Mapping):
            raise BadInputError(f"{where}: choice {number} is no object", "use the server's whole answer")
        at = where if len(choices) == 1 else f"{where}, choice {number}"
        name = request if request is None or len(choices) == 1 else f"{request}/{number}"
        parsed.append(_parsed(choice, document, _mapping(choice.get("meta_info")), model, name, at))
    return tuple(parsed)


def _parsed(
    choice: Mapping[str, Any],
    document: Mapping[str, Any],
    meta: Mapping[str, Any],
    model: KnownModel,
    request: str | None,
    where: str,
) -> RoutedResponse:
    found = _found(choice, document, meta, where)
    usage = _mapping(document.get("usage"))
    alone = choice is document or len(document["choices"]) == 1
    prompt_ids = _token_ids(choice.get("prompt_token_ids") or document.get("prompt_token_ids"), where)
    output_ids = _token_ids(choice.get("token_ids") or choice.get("output_ids"), where)
    prompt = _length(prompt_ids, (meta.get("prompt_tokens"), usage.get("prompt_tokens")), where)
    # Usage adds the tokens of all choices up.
    usage_generated = usage.get("completion_tokens") if alone else None
    generated = _length(output_ids, (meta.get("completion_tokens"), usage_generated), where)
    if prompt is None:
        raise BadInputError(
            f"{where}: it does not say how many tokens are the prompt's",
            "keep the answer's usage or meta_info, or ask for return_token_ids",
        )
    ids = _routed(found, model, prompt, generated, where)
    # The last token of an answer is not fed back, so it is routed only if the server ran ahead of its stop.
    first = 0 if generated is None else max(0, prompt + generated - 1 - len(ids))
    if first > prompt or (generated is not None and len(ids) > prompt + generated):
        raise BadInputError(
            f"{where}: {len(ids)} routed tokens for {prompt} prompt and {generated} generated ones",
            "use the server's whole answer, not one that was cut or joined",
        )
    tokens = None
    if prompt_ids is not None and output_ids is not None:
        tokens = np.concatenate([prompt_ids, output_ids])[first : first + len(ids)]
        tokens = tokens if len(tokens) == len(ids) else None
    return RoutedResponse(
        ids=ids,
        first_position=first,
        prompt_rows=min(max(prompt - first, 0), len(ids)),
        token_ids=tokens,
        request=request,
    )


def _found(
    choice: Mapping[str, Any], document: Mapping[str, Any], meta: Mapping[str, Any], where: str
) -> object:
    """What the answer holds under routed_experts, wherever its server puts it."""
    extension = _mapping(choice.get("sglext")) or _mapping(document.get("sglext"))
    for holder in (choice, meta, extension):
        if holder.get("routed_experts") is not None:
            return holder["routed_experts"]
    raise BadInputError(f"{where}: the answer carries no routed_experts", _SWITCH)


def _routed(
    found: object, model: KnownModel, prompt: int, generated: int | None, where: str
) -> NDArray[np.uint16]:
    """The answer's ids, uint16 [T, L, K]."""
    ids = _decoded(found, where)
    if ids.ndim == 1:
        ids = _shaped(ids, model, None if generated is None else prompt + generated - 1, where)
    if ids.ndim != 3 or 0 in ids.shape:
        raise BadInputError(
            f"{where}: routed_experts has shape {ids.shape}, expected [tokens, layers, top-k]",
            "use the server's own answer",
        )
    if ids.min() < -1 or ids.max() >= PADDING:
        strange = ids.min() if ids.min() < -1 else ids.max()
        raise BadInputError(f"{where}: routed_experts holds {strange}", "use the server's own answer")
    # -1 becomes 65535, the padding id, by two's complement.
    return _without_fused_shared(ids, model, where).astype(np.uint16)


def _decoded(found: object, where: str) -> NDArray[np.int64]:
    """Integers behind ``routed_experts``: base64 of a .npy or of raw int32, or nested lists."""
    try:
        if isinstance(found, str):
            whole = base64.b64decode(found, validate=True)
            if whole.startswith(_NPY_MAGIC):
                return read_npy(io.BytesIO(whole), len(whole), "iu", "routed_experts", where).astype(np.int64)
            return np.frombuffer(whole, dtype="<i4").astype(np.int64)
        if isinstance(found, list):
            array = np.array(found)
            if array.dtype.kind in "iu":
                return array.astype(np.int64)
            raise ValueError(f"lists of {array.dtype}")
    except (binascii.Error, ValueError, EOFError, OSError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(
            f"{where}: routed_experts is neither base64 of int32 or .npy nor lists of integers ({reason})",
            "use the server's own answer",
        ) from None
    raise BadInputError(
        f"{where}: routed_experts is a {type(found).__name__}, not base64 text", "use the server's own answer"
    )


def _shaped(
    flat: NDArray[np.int64], model: KnownModel, expected: int | None, where: str
) -> NDArray[np.int64]:
    """Raw ids as [T, L, K]; ``expected`` tokens when no prefix was left out."""
    layers, top_k = model.hidden_layers, model.top_k
    if top_k is None:
        raise BadInputError(
            f"{where}: SGLang sends ids without their shape, so the model must be known",
            "give the model (--model DIR)",
        )
    if layers is not None:
        for width in range(top_k, top_k + _MOST_FUSED_SHARED + 1):
            tokens, over = divmod(flat.size, layers * width)
            # Without the number of tokens, or behind a prefix, only the plain width can be told.
            if not over and (tokens == expected or tokens - 1 == expected):
                return flat.reshape(tokens, layers, width)
        if flat.size % (layers * top_k) == 0:
            return flat.reshape(-1, layers, top_k)
    elif expected:
        for tokens in (expected, expected + 1):
            if flat.size % (tokens * top_k) == 0:
                return flat.reshape(tokens, -1, top_k)
    raise BadInputError(
        f"{where}: {flat.size} ids do not fill {'its' if expected is None else expected} tokens of top-{top_k}"
        + (f" in {layers} layers" if layers else ""),
        "give the model that answered (--model DIR), and the server's whole answer",
    )


def _without_fused_shared(ids: NDArray[np.int64], model: KnownModel, where: str) -> NDArray[np.int64]:
    """Ids of routed experts only: a fused shared expert's column holds an id behind the routed ones."""
    top_k = ids.shape[2] if model.top_k is None else model.top_k
    routed, fused = ids[:, :, :top_k], ids[:, :, top_k:]
    appended = fused[routed.any(axis=2)]
    if routed.shape[2] < top_k or (
        fused.size and (model.experts is None or np.any(appended < model.experts))
    ):
        raise BadInputError(
            f"{where}: {ids.shape[2]} ids per token, the model's top-k is {top_k}",
            "give the model that answered (--model DIR)",
        )
    return routed


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _token_ids(value: object, where: str) -> NDArray[np.int64] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 2**31 for item in value):
        raise BadInputError(f"{where}: its token ids are no list of integers", "use the server's own answer")
    return np.asarray(value, dtype=np.int64)


def _length(tokens: NDArray[np.int64] | None, said: tuple[object, ...], where: str) -> int | None:
    """Number of tokens: of the list where it was sent, else the first that the server says."""
    if tokens is not None:
        return len(tokens)
    number = next((one for one in said if one is not None), None)
    if number is not None and (type(number) is not int or not 0 <= number < 2**31):
        raise BadInputError(f"{where}: a number of tokens is {number!r}", "use the server's own answer")
    return number
