"""The entry point that vLLM calls in each of its processes (group ``vllm.general_plugins``).

vLLM logs an import error of a plugin and goes on without it, which would load every expert on the GPU. So this
file imports nothing that can fail, and whatever goes wrong later is raised from the call, which stops the start.
"""

import os

PLACEMENT = "PLACER_PLACEMENT"
"""The environment variable that names the placement; where it is not set the plugin does nothing."""


def register() -> None:
    """Make the engine of this process honour the placement that PLACER_PLACEMENT names.

    Raises
    ------
    Refusal
        When the placement, the engine's version or the settings make that impossible; the message is one line.
    """
    if PLACEMENT not in os.environ:
        return
    from placer.runtime.vllm.hooks import install  # noqa: PLC0415

    install()
