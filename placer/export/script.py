"""A shell script of an export: a template whose @NAMES@ are filled in."""

from collections.abc import Mapping


def filled(template: str, values: Mapping[str, str]) -> str:
    """``template`` with every @NAME@ replaced; values that the user chose come last in ``values``.

    A later value may hold anything, also what looks like a name.
    """
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template
