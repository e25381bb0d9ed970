"""placer: decide which MoE experts go on the GPU and how many KV tokens are kept, together."""

__version__ = "0.1.0"
