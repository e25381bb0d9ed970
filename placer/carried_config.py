"""What the config.json that a placement carries says of its model, where a family entry can read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.model.config import Config
from placer.model.counts import Counts, read_counts
from placer.model.families import family_of
from placer.model.kv import CacheGroup, RequestState


@dataclass(frozen=True)
class CarriedConfig:
    """Counts of the model, and what its layers cache and keep."""

    counts: Counts
    cache: tuple[CacheGroup, ...]
    states: tuple[RequestState, ...]


def carried_config(document: Mapping[str, Any]) -> CarriedConfig | None:
    """The carried config.json as far as sizes of the cache go, or None where no family describes it."""
    config = Config(Path("model.config"), "", document)
    try:
        family = family_of(config)
        counts = read_counts(config, family)
        return CarriedConfig(
            counts,
            family.attention.cache(config, counts.num_layers),
            family.attention.states(config, counts.num_layers),
        )
    except BadInputError:
        return None
