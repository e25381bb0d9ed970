"""config.json as checked values: a missing, mistyped or absurd field raises an error that names it."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from placer.document import read_document
from placer.errors import BadInputError

CONFIG_CURE = "give the config.json that came with the checkpoint"
MAX_CONFIG_BYTES = 6 * 2**20
"""The largest real ones name the precision of every expert of a model: three megabytes."""
MAX_LAYERS = 1024
"""Eight times the layers of the deepest published model."""
MAX_EXPERTS = 65535
"""Trace files hold expert ids as uint16 and use 65535 for padding."""
MAX_ALL_EXPERTS = 2**20
"""Ten times the experts of the largest published model, over all layers."""
MAX_WIDTH = 2**24
MAX_VOCABULARY = 2**26
MAX_TOKENS = 2**40
_OUTER_FIELDS = ("tie_word_embeddings", "torch_dtype", "dtype")
"""Fields of a language model that wrappers hold beside ``text_config``."""
_LANGUAGE_MODELS = ("text_config", "llm_config", "language_config")
"""Objects under which wrappers hold the fields of their language model."""
_OTHER_QUANTIZATIONS = ("quantization", "compression_config")
"""Where MLX and old compressed-tensors checkpoints say how they are quantised."""
_MISTRAL = "params.json"
_TALKING = "thinker_config"
"""Object of a speaking wrapper that holds its wrapper of the language model (Qwen3-Omni)."""


class Config:
    """The fields of one config.json that describe its language model.

    Every accessor remembers which fields it was asked for, so that `unread` can tell which fields of a
    model nobody interpreted.

    Attributes
    ----------
    path
        File that was read.
    sha256
        Of the file's bytes, in hexadecimal.
    nested
        Name of the object that held the language model's fields, None where they are at the top.
    fields
        The language model's fields.
    document
        The whole config.json.
    """

    def __init__(self, path: Path, sha256: str, document: Mapping[str, Any]) -> None:
        self.path = path
        self.sha256 = sha256
        self.nested, self.fields = _language_model(document)
        self.document = document
        self._read: set[str] = set()

    @property
    def architecture(self) -> str | None:
        """First entry of ``architectures`` of the whole model, where given."""
        names = self.document.get("architectures")
        if names is None:
            return None
        if (
            not isinstance(names, list)
            or not names
            or not isinstance(names[0], str)
            or not names[0].isprintable()
        ):
            raise self.error("architectures", names, "a list that starts with a printable name")
        return names[0]

    @property
    def quantization(self) -> Mapping[str, Any] | None:
        """``quantization_config`` of the language model or of the whole model, where given."""
        for fields in (self.fields, self.document):
            section = fields.get("quantization_config")
            if section is None:
                continue
            if not isinstance(section, dict):
                raise self.error("quantization_config", section, "an object")
            return section
        for name in _OTHER_QUANTIZATIONS:
            if self.document.get(name) or self.fields.get(name):
                raise BadInputError(
                    f"{self.path}: the quantization under {name} has no sizing rule",
                    "give a checkpoint whose config.json has a quantization_config",
                )
        return None

    def has(self, name: str) -> bool:
        """Whether ``name`` is present and not null."""
        self._read.add(name)
        return self.fields.get(name) is not None

    def require(self, *names: str) -> None:
        """Raise BadInputError unless one of ``names`` is present; null, which means none, will do."""
        self._read.update(names)
        if self.fields.keys().isdisjoint(names):
            raise self._lack(names)

    def count(self, *names: str, least: int = 1, most: int = MAX_WIDTH, default: int | None = None) -> int:
        """The whole number under the first of ``names`` that is present; all that are present must agree.

        Raises
        ------
        BadInputError
            When none is present and there is no default, or a value is not a whole number in range.
        """
        found: dict[str, int] = {}
        for name in names:
            if not self.has(name):
                continue
            value = self.fields[name]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise self.error(name, value, f"a whole number from {least} to {most:,}")
            found[name] = value
        if not found:
            if default is not None:
                return default
            raise self._lack(names)
        if len(set(found.values())) > 1:
            raise BadInputError(
                f"{self.path}: {' and '.join(f'{name} {value}' for name, value in found.items())} disagree",
                CONFIG_CURE,
            )
        return next(iter(found.values()))

    def alike(self, name: str, *, least: int = 1, most: int = MAX_WIDTH) -> int:
        """The whole number under ``name``, which may also be a list of equal numbers (one per layer).

        Raises
        ------
        BadInputError
            As `count`; and when the list is empty or its numbers differ.
        """
        if not isinstance(self.fields.get(name), list):
            return self.count(name, least=least, most=most)
        entries = self.items(name)
        first = entries[0] if entries else None
        if (
            isinstance(first, bool)
            or not isinstance(first, int)
            or not least <= first <= most
            or any(type(entry) is not int or entry != first for entry in entries)
        ):
            raise self.error(name, entries, f"equal whole numbers from {least} to {most:,}")
        return first

    def flag(self, name: str, *, default: bool) -> bool:
        """The truth value under ``name``; raises BadInputError when it is something else."""
        if not self.has(name):
            return default
        value = self.fields[name]
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """The string under ``name``; raises BadInputError when it is missing (no default) or not a string."""
        if not self.has(name):
            if default is not None:
                return default
            raise self._lack((name,))
        value = self.fields[name]
        if not isinstance(value, str) or not value.isprintable():
            raise self.error(name, value, "a string of printable characters")
        return value

    def items(self, name: str) -> list[Any]:
        """The list under ``name``, empty when absent; raises BadInputError when it is not a list."""
        if not self.has(name):
            return []
        value = self.fields[name]
        if not isinstance(value, list):
            raise self.error(name, value, "a list")
        return value

    def section(self, name: str) -> "Config":
        """The object under ``name``; raises BadInputError when it is missing or something else."""
        value = self.fields.get(name) if self.has(name) else None
        if not isinstance(value, dict):
            raise self.error(name, value, "an object")
        return Config(self.path, self.sha256, value)

    def ignore(self, names: tuple[str, ...]) -> None:
        """Mark ``names`` as understood to change no size."""
        self._read.update(names)

    def unread(self, names: tuple[str, ...]) -> list[str]:
        """Those of ``names`` that hold something and that nobody asked for."""
        return [name for name in names if self.fields.get(name) and name not in self._read]

    def _lack(self, names: Sequence[str]) -> BadInputError:
        return BadInputError(
            f"{self.path} lacks {' or '.join(names)}", "give the config.json that came with the checkpoint"
        )

    def error(self, name: str, value: object, expected: str) -> BadInputError:
        """The error for field ``name`` that holds ``value``."""
        return BadInputError(
            f"{self.path}: {name} is {_brief(value)}, expected {expected}",
            CONFIG_CURE,
        )


def _language_model(document: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Where the language model's fields are, and the fields."""
    outer = document.get(_TALKING)
    outer, prefix = (outer, f"{_TALKING}.") if isinstance(outer, dict) else (document, "")
    for name in _LANGUAGE_MODELS:
        text = outer.get(name)
        if isinstance(text, dict):
            missing = {
                field: outer[field] for field in _OUTER_FIELDS if field in outer and text.get(field) is None
            }
            return f"{prefix}{name}", {**text, **missing}
    return None, document


def read_config(path: Path) -> Config:
    """Read the config.json at ``path``.

    Raises
    ------
    BadInputError
        When the file is missing, not a regular file, too large, or not a JSON object.
    """
    try:
        if not path.is_file():
            if (path.parent / _MISTRAL).is_file():
                raise BadInputError(
                    f"{path.parent} has no config.json, only Mistral's own {_MISTRAL}",
                    "give the repository's Hugging Face version, which has a config.json",
                )
            raise BadInputError(
                f"there is no config.json at {path}", "give a checkpoint directory, or the config.json itself"
            )
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise BadInputError(
                f"{path} is larger than {MAX_CONFIG_BYTES:,} bytes", "give a model's config.json"
            )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    # transformers writes an unbounded time step of mamba layers as Infinity.
    document = read_document(path, what="model config", cure=CONFIG_CURE, infinity=True)
    if str(document.get("schema")).startswith("placer."):
        raise BadInputError(f"{path} is a file of placer, not a model's config.json", CONFIG_CURE)
    return Config(path, digest, document)


def _brief(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
