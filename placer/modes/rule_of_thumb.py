"""The sizing rule that people quote, total parameters × bytes × 1.2, beside the exact ledger."""

import math
from dataclasses import dataclass

from placer.hbm import WEIGHT_CLASSES
from placer.model.spec import ModelSpec
from placer.modes.memory import fewest_gpus
from placer.modes.mode import Mode
from placer.modes.request import CompareRequest
from placer.modes.served_experts import served_model

FACTOR = 1.2
"""What the rule adds for everything beside weights: KV, activations, the runtime."""


@dataclass(frozen=True)
class ExactSize:
    """The fewest GPUs that hold the model with all its experts, and what they hold together.

    ``gpus`` is None, and bytes too, where no number up to `MOST_GPUS` does. ``weights_bytes`` is what of
    ``total_bytes`` the model's weights take.
    """

    gpus: int | None
    spread: str | None
    total_bytes: int | None
    weights_bytes: int | None


@dataclass(frozen=True)
class RuleOfThumb:
    """The rule and the ledger for one size of GPU.

    Attributes
    ----------
    parameters, parameter_bytes
        What the rule multiplies: parameters without MTP layers, and nominal bytes of one (FP8 1, BF16 2, 4-bit 0.5).
    gpu_bytes
        What a GPU is sold as, or what of it may be used.
    exact
        The exact ledger for one running request of the workload, or the KV tokens asked for.
    """

    parameters: int
    parameter_bytes: float
    gpu_bytes: int
    exact: ExactSize

    @property
    def rule_bytes(self) -> int:
        """Parameters × bytes × 1.2."""
        return int(self.parameters * self.parameter_bytes * FACTOR)

    @property
    def rule_gpus(self) -> int:
        """GPUs of ``gpu_bytes`` that the rule asks for."""
        return math.ceil(self.rule_bytes / self.gpu_bytes)


def rule_of_thumb(model: ModelSpec, request: CompareRequest, gpu_bytes: int) -> RuleOfThumb:
    """The rule for GPUs of ``gpu_bytes``, and the exact ledger under the budget of ``request``."""
    served = served_model(model, Mode.GPU_ONLY)
    return RuleOfThumb(
        model.parameters["total"], nominal_bytes(served), gpu_bytes, exact_size(model, request)
    )


def nominal_bytes(model: ModelSpec) -> float:
    """Bytes of an expert's parameter on the GPU as the rule counts them: the nearest of 0.5, 1, 2 and 4."""
    weights = 3 * model.expert_hidden_size * model.expert_intermediate_size
    exact = model.expert_bytes(model.expert_format["gpu"]) / weights
    return min((0.5, 1.0, 2.0, 4.0), key=lambda nominal: abs(math.log(exact / nominal)))


def exact_size(model: ModelSpec, request: CompareRequest) -> ExactSize:
    """The fewest GPUs on which GPU-only serving of the smallest server fits: 1, 2, 4, and so on."""
    memory = fewest_gpus(model, Mode.GPU_ONLY, None, request)
    if memory is None:
        return ExactSize(None, None, None, None)
    gpus = memory.way.parallel.gpus
    ledger = memory.least.ledger()
    weights = sum(ledger.lines[name] for name in (*WEIGHT_CLASSES, "hot_experts"))
    return ExactSize(gpus, memory.way.spread, gpus * ledger.needed_bytes, gpus * weights)
