"""How answers are generated while a model's routing is recorded."""

from dataclasses import dataclass


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

    def __str__(self) -> str:
        if not self.new_tokens:
            return "prompts only"
        heat = "the model's sampling" if self.temperature is None else f"temperature {self.temperature:g}"
        return f"{self.new_tokens} new tokens, {heat}, seed {self.seed}"
