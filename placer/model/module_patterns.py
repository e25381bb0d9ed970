"""The module-name lists of a quantization_config: which modules an entry means."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from placer.errors import BadInputError

_MAX_ALTERNATIVES = 64
_MAX_WILDCARDS = 16
_MAX_PATTERN = 512
_MAX_EXPRESSIONS = 128
_UNIT = re.compile(r"\.\*|\\d\+|\\\.|\.|[A-Za-z0-9_\-]+|\([A-Za-z0-9_\-|]+\)")
_GLOB = {".*": "*", r"\d+": "*", r"\.": ".", ".": "?"}


@dataclass(frozen=True)
class ModulePatterns:
    """A list of module names, in the three spellings that checkpoints use.

    A plain entry names a module by any run of whole dotted parts (``lm_head``, ``mlp.gate``), and everything
    below it. ``*`` in such an entry stands for anything. ``re:…`` is a regular expression matched from the
    start of the name (compressed-tensors).

    Attributes
    ----------
    names
        Entries without wildcards.
    prefixes, lengths
        Entries whose only wildcard is a ``*`` at the end, without it; and the lengths that they have.
    expressions
        The others.
    """

    names: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()
    lengths: tuple[int, ...] = ()
    expressions: tuple[re.Pattern[str], ...] = ()

    def match(self, module: str) -> bool:
        """Whether an entry means ``module`` (``model.layers.3.mlp.gate``)."""
        if self.names and not self.names.isdisjoint(_runs(module)):
            return True
        if any(module[:length] in self.prefixes for length in self.lengths if length <= len(module)):
            return True
        return any(
            expression.match(name) is not None
            for expression in self.expressions
            for name in (module, f"language_model.{module}")
        )


@lru_cache(maxsize=16)
def _runs(module: str) -> tuple[str, ...]:
    """Every run of whole dotted parts of ``module``; kept, as each list of patterns asks for the same."""
    parts = module.split(".")
    return tuple(
        ".".join(parts[first:end]) for first in range(len(parts)) for end in range(first + 1, len(parts) + 1)
    )


def module_patterns(entries: Iterable[str]) -> ModulePatterns:
    """Compile ``entries``.

    Raises
    ------
    BadInputError
        When a ``re:`` entry uses more than names, ``.``, ``.*``, ``\\d+`` and ``(a|b)``. Anything else is not
        translated to a pattern that is sure to end, and matching foreign regular expressions may never end.
    """
    names: set[str] = set()
    prefixes: set[str] = set()
    expressions: list[re.Pattern[str]] = []
    for entry in entries:
        if entry.startswith("re:"):
            expressions += [_compile(glob, entry) for glob in _globs(entry)]
        elif "*" not in entry:
            names.add(_unwrapped(entry))
        elif entry.find("*") == len(entry) - 1:
            prefixes.add(_unwrapped(entry[:-1]))
        else:
            glob = _unwrapped(entry)
            expressions += [_compile(spelling, entry) for spelling in (glob, f"{glob}.*")]
        if len(expressions) > _MAX_EXPRESSIONS:
            raise _unusable(entry, f"is one of more than {_MAX_EXPRESSIONS} with wildcards")
    lengths = tuple(sorted({len(prefix) for prefix in prefixes}))
    return ModulePatterns(frozenset(names), frozenset(prefixes), lengths, tuple(expressions))


def _unwrapped(entry: str) -> str:
    """``entry`` without the prefix of a multimodal wrapper, and of a checkpoint without ``model.``."""
    entry = entry.removeprefix("language_model.")
    if entry.startswith("model.language_model."):
        return "model." + entry.removeprefix("model.language_model.")
    return f"model.{entry}" if entry.startswith("layers.") else entry


def _compile(glob: str, entry: str) -> re.Pattern[str]:
    if glob.count("*") > _MAX_WILDCARDS or len(glob) > _MAX_PATTERN:
        raise _unusable(entry, "is too long or has too many wildcards")
    # fnmatch's translation never backtracks across a *, so it ends in time linear in the name per wildcard.
    return re.compile(fnmatch.translate(glob))


def _globs(entry: str) -> tuple[str, ...]:
    pattern = entry.removeprefix("re:").removeprefix("^")
    body = pattern.removesuffix("$")
    if len(body) > _MAX_PATTERN:
        raise _unusable(entry, "is too long")
    units = _UNIT.findall(body)
    if "".join(units) != body:
        raise _unusable(entry, r"uses more than names, '.', '.*', '\d+' and (a|b)")
    choices: list[Sequence[str]] = [
        unit[1:-1].split("|") if unit.startswith("(") else (_GLOB.get(unit, unit),) for unit in units
    ]
    spelled = 1
    for choice in choices:
        spelled *= len(choice)
    if spelled > _MAX_ALTERNATIVES:
        raise _unusable(entry, f"has more than {_MAX_ALTERNATIVES} alternatives")
    tail = "" if pattern.endswith("$") else "*"
    return tuple("".join(parts) + tail for parts in product(*choices))


def _unusable(entry: str, reason: str) -> BadInputError:
    return BadInputError(
        f"quantization_config: the module pattern {entry[:80]!r} {reason}",
        "name the modules plainly in config.json",
    )
