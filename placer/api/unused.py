"""Parameters that would change nothing beside others."""

from collections.abc import Mapping

from placer.errors import BadInputError


def refuse_unused(given: Mapping[str, bool], because: str, cure: str) -> None:
    """Raise BadInputError where one of the flags in ``given`` was given."""
    if flags := [flag for flag, is_given in given.items() if is_given]:
        raise BadInputError(f"{', '.join(flags)} would change nothing: {because}", cure)
