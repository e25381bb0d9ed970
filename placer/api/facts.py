"""What a command found, as plain values."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Findings whose fields are those of the command's JSON; ``facts["field"]`` is one of them."""

    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The field called ``name``."""
        return self.fields[name]

    def document(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        return self.fields
