"""Numbers that have a least value."""

from placer.errors import BadInputError


def at_least(least: int, **numbers: int | float | None) -> None:
    """Raise BadInputError for a number of ``numbers`` below ``least``; None is left alone."""
    for name, value in numbers.items():
        flag = f"--{name.replace('_', '-')}"
        # Not a number compares with nothing.
        if value is not None and not value >= least:
            raise BadInputError(f"{flag} is {value}", f"give at least {least}")


def check_seed(seed: int) -> None:
    """Raise BadInputError unless every generator takes ``seed``."""
    at_least(0, seed=seed)
    if seed > 2**32 - 1:
        raise BadInputError(f"--seed is {seed}", f"give at most {2**32 - 1}")
