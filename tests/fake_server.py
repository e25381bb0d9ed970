"""An HTTP server in this process that answers as SGLang or vLLM do, and misbehaves where a test asks it to."""

import base64
import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYERS, EXPERTS, TOP_K = 4, 8, 2
"""All hidden layers are MoE layers, as `tiny_model` has them."""


def routed(tokens: list[int]) -> NDArray[np.int32]:
    """The experts of the fake model: token t takes experts t + l and t + l + 1 (mod E) in layer l."""
    first = np.asarray(tokens)[:, None] + np.arange(LAYERS)
    return (np.stack([first, first + 1], axis=2) % EXPERTS).astype(np.int32)


@dataclass
class FakeServer:
    """What it is, and what it does wrong.

    ``broken`` maps a prompt's first token to (status, body bytes); ``before`` runs ahead of every answer.
    """

    runtime: str
    switched_on: bool = True
    broken: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    key: str | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def page(self, path: str) -> dict[str, Any] | None:
        """Answer to a GET."""
        if self.runtime == "SGLang" and path == "/server_info":
            return {
                "model_path": "/nowhere/tiny",
                "served_model_name": "tiny",
                "version": "0.5.10",
                "enable_return_routed_experts": self.switched_on,
            }
        if self.runtime == "vLLM" and path == "/version":
            return {"version": "0.33.0"}
        if self.runtime == "vLLM" and path == "/v1/models":
            return {"data": [{"id": "tiny", "root": "/nowhere/tiny"}]}
        return {"hello": "world"} if path == "/" else None

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer to a request: its prompt, then as many tokens counted upwards."""
        if self.runtime == "SGLang":
            prompt, new = body["input_ids"], body["sampling_params"]["max_new_tokens"]
        else:
            prompt, new = body["prompt"], body["max_tokens"]
        generated = [prompt[-1] + 1 + at for at in range(new)]
        ids = routed([*prompt, *generated][:-1])
        if self.runtime == "SGLang":
            meta: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": new, "id": "r"}
            if self.switched_on:
                meta["routed_experts"] = base64.b64encode(ids.tobytes()).decode()
            return {"text": "…", "meta_info": meta}
        file = io.BytesIO()
        np.save(file, ids.astype(np.uint8))
        found = base64.b64encode(file.getvalue()).decode() if self.switched_on else None
        choice = {"prompt_token_ids": prompt, "token_ids": generated, "routed_experts": found}
        return {"id": "r", "choices": [choice]}


@contextlib.contextmanager
def serving(server: FakeServer) -> Iterator[FakeServer]:
    """The server, listening at its ``url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if server.key is not None and self.headers.get("Authorization") != f"Bearer {server.key}":
                self._send(401, b'{"error": "Unauthorized"}')
                return
            page = server.page(self.path)
            self._send(404 if page is None else 200, json.dumps(page or {"detail": "Not Found"}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.bodies.append(body)
            prompt = body.get("input_ids") or body.get("prompt")
            server.before()
            if prompt[0] in server.broken:
                status, content = server.broken[prompt[0]]
                if status:
                    self._send(status, content)
                else:
                    self.connection.close()
                return
            self._send(200, json.dumps(server.answer(body)).encode())

        def _send(self, status: int, content: bytes) -> None:
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
