"""What the operating system refuses, as an error that says what to do."""

from placer.errors import BadInputError
from placer.output import write_cure


def system_refusal(error: OSError | MemoryError) -> BadInputError:
    """The error for what no reader or writer foresaw: names too long, a vanished folder, no memory left."""
    if isinstance(error, MemoryError):
        return BadInputError(
            "there is not enough memory for this",
            "ask for less (fewer requests, tokens or windows), or use a machine with more memory",
        )
    name = f": {str(error.filename)[:80]}" if error.filename else ""
    return BadInputError((error.strerror or str(error)) + name, write_cure(error, "another path"))
