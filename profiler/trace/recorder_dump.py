"""SGLang's expert-distribution recorder dumps as plain arrays, loaded without running anything in them."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError


def load_dump(path: Path) -> Mapping[str, Any]:
    """The dictionary that a recorder saved with ``torch.save``.

    Only the weights-only unpickler is used, and only on archives whose members are stored uncompressed at
    the size the file has: what a server's ``torch.save`` writes.

    Raises
    ------
    BadInputError
        When the file is no such archive, holds anything but plain data and tensors, or is damaged.
    """
    import torch  # noqa: PLC0415  (seconds to import, and only recorder dumps need it)

    try:
        with zipfile.ZipFile(path) as archive:
            claimed = sum(entry.file_size for entry in archive.infolist())
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
        if packed or claimed > path.stat().st_size:
            raise BadInputError(
                f"{path}: its members are packed to less than their size, which torch.save never does",
                "use the recorder's own file",
            )
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except BadInputError:
        raise
    except (
        Exception
    ) as error:  # zip reader, unpickler and torch raise many kinds for a damaged or hostile file
        # torch's own text advises to run the pickle all the same.
        reason = type(error).__name__
        raise BadInputError(
            f"{path}: not a recorder dump that loads as plain data ({reason})",
            "use the file that /dump_expert_distribution_record wrote; other pickles are never run",
        ) from None
    if not isinstance(loaded, dict):
        raise BadInputError(
            f"{path}: holds a {type(loaded).__name__}, not a dictionary", "use the recorder's own file"
        )
    return loaded


def integers(value: object, name: str, ndim: int, where: str) -> NDArray[np.int64]:
    """A tensor of a dump as int64 with ``ndim`` axes.

    Raises
    ------
    BadInputError
        When it is no dense integer tensor of that rank, or its shape claims more than its storage holds.
    """
    import torch  # noqa: PLC0415

    whole = (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not value.is_floating_point()
        and not value.is_complex()
        and not value.is_quantized
        and value.device.type == "cpu"
        and value.ndim == ndim
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )
    if not whole:
        raise BadInputError(
            f"{where}: {name} is not an integer tensor with {ndim} axes", "use the recorder's own file"
        )
    assert isinstance(value, torch.Tensor)
    array: NDArray[np.int64] = value.to(torch.int64).numpy()
    return array


def integer_list(value: object, name: str, where: str) -> NDArray[np.int64]:
    """A list of integers of a dump as int64 [n].

    Raises
    ------
    BadInputError
        When it is anything else.
    """
    if not isinstance(value, list) or not all(type(item) is int and abs(item) < 2**31 for item in value):
        raise BadInputError(f"{where}: {name} is not a list of integers", "use the recorder's own file")
    return np.asarray(value, dtype=np.int64)
