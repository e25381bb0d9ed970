"""An object whose pickle would make a folder when it is loaded: a reader that runs code is caught by it."""

import os
from pathlib import Path
from typing import Any


class MakesFolder:
    """Pickles to a call of ``os.mkdir(marker)``."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)
