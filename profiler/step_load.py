"""What a step holds, as far as the time outside the routed experts depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepLoad:
    """What a step holds.

    Attributes
    ----------
    batch, context_tokens
        Requests that decode one token, and the mean KV tokens of each.
    chunk_tokens, chunk_context_tokens
        Tokens of prompts, and the mean tokens that each of them attends to (half the prompt).
    """

    batch: int = 0
    context_tokens: int = 0
    chunk_tokens: int = 0
    chunk_context_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the step."""
        return self.batch + self.chunk_tokens

    @property
    def sampled_tokens(self) -> int:
        """Tokens whose successor is drawn: those that decode, and the last one of a chunk."""
        return self.batch + min(1, self.chunk_tokens)
