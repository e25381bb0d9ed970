"""Traces from a plain ``.npy`` file of expert ids per token."""

from pathlib import Path

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.npy import THE_ARRAY, read_npy
from placer.profiler.trace.token_array import token_array_trace
from placer.profiler.trace.trace import TokenTrace


def import_npy(path: Path, model: KnownModel) -> TokenTrace:
    """Read integer ids [T, L, K] (-1 for an unused slot): one request of decode tokens.

    Raises
    ------
    BadInputError
        When the file is no such array, is damaged, or does not fit the model.
    """
    try:
        with path.open("rb") as file:
            ids = read_npy(file, path.stat().st_size, "iu", THE_ARRAY, str(path))
    except (ValueError, EOFError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(
            f"{path}: not a readable .npy file ({reason})", "save it with numpy.save"
        ) from None
    return token_array_trace(ids, model, where=str(path), name=THE_ARRAY)
