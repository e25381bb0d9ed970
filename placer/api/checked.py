"""Arguments held against the types that a function names for them."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from placer.errors import BadInputError
from placer.system_refusal import system_refusal

P = ParamSpec("P")
R = TypeVar("R")
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    NoneType: "None",
    os.PathLike: "a path",
    Sequence: "a list",
    Mapping: "a dictionary",
    Callable: "a function",
}
_ITEMS = {int: "[1, 2]", str: '["one", "two"]'}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which raises BadInputError where an argument is of another type than it names.

    So does what the operating system refuses: no other kind of error leaves it for what a user can mend.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = get_type_hints(function)
        bound = signature(function).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if not _is(value, hints[name]):
                words = dict.fromkeys(_words(hints[name]))
                said = _option(signature(function).parameters[name], hints[name])
                raise BadInputError(f"{said} is {value!r:.80}", f"give {' or '.join(words)}")
            if _holds_nul(value):
                said = _option(signature(function).parameters[name], hints[name])
                raise BadInputError(f"{said} holds a NUL character: {value!r:.80}", "leave it out")
            bound.arguments[name] = _plain(value)
        try:
            return function(*bound.args, **bound.kwargs)
        except (OSError, MemoryError) as error:
            raise system_refusal(error) from error

    return call


def _is(value: Any, hint: Any) -> bool:
    """Whether ``value`` is what ``hint`` says, the items of lists and dictionaries too."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_is(value, each) for each in inner)
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    if kind is Sequence:
        # A text is a sequence of texts, which is never what was meant.
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(_is(x, inner[0]) for x in value)
        )
    if kind is Mapping:
        return isinstance(value, Mapping) and all(
            _is(key, inner[0]) and _is(item, inner[1]) for key, item in value.items()
        )
    return isinstance(value, kind)


def _holds_nul(value: Any) -> bool:
    """Whether a text or path, or one in a list, holds what no name of a file does."""
    if isinstance(value, list | tuple):
        return any(map(_holds_nul, value))
    return isinstance(value, str | os.PathLike) and "\0" in str(value)


def _plain(value: Any) -> Any:
    """``value`` with numbers of numpy as Python's own, which JSON can hold."""
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    if isinstance(value, int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _words(hint: Any) -> list[str]:
    """Names of the types that ``hint`` allows, for a person."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return [word for each in inner for word in _words(each)]
    word = _WORDS.get(kind, f"a {kind.__name__}")
    if kind is Sequence and inner[0] in _ITEMS:
        word += f" such as {_ITEMS[inner[0]]}"
    return [word]


def _option(parameter: Parameter, hint: Any) -> str:
    """What an error calls ``parameter``: the option that it is on the command line, where it is one."""
    option = parameter.kind is Parameter.KEYWORD_ONLY and get_origin(hint) is not Callable
    return f"--{parameter.name.replace('_', '-')}" if option else parameter.name
