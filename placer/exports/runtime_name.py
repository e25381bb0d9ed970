"""The names of the runtimes that a placement can be exported for."""

RUNTIMES = ("sglang-kt", "vllm", "vllm-plugin", "llama.cpp")
"""Names that ``--runtime`` takes."""

PREPARED_RUNTIMES = ("sglang-kt",)
"""Those of them that a machine can be checked for."""

LOGGING_RUNTIMES = ("sglang-kt", "vllm-plugin")
"""Those whose server log can be compared with a plan."""
