"""How answers are generated while a model's routing is recorded."""

import math
from dataclasses import dataclass

from placer.errors import BadInputError

_MOST_SEED = 2**31


@dataclass(frozen=True)
class GenerationSettings:
    """How answers are generated.

    Attributes
    ----------
    new_tokens
        Most tokens of an answer; 0 records prompts alone.
    temperature
        0 for greedy, None for what the checkpoint's generation_config.json says.
    seed
        Of the draws; request r draws from seed + r, so a resumed recording draws the same.
    """

    new_tokens: int = 0
    temperature: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises
        ------
        BadInputError
            When a setting is out of its range.
        """
        if self.new_tokens < 0:
            raise BadInputError(f"{self.new_tokens} tokens cannot be generated", "give 0 or more")
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise BadInputError(
                f"temperature {self.temperature} is no temperature", "give 0 or more, such as 0.7"
            )
        if not 0 <= self.seed < _MOST_SEED:
            raise BadInputError(f"seed {self.seed} is out of range", f"give 0 to {_MOST_SEED - 1}")

    def __str__(self) -> str:
        if not self.new_tokens:
            return "prompts only"
        heat = "the model's sampling" if self.temperature is None else f"temperature {self.temperature:g}"
        return f"{self.new_tokens} new tokens, {heat}, seed {self.seed}"
