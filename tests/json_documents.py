"""What `--json` prints, held against the schema that ships for it, and every null against its reason."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from placer.schemas.schema import schema

FILES = {"solve": "placement", "profile": "profile"}
"""Commands that print the file that they write."""
FORMS = {
    ("hardware", "--list"): "hardware-list",
    ("verify", "--kt-log"): "verify-kt-log",
    ("bench", "--growth"): "bench-growth",
    ("export", "--check-log"): "export-check",
    ("export", "--check-dump"): "export-check",
}
"""Options that make another document of a command."""


def schema_name(arguments: Sequence[str]) -> str:
    """Name of the schema of what `placer` prints for ``arguments``."""
    command = arguments[0]
    for (name, option), form in FORMS.items():
        if name == command and option in arguments:
            return form
    return f"trace-{arguments[1]}" if command == "trace" else FILES.get(command, command)


def check_document(arguments: Sequence[str], text: str) -> None:
    """Fail unless ``text``, printed for ``arguments``, is one document of its schema, its nulls explained."""
    name = schema_name(arguments)
    document, rules = json.loads(text, parse_constant=_not_finite), rules_of(name)
    faults = [
        f"{fault.json_path}: {fault.message}" for fault in Draft202012Validator(rules).iter_errors(document)
    ]
    assert not faults, f"{name}.schema.json: {faults[:5]}"
    if name not in FILES.values():
        silent = list(unexplained(document, rules, rules))
        assert not silent, f"{name}: null without a reason in null_reasons or in the schema: {silent[:5]}"


@cache
def rules_of(name: str) -> dict[str, Any]:
    """The schema ``name``, closed."""
    rules: dict[str, Any] = closed(schema(name))
    return rules


def closed(rules: Any) -> Any:
    """``rules`` without room for fields that they do not name: what this version writes, it describes."""
    if isinstance(rules, list):
        return [closed(each) for each in rules]
    if not isinstance(rules, dict):
        return rules
    inner = {name: closed(value) for name, value in rules.items()}
    return {**inner, "additionalProperties": False} if isinstance(inner.get("properties"), dict) else inner


def unexplained(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[str]:
    """Paths of nulls that neither ``null_reasons`` above them nor the description of their schema explain."""
    yield from _unexplained(value, [rules], root, "", ())


def _unexplained(
    value: Any,
    forms: Sequence[Mapping[str, Any]],
    root: Mapping[str, Any],
    path: str,
    reasons: tuple[tuple[str, Mapping[str, str]], ...],
) -> Iterator[str]:
    forms = [each for form in forms for each in _resolved(form, root)]
    if value is None:
        if not any("null" in form.get("description", "") for form in forms) and not _given(path, reasons):
            yield path
    elif isinstance(value, dict):
        if "null_reasons" in value:
            reasons = (*reasons, (f"{path}." if path else "", value["null_reasons"]))
        for key, inner in value.items():
            under = [
                form["properties"][key] if key in form.get("properties", {}) else form["additionalProperties"]
                for form in forms
                if key in form.get("properties", {}) or isinstance(form.get("additionalProperties"), dict)
            ]
            yield from _unexplained(inner, under, root, f"{path}.{key}" if path else key, reasons)
    elif isinstance(value, list):
        under = [form["items"] for form in forms if "items" in form]
        for index, inner in enumerate(value):
            yield from _unexplained(inner, under, root, f"{path}.{index}", reasons)


def _resolved(form: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """``form`` and everything that it refers to or chooses between."""
    yield form
    for choice in form.get("anyOf", ()):
        yield from _resolved(choice, root)
    if "$ref" in form:
        yield from _resolved(root["$defs"][form["$ref"].rpartition("/")[2]], root)


def _given(path: str, reasons: tuple[tuple[str, Mapping[str, str]], ...]) -> bool:
    """Whether a reason is given for ``path`` or something above it."""
    return any(
        reason and (path == prefix + above or path.startswith(f"{prefix}{above}."))
        for prefix, given in reasons
        for above, reason in given.items()
    )


def _not_finite(name: str) -> float:
    raise AssertionError(f"{name} is not a finite number")
