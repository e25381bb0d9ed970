"""The `placer inspect` document."""

from typing import Any

from placer.model.kv import KV_DTYPES
from placer.model.spec import ModelSpec


def inspect_document(spec: ModelSpec, tp: int, *, expert_tp: int | None = None) -> dict[str, Any]:
    """What ``spec`` says, as the JSON document of `placer inspect` (bytes as integers).

    ``state_bytes_per_request_per_gpu`` is that of a bf16 cache. ``expert_tp`` is the number of GPUs that one
    expert is cut over, tp unless it is given.

    Raises
    ------
    BadInputError
        When ``tp`` does not divide the attention heads.
    """
    form = spec.expert_format
    provenance = dict(spec.provenance)
    if problem := spec.fp8_tp_problem(expert_tp or tp):
        provenance["gpu"] += f"; {problem}"
    return {
        "model": spec.name,
        "architecture": spec.architecture,
        "moe_layers": list(spec.moe_layers),
        "num_layers": spec.num_layers,
        "experts": spec.experts,
        "top_k": spec.top_k,
        "shared_experts": spec.shared_experts,
        "hidden_size": spec.hidden_size,
        "expert_intermediate_size": spec.expert_intermediate_size,
        "expert_bytes": {
            "checkpoint": spec.checkpoint_expert_bytes,
            "gpu": spec.expert_bytes(form["gpu"]),
            "cpu": spec.expert_bytes(form["cpu"]),
        },
        "expert_format": form,
        "weights_bytes_per_gpu": spec.weights_bytes_per_gpu(tp),
        "kv_bytes_per_token_per_gpu": {
            dtype: spec.kv_bytes_per_token_per_gpu(tp, dtype) for dtype in KV_DTYPES
        },
        "state_bytes_per_request_per_gpu": spec.state_bytes_per_request_per_gpu(tp, "bf16"),
        "parameters": spec.parameters,
        "tp": tp,
        "provenance": provenance,
    }
