"""What sglang-kt 0.7.2 takes as experts: block sizes, and CPU methods that are none of its own."""

BLOCK = 128
"""Rows and columns of an FP8 scale block; kt-kernel's INT4 kernels read out of bounds below it too."""
OTHER_KERNELS = {"torch": "torch's CPU kernel", "VLLM-BF16": "vLLM's CPU kernel"}
"""CPU methods of no kt-kernel class."""
GGUF_BLOCK = 256
"""Values of a GGUF block, which LLAMAFILE gives whole to each CPU pool (kt_kernel/utils/llamafile.py)."""
