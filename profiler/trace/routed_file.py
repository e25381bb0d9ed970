"""Traces from files of SGLang or vLLM answers with routed experts: one JSON document, or JSON-lines."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.routed_response import RoutedResponse, parse_response
from placer.profiler.trace.routed_trace import routed_trace
from placer.profiler.trace.trace import TokenTrace


def import_routed(path: Path, model: KnownModel) -> TokenTrace:
    """Read a file of answers: a JSON document (one answer, or a list of them) or an answer per line.

    A line may be an answer as the server sent it or one of vLLM's batch outputs (``response.body``), and may
    carry a ``domain`` beside it. Batch lines whose request failed are left out and counted in the notes.

    Raises
    ------
    BadInputError
        When the file is no JSON, an answer has no routed experts, or it does not fit the model.
    """
    responses: list[RoutedResponse] = []
    domains: list[str | None] = []
    failed = 0
    for where, document in _documents(path):
        answer = _answer(document, where)
        if answer is None:
            failed += 1
            continue
        domain = document.get("domain")
        if domain is not None and not isinstance(domain, str):
            raise BadInputError(f"{where}: its domain is no text", "write domain as a text")
        parsed = parse_response(answer, model, where=where)
        responses.extend(parsed)
        domains.extend([domain] * len(parsed))
    return routed_trace(
        responses,
        model,
        domains=domains,
        source=f"{path.name}: routed experts of answers",
        where=str(path),
        notes=(f"{failed} requests of the batch failed and were left out",) if failed else (),
    )


def _answer(document: Mapping[str, Any], where: str) -> Mapping[str, Any] | None:
    """The server's answer inside a line; None where the line says that its request failed."""
    response = document.get("response")
    if "choices" in document or "meta_info" in document or not ("custom_id" in document or response):
        return document
    if document.get("error") is not None or response is None:
        return None
    body = response.get("body", response) if isinstance(response, Mapping) else None
    if not isinstance(body, Mapping):
        raise BadInputError(f"{where}: its response is no object", "use the server's whole answer")
    status = response.get("status_code", 200)
    return body if status == 200 else None


def _documents(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each object of the file, with where it stands."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            try:
                document = json.loads(first)
            except ValueError:
                # No whole document in the first line: the file is one document over several lines.
                file.seek(0)
                yield from _listed(json.loads(file.read()), str(path))
                return
            yield from _listed(document, str(path))
            for number, line in enumerate(file, start=2):
                if line.strip():
                    yield from _listed(json.loads(line), f"{path}, answer {number}")
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(
            f"{path}: not readable as JSON or JSON-lines ({reason})", "use the server's answers as they came"
        ) from None


def _listed(document: object, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = document if isinstance(document, list) else [document]
    for number, one in enumerate(found):
        at = where if len(found) == 1 else f"{where}, entry {number}"
        if not isinstance(one, Mapping):
            raise BadInputError(f"{at}: a {type(one).__name__}, not an object", "use the server's answers")
        yield at, one
