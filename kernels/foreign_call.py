"""Does a function of another project still take the arguments that it is called with here?"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from placer.errors import MissingComponentError


def accepts(function: Callable[..., Any], arguments: Sequence[str], what: str) -> None:
    """Pass when ``function`` has parameters called ``arguments``.

    Raises
    ------
    MissingComponentError
        When it has not: the project has changed, and calling it would fail or do something else.
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    missing = [name for name in arguments if name not in parameters]
    if missing:
        raise MissingComponentError(
            f"{what} takes no argument {', '.join(missing)}: it has changed", "use another --gpu-kernel"
        )
