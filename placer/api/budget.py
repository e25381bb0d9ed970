"""The GPU memory that a server may use."""

from placer.api.size import Size, size_bytes
from placer.errors import BadInputError
from placer.units import TIB


def check_hbm_budget(budget: Size) -> None:
    """Raise BadInputError for a ``budget`` that no GPU could give a meaning: known before any file is read."""
    size_bytes(budget, "--hbm-budget", whole_bytes=TIB)


def hbm_budget_bytes(
    budget: Size, whole_bytes: int | None, gpu_name: str, cure: str, *, whole_name: str | None = None
) -> int:
    """Bytes per GPU that ``budget`` means, at most ``whole_bytes`` where those are known.

    ``cure`` is what to do about a budget that the GPU does not have; ``whole_name`` as for `parse_size`.

    Raises
    ------
    BadInputError
        When it is no size, or above what a process can use of the GPU.
    """
    size = size_bytes(budget, "--hbm-budget", whole_bytes=whole_bytes, whole_name=whole_name)
    if whole_bytes is not None and size > whole_bytes:
        raise BadInputError(
            f"--hbm-budget {budget} is more than the {whole_bytes / 2**30:,.2f} GiB that a process can use of "
            f"{gpu_name}",
            cure,
        )
    return size
