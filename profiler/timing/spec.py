"""What a timing campaign is asked to do, as it travels to the worker process."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import Call, Role


@dataclass(frozen=True)
class CampaignSpec:
    """One backend, one shape, one set of calls.

    Attributes
    ----------
    device
        "cpu" or "gpu": which registry ``backend`` is looked up in.
    backend
        Name of the kernel backend.
    threads, subpools
        Kernel threads, and the NUMA nodes they are spread over (1 for backends that know none).
    shape
        The experts; on a GPU one GPU's share of them.
    seed
        Draws experts, layers and orders.
    max_seconds
        Wall time that loading and timing may take together; rounds, then the most expensive calls, give way.
    rounds, min_rounds
        Rounds aimed at, and kept to when time is short; one more round comes first and is discarded.
    extra_calls
        Calls timed beside the grid and the made-up steps, or, with ``only_extra``, alone.
    only_extra
        Time ``extra_calls`` alone, the first of them whatever it costs: no probe of the border, no grid.
    resident_bytes
        Distinct expert weights to keep in memory; None for three times the last-level cache.
    """

    device: str
    backend: str
    threads: int
    subpools: int
    shape: ExpertShape
    seed: int
    max_seconds: float
    rounds: int = 21
    min_rounds: int = 9
    extra_calls: tuple[Call, ...] = ()
    only_extra: bool = False
    resident_bytes: int | None = None

    def to_json(self) -> str:
        """The spec as one JSON document."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> "CampaignSpec":
        """The spec that `to_json` wrote into ``path``."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fields["shape"] = ExpertShape(**fields["shape"])
        fields["extra_calls"] = tuple(call_from_json(call) for call in fields["extra_calls"])
        return cls(**fields)


def call_from_json(fields: dict[str, Any]) -> Call:
    """The call that `dataclasses.asdict` turned into ``fields``."""
    return Call(tuple(fields["rows"]), fields["tokens"], Role(fields["role"]), fields["source"])
