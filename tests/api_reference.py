"""docs/reference.md below its introduction: every function of the package, from its own signature and docstring.

`make reference` writes it anew.
"""

import ast
import inspect
import re
import textwrap
import typing
from pathlib import Path
from typing import Any

import placer

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
BELOW = "## The functions\n"
"""The heading that what is generated follows."""
STEPS = ("inspect", "hardware", "trace", "profile", "solve", "explain", "evaluate", "verify", "compare")
"""Groups in the order in which they are used; the others follow by name."""
_WIDTH = 110


def functions() -> list[str]:
    """Names of the functions that `placer` offers, in the order of the reference."""
    names = [name for name in placer.__all__ if not name.endswith("Error")]

    def place(name: str) -> tuple[int, str]:
        group = name.split("_", maxsplit=1)[0]
        return (STEPS.index(group) if group in STEPS else len(STEPS), name)

    return sorted(names, key=place)


def generated() -> str:
    """The text of every function, one section each."""
    return "\n".join(_section(name) for name in functions())


def _section(name: str) -> str:
    function = getattr(placer, name)
    document = inspect.getdoc(function) or ""
    body, _, raised = document.partition("Raises\n------\n")
    returned = typing.get_type_hints(function)["return"]
    parts = [f"### placer.{name}", f"```python\n{_signature(name)}\n```", _marked(body.strip())]
    if _is_ours(returned):
        parts.append(f"`{returned.__name__}`: {_marked(_first_line(returned))}")
    if raised:
        errors = re.findall(r"^(\w+)\n((?:    .*\n?)+)", raised, re.MULTILINE)
        parts.append("\n".join(f"- `{error}`: {_marked(' '.join(why.split()))}" for error, why in errors))
    return "\n\n".join(textwrap.dedent(part) for part in parts) + "\n"


def _signature(name: str) -> str:
    """The call as its file writes it, wrapped."""
    path = Path(inspect.getfile(inspect.unwrap(getattr(placer, name))))
    (found,) = (
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    given, named = found.args.args, found.args.kwonlyargs
    defaults = [*[None] * (len(given) - len(found.args.defaults)), *found.args.defaults]
    parameters = [
        *map(_parameter, given, defaults),
        *(["*"] if named else []),
        *map(_parameter, named, found.args.kw_defaults),
    ]
    assert found.returns is not None
    words = [*(f"{each}," for each in parameters[:-1]), *parameters[-1:]]
    lines = [f"placer.{name}("]
    for number, word in enumerate(words):
        if len(lines[-1]) + len(word) + 1 <= _WIDTH:
            lines[-1] += (" " if number else "") + word
        else:
            lines.append(f"    {word}")
    return "\n".join(lines) + f") -> {ast.unparse(found.returns)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + ("" if default is None else f" = {ast.unparse(default)}")


def _is_ours(returned: Any) -> bool:
    return isinstance(returned, type) and returned.__module__.startswith("placer.")


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def _marked(text: str) -> str:
    """Docstring marks as Markdown writes them."""
    return text.replace("``", "`")


def written() -> str:
    """The reference as it should be: its introduction as it is, then every function."""
    introduction, below, _ = REFERENCE.read_text(encoding="utf-8").partition(BELOW)
    return f"{introduction}{below}\n{generated()}"


if __name__ == "__main__":
    REFERENCE.write_text(written(), encoding="utf-8")
