"""Expected outcomes that end a command: each says what is wrong and what to do, and carries an exit code."""


class PlacerError(Exception):
    """An outcome a user can act on.

    Parameters
    ----------
    what
        One line: what is wrong and where (file, field, figure).
    hint
        One line: what to do about it. Empty only when ``what`` already says so.
    """

    exit_code = 2

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[type["PlacerError"], tuple[str, str]]:
        return type(self), (self.what, self.hint)

    def __str__(self) -> str:
        return f"{self.what}\n  {self.hint}" if self.hint else self.what


class BadInputError(PlacerError):
    """A file, flag or value that cannot be used as given (exit code 2)."""

    exit_code = 2


class InfeasibleError(PlacerError):
    """Nothing fits the request; ``what`` names the binding line, ``hint`` the smallest cure (exit code 3)."""

    exit_code = 3


class MissingComponentError(PlacerError):
    """A component the command needs is not installed or cannot run on this machine (exit code 4)."""

    exit_code = 4
