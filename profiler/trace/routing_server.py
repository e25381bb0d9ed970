"""A running SGLang or vLLM server that returns the experts of each request: found out about, and asked."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placer.errors import BadInputError
from placer.profiler.trace.generation import GenerationSettings
from placer.profiler.trace.prompt import Prompt

SWITCH = "--enable-return-routed-experts"
"""The flag that both runtimes need to return routed experts."""
_SHORT_TIMEOUT_S = 15.0
_SHOWN_CHARACTERS = 160


class RequestFailedError(Exception):
    """A request that brought no answer; ``unreachable`` when the server itself did not react."""

    def __init__(self, reason: str, *, unreachable: bool = False, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unreachable = unreachable
        self.status = status


@dataclass(frozen=True)
class RoutingServer:
    """A server.

    Attributes
    ----------
    url
        Without a path.
    runtime, version
        "SGLang" or "vLLM", and its version.
    model, model_path
        The name that requests must give, and the checkpoint's path as the server knows it.
    timeout_s
        Longest wait for one answer.
    api_key
        Sent as a bearer token, or None.
    """

    url: str
    runtime: str
    version: str
    model: str
    model_path: str
    timeout_s: float
    api_key: str | None = field(repr=False)

    def ask(self, prompt: Prompt, settings: GenerationSettings, seed: int) -> Mapping[str, Any]:
        """The server's answer to one prompt, with the experts of its tokens.

        A prompt alone is asked with one new token, which is not fed back and so has no routing.

        Raises
        ------
        RequestFailedError
            When there is none.
        """
        route, body = (self._sglang if self.runtime == "SGLang" else self._vllm)(
            prompt, max(settings.new_tokens, 1), settings.temperature, seed
        )
        return _fetch(f"{self.url}{route}", body, self.timeout_s, self.api_key)

    def _sglang(
        self, prompt: Prompt, new_tokens: int, temperature: float | None, seed: int
    ) -> tuple[str, dict[str, Any]]:
        if prompt.messages is not None:
            return "/v1/chat/completions", {
                **self._openai(new_tokens, temperature, seed),
                "messages": list(prompt.messages),
                "return_routed_experts": True,
            }
        sampling: dict[str, Any] = {"max_new_tokens": new_tokens, "sampling_seed": seed}
        if temperature is not None:
            sampling["temperature"] = temperature
        said = {"text": prompt.text} if prompt.token_ids is None else {"input_ids": list(prompt.token_ids)}
        return "/generate", {**said, "sampling_params": sampling, "return_routed_experts": True}

    def _vllm(
        self, prompt: Prompt, new_tokens: int, temperature: float | None, seed: int
    ) -> tuple[str, dict[str, Any]]:
        body = {**self._openai(new_tokens, temperature, seed), "return_token_ids": True}
        if prompt.messages is not None:
            return "/v1/chat/completions", {**body, "messages": list(prompt.messages)}
        said = prompt.text if prompt.token_ids is None else list(prompt.token_ids)
        return "/v1/completions", {**body, "prompt": said}

    def _openai(self, new_tokens: int, temperature: float | None, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "max_tokens": new_tokens, "seed": seed}
        return body if temperature is None else {**body, "temperature": temperature}


def find_server(url: str, *, timeout_s: float, api_key: str | None = None) -> RoutingServer:
    """Ask ``url`` what it is: SGLang tells its arguments at ``/server_info``, vLLM its ``/version``.

    Raises
    ------
    BadInputError
        When nothing answers, it is neither, or SGLang says that routed experts are switched off.
    """
    base = _base(url)

    def get(route: str) -> Mapping[str, Any] | None:
        try:
            return _fetch(f"{base}{route}", None, _SHORT_TIMEOUT_S, api_key)
        except RequestFailedError as error:
            if error.unreachable:
                raise BadInputError(
                    f"{base}: {error.reason}",
                    "start the server, wait until it is ready, and check the address",
                ) from None
            if error.status in (401, 403):
                raise BadInputError(
                    f"{base}: {error.reason}", "name the variable that holds the key: --api-key-env NAME"
                ) from None
            return None

    arguments = get("/server_info") or get("/get_server_info") or {}
    if "model_path" in arguments:
        if arguments.get("enable_return_routed_experts") is False:
            raise BadInputError(
                f"{base}: SGLang {arguments.get('version', '')} runs without routed experts",
                f"start it again with {SWITCH}",
            )
        path = str(arguments["model_path"])
        name = str(arguments.get("served_model_name") or path)
        return RoutingServer(
            base, "SGLang", str(arguments.get("version", "?")), name, path, timeout_s, api_key
        )
    version = get("/version") or {}
    listed = (get("/v1/models") or {}).get("data")
    if "version" in version and isinstance(listed, list) and listed and isinstance(listed[0], Mapping):
        name = str(listed[0].get("id", ""))
        return RoutingServer(
            base,
            "vLLM",
            str(version["version"]),
            name,
            str(listed[0].get("root") or name),
            timeout_s,
            api_key,
        )
    raise BadInputError(
        f"{base}: a server answers, but it is neither SGLang nor vLLM",
        "give the address of an SGLang or vLLM server",
    )


def _base(url: str) -> str:
    parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
    try:
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise BadInputError(f"--server {url!r} is no address", "write http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def _fetch(url: str, body: dict[str, Any] | None, timeout_s: float, api_key: str | None) -> Mapping[str, Any]:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"}
        | ({} if api_key is None else {"Authorization": f"Bearer {api_key}"}),
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            document = json.loads(response.read())
    except urllib.error.HTTPError as error:
        reason = f"HTTP {error.code}: {_said(error)}"
        raise RequestFailedError(reason, status=error.code) from None
    except TimeoutError:
        raise RequestFailedError(f"no answer within {timeout_s:g} s") from None
    except (ValueError, RecursionError):
        raise RequestFailedError("the answer is not JSON") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            raise RequestFailedError(f"no answer within {timeout_s:g} s", unreachable=body is None) from None
        said = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise RequestFailedError(said, unreachable=True) from None
    if not isinstance(document, Mapping):
        raise RequestFailedError("the answer is no JSON object")
    return document


def _said(error: urllib.error.HTTPError) -> str:
    """What the server says of an error: the message of its JSON, else the status' own name."""
    try:
        document = json.loads(error.read())
        inner = document.get("error", document)
        message = inner.get("message", inner.get("detail")) if isinstance(inner, dict) else inner
        text = " ".join(str(message).split()) if message else str(error.reason)
    except (OSError, ValueError, AttributeError, RecursionError, http.client.HTTPException):
        text = str(error.reason)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
