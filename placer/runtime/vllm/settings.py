"""What the environment asks of the plugin."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from placer.runtime.vllm.entry import PLACEMENT
from placer.runtime.vllm.refusal import Refusal

COLD = "PLACER_COLD"
COLD_THREADS = "PLACER_COLD_THREADS"
CUDA = "PLACER_CUDA"
COLD_PATHS = ("auto", "kt", "torch", "exact")


@dataclass(frozen=True)
class Settings:
    """The plugin's environment variables.

    Attributes
    ----------
    placement
        Path of placement.json (``PLACER_PLACEMENT``).
    cold
        Who computes cold experts (``PLACER_COLD``): "kt" or "torch" in INT4, "exact" in the checkpoint's
        precision, "auto" for kt where it runs here and torch otherwise.
    threads
        Threads of kt-kernel's pool (``PLACER_COLD_THREADS``); None for those of the plan, as far as they fit.
    experimental_cuda
        Whether a GPU may be used (``PLACER_CUDA=experimental``).
    """

    placement: str
    cold: str = "auto"
    threads: int | None = None
    experimental_cuda: bool = False


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of ``environment``, which names a placement.

    Raises
    ------
    Refusal
        When a variable has a value that it cannot have.
    """
    placement = environment[PLACEMENT]
    if not placement:
        raise Refusal(f"{PLACEMENT} is empty", "give it the path of a placement.json, or unset it")
    cold = environment.get(COLD, "auto")
    if cold not in COLD_PATHS:
        raise Refusal(f"{COLD} is {cold!r}", f"use one of {', '.join(COLD_PATHS)}")
    threads = environment.get(COLD_THREADS)
    if threads is not None and not (threads.isascii() and threads.isdecimal() and int(threads)):
        raise Refusal(f"{COLD_THREADS} is {threads!r}", "give a whole number of 1 or more")
    cuda = environment.get(CUDA)
    if cuda not in {None, "experimental"}:
        raise Refusal(f"{CUDA} is {cuda!r}", "the only value is experimental")
    return Settings(placement, cold, int(threads) if threads else None, cuda is not None)
