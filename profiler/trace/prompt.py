"""The prompts that a recorder sends through a model: read from texts and JSON-lines, each with its domain."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placer.errors import BadInputError

CUT_CHARACTERS = 4096
"""Length above which a text becomes several prompts: about a thousand tokens of English."""
_LEAST_FILLED = 0.75
"""Share of the cut length behind which a piece may end at white space."""


@dataclass(frozen=True)
class Prompt:
    """One request: a text, a conversation, or tokens; the other two are None.

    Attributes
    ----------
    domain
        Kind of traffic it belongs to.
    text
        Plain text, continued as it is.
    messages
        A conversation, rendered by the model's own chat template.
    token_ids
        Tokens, taken as they are.
    """

    domain: str
    text: str | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    token_ids: tuple[int, ...] | None = None


def read_prompts(
    sources: Sequence[str], *, cut_characters: int = CUT_CHARACTERS, most_per_domain: int | None = None
) -> tuple[Prompt, ...]:
    """Read ``sources``, each a path or ``DOMAIN=path``; without a domain, the file's stem is its name.

    A ``.jsonl`` file holds a prompt per line: an object with ``prompt`` or ``text``, ``messages`` or
    ``prompt_token_ids``, and optionally its own ``domain``. Any other file is text; one longer than
    ``cut_characters`` becomes several prompts, cut at white space. A directory stands for the files in it that hold
    text.
    Of a domain with more than ``most_per_domain`` prompts, as many are taken, evenly spaced.

    Raises
    ------
    BadInputError
        When a file is missing, is not UTF-8, holds no prompt, or a line is none.
    """
    if cut_characters < 1:
        raise BadInputError(f"the cut length is {cut_characters} characters", "give at least 1")
    prompts: list[Prompt] = []
    for source in sources:
        name, path = _named(source)
        found = [
            prompt
            for file in _files(path)
            for prompt in _prompts(file, name or (path.name if path.is_dir() else file.stem), cut_characters)
        ]
        if not found:
            raise BadInputError(f"{path}: it holds no text", "give a file with text")
        prompts.extend(found)
    if not prompts:
        raise BadInputError(
            "there is no prompt to record",
            "give texts: --text FILE, --text DOMAIN=FILE or a .jsonl of prompts",
        )
    return tuple(prompts if most_per_domain is None else _thinned(prompts, most_per_domain))


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over all ``prompts`` in their order, so that a recording can tell whose requests it holds."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(json.dumps([prompt.domain, prompt.text, prompt.messages, prompt.token_ids]).encode())
    return digest.hexdigest()


def _named(source: str) -> tuple[str, Path]:
    """Domain ("" where none is given) and path of a source; a path that exists is never split."""
    if not source.strip():
        raise BadInputError("a text has an empty name", "give --text FILE or --text DOMAIN=FILE")
    name, equals, path = source.partition("=")
    if not equals or Path(source).exists():
        return "", Path(source)
    if not name or not path:
        raise BadInputError(f"--text {source!r} lacks a domain or a file", "write DOMAIN=FILE")
    return name, Path(path)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        if not files:
            raise BadInputError(f"{path}: a folder without files", "give files of text")
        return files
    if not path.is_file():
        raise BadInputError(f"{path}: no such file", "give files of text, or DOMAIN=FILE")
    return [path]


def _prompts(path: Path, domain: str, cut_characters: int) -> list[Prompt]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{path}: not UTF-8 text (byte {error.start})", "convert it, for example with iconv -t UTF-8"
        ) from None
    if path.suffix == ".jsonl":
        # Only line feeds end a line of JSON; other separators may stand inside its strings.
        found = [
            _line(line, domain, f"{path}, line {number}")
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    else:
        found = [Prompt(domain, text=piece) for piece in _pieces(text, cut_characters)]
    return found


def _pieces(text: str, most: int) -> list[str]:
    pieces = []
    start = 0
    while start < len(text):
        end = start + most
        if end < len(text):
            space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            if space >= start + _LEAST_FILLED * most:
                end = space + 1
        if text[start:end].strip():
            pieces.append(text[start:end])
        start = end
    return pieces


def _line(line: str, domain: str, where: str) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInputError(f"{where}: not JSON", "write one JSON object per line") from None
    if not isinstance(entry, dict):
        raise BadInputError(f"{where}: not an object", 'write {"prompt": "..."} per line')
    name = entry.get("domain", domain)
    if not isinstance(name, str) or not name:
        raise BadInputError(f"{where}: 'domain' is no text", "write a name, or leave it out")
    text = entry.get("prompt", entry.get("text"))
    if isinstance(text, str) and text:
        return Prompt(name, text=text)
    messages = entry.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(one, dict) for one in messages):
        return Prompt(name, messages=tuple(messages))
    tokens = entry.get("prompt_token_ids")
    if isinstance(tokens, list) and tokens and all(type(one) is int and 0 <= one < 2**31 for one in tokens):
        return Prompt(name, token_ids=tuple(tokens))
    raise BadInputError(
        f"{where}: it holds no prompt", "write 'prompt' (a text), 'messages' (a list) or 'prompt_token_ids'"
    )


def _thinned(prompts: Sequence[Prompt], most: int) -> list[Prompt]:
    """At most ``most`` prompts of each domain, evenly spaced, in their order."""
    if most < 1:
        raise BadInputError(f"at most {most} requests of a domain are none", "give at least 1")
    of_domain: dict[str, list[int]] = {}
    for at, prompt in enumerate(prompts):
        of_domain.setdefault(prompt.domain, []).append(at)
    kept: list[int] = []
    for members in of_domain.values():
        spaced = np.linspace(0, len(members) - 1, min(most, len(members))).round().astype(int)
        kept.extend(members[int(at)] for at in spaced)
    return [prompts[at] for at in sorted(kept)]
