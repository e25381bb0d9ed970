"""Starts engines that a placement must stop, one after the other in one process, and writes down why each stopped.

    python vllm_start.py JOB.json OUT.json

A job is a list of starts: a name, ``environment``, ``arguments`` of the engine, and what is ``hidden``.
"""

import json
import os
import sys
from typing import Any


def main() -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    with open(sys.argv[2], "w") as file:
        json.dump({start.pop("name"): why_not(**start) for start in job}, file)


def why_not(
    *,
    environment: dict[str, str],
    arguments: dict[str, Any],
    without: str = "",
    version: tuple[int, ...] = (),
) -> dict[str, str]:
    """The kind and the message of what stopped the start."""
    for name in [name for name in os.environ if name.startswith("PLACER_")]:
        del os.environ[name]
    os.environ |= environment
    import vllm.version
    from vllm import LLM

    from placer.runtime.vllm.entry import register

    running = vllm.version.__version_tuple__
    vllm.version.__version_tuple__ = version or running
    found = sys.modules.get(without)
    if without:
        sys.modules[without] = None  # type: ignore[assignment]
    try:
        register()
        LLM(skip_tokenizer_init=True, max_model_len=128, block_size=32, enforce_eager=True, **arguments)
    except Exception as error:
        return {"kind": type(error).__name__, "message": str(error)}
    finally:
        vllm.version.__version_tuple__ = running
        if without:
            del sys.modules[without]
            sys.modules |= {without: found} if found is not None else {}
    return {"kind": "started", "message": ""}


if __name__ == "__main__":
    main()
