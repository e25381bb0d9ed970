"""The rule by which sglang-kt 0.7.2 turns an expert-location file into hot experts, mirrored line by line.

Source: ``_init_kt_gpu_experts_masks`` in sglang/srt/layers/moe/kt_ep_wrapper.py of sglang-kt 0.7.2 and
``generate_gpu_experts_masks`` in kt_kernel/experts_base.py of kt-kernel 0.7.2.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placer.errors import BadInputError
from placer.solvers.problem import Mask

if TYPE_CHECKING:
    import torch

RUNTIME = "sglang-kt 0.7.2"
FLOAT32_EXACT = 2**24
"""The runtime compares counts as float32, which holds whole numbers exactly up to here."""

_CLASS_FIRST_DENSE = {
    "deepseek_v3": 3,
    "deepseek_v32": 3,
    "exaone_moe": 1,
    "glm4_moe": 1,
    "glm4v_moe_text": 1,
}
"""``first_k_dense_replace`` of the runtime's config class where config.json does not say it.

From transformers-kt 5.6.0, which sglang-kt 0.7.2 pins; deepseek_v32 is loaded as deepseek_v3.
"""


@dataclass(frozen=True)
class KtLayout:
    """Layers and experts of a model as sglang-kt counts them, which need not be as the model has them.

    Attributes
    ----------
    num_layers
        All decoder layers (``num_hidden_layers``), dense ones included.
    experts
        Routed experts per layer.
    first_moe, moe_every
        Layer i counts as MoE when i >= first_moe and i % moe_every == 0.
    """

    num_layers: int
    experts: int
    first_moe: int
    moe_every: int

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Indices of the layers that count as MoE."""
        return tuple(i for i in range(self.num_layers) if i >= self.first_moe and i % self.moe_every == 0)

    @property
    def total_experts(self) -> int:
        """What ``--kt-gpu-experts-ratio`` is a ratio of."""
        return len(self.moe_layers) * self.experts


def unwrapped(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text model's part of a config.json: ``text_config`` where there is one."""
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def kt_layout(config: Mapping[str, Any]) -> KtLayout:
    """The layout that the runtime reads from a model's config.json.

    It does not read ``mlp_only_layers``, ``decoder_sparse_step`` or ``interleave_moe_layer_step``, and of a
    list ``moe_layer_freq`` only the first true entry: dense layers behind it count as MoE.

    Raises
    ------
    BadInputError
        When a field is missing or of a form with which the runtime would fail or switch itself off.
    """
    text = unwrapped(config)
    experts = next(
        (
            text[name]
            for name in ("num_local_experts", "num_experts", "n_routed_experts")
            if text.get(name) is not None
        ),
        None,
    )
    frequency = text.get("moe_layer_freq", 1)
    first_moe = text.get("first_k_dense_replace", _CLASS_FIRST_DENSE.get(str(text.get("model_type")), 0)) or 0
    hash_layers = text.get("num_hash_layers") or 0
    whole_numbers = {
        "num_hidden_layers": (text.get("num_hidden_layers"), 1),
        "num_local_experts, num_experts or n_routed_experts": (experts, 1),
        "first_k_dense_replace": (first_moe, 0),
        "num_hash_layers": (hash_layers, 0),
        "moe_layer_freq": (1 if isinstance(frequency, list) else frequency, 1),
    }
    for name, (value, least) in whole_numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise BadInputError(
                f"config.json: {name} is {value!r}; {RUNTIME} needs a whole number of at least {least}",
                "give the model's own config.json",
            )
    first_moe = max(0, first_moe - hash_layers)
    if isinstance(frequency, list):
        first_moe = max(first_moe, next((i for i, is_moe in enumerate(frequency) if is_moe), 0))
        frequency = 1
    return KtLayout(int(text["num_hidden_layers"]), int(experts or 0), first_moe, frequency)


def hot_experts(layout: KtLayout, ratio: float) -> int:
    """How many experts ``--kt-gpu-experts-ratio`` makes hot: the product cut to a whole number."""
    return int(layout.total_experts * ratio)


def select_hot(logical_count: "torch.Tensor", layout: KtLayout, ratio: float) -> Mask:
    """Hot experts that the runtime selects: bool [num_layers, E], layers that it counts as dense all True.

    ``logical_count`` is [buffer, num_layers, E]. The ranking is one over all layers, dense rows included.

    Raises
    ------
    BadInputError
        When the shape is not the model's, or equal counts at the cut leave the choice to chance.
    """
    if logical_count.dim() != 3 or tuple(logical_count.shape[1:]) != (layout.num_layers, layout.experts):
        raise BadInputError(
            f"logical_count has shape {tuple(logical_count.shape)}; {RUNTIME} needs "
            f"[buffer, {layout.num_layers}, {layout.experts}] for this model",
            "export the placement again for this model",
        )
    frequency = logical_count.sum(dim=0).float().reshape(-1).numpy()
    count = max(0, min(hot_experts(layout, ratio), frequency.size))
    order = np.argsort(-frequency, kind="stable")
    if 0 < count < frequency.size and frequency[order[count - 1]] == frequency[order[count]]:
        raise BadInputError(
            f"logical_count: experts are equal at the cut after {count:,}: {RUNTIME}'s choice is unknown",
            "give the experts distinct counts",
        )
    hot = np.zeros(frequency.size, dtype=np.bool_)
    hot[order[:count]] = True
    mask = hot.reshape(layout.num_layers, layout.experts)
    dense = np.ones(layout.num_layers, dtype=np.bool_)
    dense[list(layout.moe_layers)] = False
    mask[dense] = True
    return mask


def read_logical_count(path: Path) -> "torch.Tensor":
    """``logical_count`` of an expert-location file, under the conditions of both of the runtime's loaders.

    The second loader is compute_initial_expert_location_metadata in sglang/srt/eplb/expert_location.py.

    Raises
    ------
    BadInputError
        When either loader would fail or ignore the file.
    """
    import torch  # noqa: PLC0415  (seconds to import, and only exported files need it)

    if path.suffix != ".pt":
        raise BadInputError(f"{path}: {RUNTIME} ignores counts that are not in a .pt file", "rename the file")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInputError(f"cannot load {path}: {reason}", "export the placement again") from None
    if not isinstance(loaded, dict) or "physical_to_logical_map" in loaded:
        raise BadInputError(f"{path} is not a plain dict of counts", "export the placement again")
    counts = loaded.get("logical_count")
    if not isinstance(counts, torch.Tensor):
        raise BadInputError(f"{path} holds no tensor 'logical_count'", "export the placement again")
    return counts
