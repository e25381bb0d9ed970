"""What a checkpoint's headers say of the model, held against what its config.json implies."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from placer.errors import BadInputError
from placer.model.blueprint import Blueprint
from placer.model.dtype import elements_bytes
from placer.model.module import Module, Split, StoredTensor, stored_tensors
from placer.model.weights import WeightGroup, gpu_dtype, weight_groups

_EXPERT = re.compile(r"(?:^|\.)layers\.(\d{1,9})\.(?:.*\.)?experts\.(?:(\d{1,9})\.)?[^.]+(?:\.[^.]+)?$")
_LAYER = re.compile(r"^model\.layers\.(\d{1,9})\.")
_SHOWN = 3


@dataclass(frozen=True)
class Weighed:
    """Sizes of a model's weights.

    Attributes
    ----------
    groups
        Non-expert weights as a GPU holds them.
    expert_bytes
        Bytes of one routed expert in the checkpoint.
    routed_parameters, other_parameters, mtp_parameters
        Parameters of the routed experts, of everything else, and of the MTP layers.
    mismatches
        Where headers and formulas disagree; empty when sizes come from formulas alone.
    """

    groups: tuple[WeightGroup, ...]
    expert_bytes: int
    routed_parameters: int
    other_parameters: int
    mtp_parameters: int
    mismatches: tuple[str, ...] = ()


@dataclass
class _Tally:
    """Running sums over stored tensors outside the routed experts."""

    expert_format: str
    plain: str
    weights: list[tuple[str, Split, str, tuple[int, ...]]] = field(default_factory=list)
    stored_bytes: Counter[str] = field(default_factory=Counter)
    parameters: Counter[str] = field(default_factory=Counter)

    def add(self, tensor: StoredTensor, weight_class: str, split: Split) -> None:
        dtype = gpu_dtype(tensor, plain=self.plain, expert_format=self.expert_format)
        self.weights.append((weight_class, split, dtype, tensor.shape))
        self.stored_bytes[weight_class] += elements_bytes(tensor.elements, tensor.dtype)
        self.parameters["mtp" if weight_class == "mtp" else "other"] += tensor.parameters


def weigh_by_formula(blueprint: Blueprint) -> Weighed:
    """Sizes that config.json implies."""
    tally = _computed(blueprint)
    return Weighed(
        weight_groups(tally.weights + _copies(blueprint)),
        blueprint.checkpoint_expert_bytes,
        _routed_parameters(blueprint),
        tally.parameters["other"],
        tally.parameters["mtp"],
    )


def weigh_by_headers(blueprint: Blueprint, headers: Iterable[StoredTensor]) -> Weighed:
    """Sizes that the headers state.

    Raises
    ------
    BadInputError
        When the checkpoint lacks parameters of experts that config.json counts, or holds experts that it does
        not.
    """
    modules = {module.name: module for module in blueprint.modules if module.stored}
    tally = _Tally(blueprint.quantization.format, blueprint.quantization.plain)
    experts = _ExpertTally(blueprint)
    found: set[str] = set()
    unknown: list[str] = []
    for header in headers:
        tensor = StoredTensor(_canonical(header.name), header.dtype, header.shape)
        owner = modules.get(tensor.name.rsplit(".", 1)[0])
        if owner is not None:
            found.add(owner.name)
            tally.add(tensor, owner.weight_class, owner.split)
        elif not experts.add(tensor):
            unknown.append(tensor.name)
            tally.add(tensor, _unknown_class(tensor.name, blueprint), Split.REPLICATED)
    experts.check()
    missing = [name for name in modules if name not in found]
    return Weighed(
        weight_groups(tally.weights + _copies(blueprint)),
        experts.most_bytes,
        _routed_parameters(blueprint),
        tally.parameters["other"],
        tally.parameters["mtp"],
        tuple(_mismatches(blueprint, tally, experts, missing, unknown)),
    )


class _ExpertTally:
    """Sums stored tensors of routed experts per MoE layer and expert."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._row = {layer: row for row, layer in enumerate(blueprint.counts.moe_layers)}
        shape = (len(self._row), blueprint.counts.experts)
        self._bytes: npt.NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._parameters: npt.NDArray[np.int64] = np.zeros(shape, dtype=np.int64)

    def add(self, tensor: StoredTensor) -> bool:
        """Count ``tensor`` if it belongs to routed experts; False if it does not."""
        match = _EXPERT.search(tensor.name)
        if match is None or int(match[1]) >= self._blueprint.counts.num_layers:
            return False
        layer, experts = int(match[1]), self._blueprint.counts.experts
        if layer not in self._row:
            raise _contradiction(f"layer {layer} is not a MoE layer", tensor.name)
        fused = match[2] is None
        # The first axis of fused tensors counts experts.
        if (fused and (not tensor.shape or tensor.shape[0] != experts)) or (
            not fused and int(match[2]) >= experts
        ):
            raise _contradiction(f"a layer has {experts} experts", tensor.name)
        at = (self._row[layer], slice(None) if fused else int(match[2]))
        share = experts if fused else 1
        self._bytes[at] += elements_bytes(tensor.elements, tensor.dtype) // share
        self._parameters[at] += tensor.parameters // share
        return True

    def check(self) -> None:
        """Raise BadInputError unless every expert has all its parameters."""
        wanted = self._blueprint.expert_parameters
        wrong = np.argwhere(self._parameters != wanted)
        if len(wrong):
            row, expert = (int(index) for index in wrong[0])
            layer = self._blueprint.counts.moe_layers[row]
            raise BadInputError(
                f"expert {expert} of layer {layer} holds {self._parameters[row, expert]:,} parameters in the "
                f"checkpoint, {wanted:,} by config.json; {len(wrong):,} of {self._parameters.size:,} differ",
                "download the checkpoint again, or give its config.json alone to size it by formula",
            )

    @property
    def most_bytes(self) -> int:
        return int(self._bytes.max())

    @property
    def least_bytes(self) -> int:
        return int(self._bytes.min())


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() else ascii(name)


def _contradiction(said: str, found: str) -> BadInputError:
    return BadInputError(
        f"config.json says {said}, but the checkpoint holds {_shown(found)}",
        "keep config.json and weights of the same model together",
    )


def _routed_parameters(blueprint: Blueprint) -> int:
    return len(blueprint.counts.moe_layers) * blueprint.counts.experts * blueprint.expert_parameters


def _computed(blueprint: Blueprint) -> _Tally:
    tally = _Tally(blueprint.quantization.format, blueprint.quantization.plain)
    for module in blueprint.modules:
        if module.stored:
            for tensor in _tensors(module, blueprint):
                tally.add(tensor, module.weight_class, module.split)
    return tally


def _tensors(module: Module, blueprint: Blueprint) -> list[StoredTensor]:
    return stored_tensors(
        module, blueprint.quantization, block_scale_dtype=blueprint.family.block_scale_dtype
    )


def _copies(blueprint: Blueprint) -> list[tuple[str, Split, str, tuple[int, ...]]]:
    return [
        (module.weight_class, module.split, "BF16", module.shape)
        for module in blueprint.modules
        if not module.stored
    ]


def _canonical(name: str) -> str:
    """``name`` without the prefixes of multimodal wrappers, in the form ``model.layers.3.…``."""
    for prefix in ("model.language_model.", "language_model."):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    if name.startswith(("layers.", "embed_tokens.", "norm.")):
        return f"model.{name}"
    return name


def _unknown_class(name: str, blueprint: Blueprint) -> str:
    layer = _LAYER.match(name)
    beyond = layer is not None and int(layer[1]) >= blueprint.counts.num_layers
    return "mtp" if beyond or name.startswith(("mtp.", "model.mtp.")) else "other"


def _mismatches(
    blueprint: Blueprint, tally: _Tally, experts: _ExpertTally, missing: list[str], unknown: list[str]
) -> Iterable[str]:
    least, most = experts.least_bytes, experts.most_bytes
    if most != blueprint.checkpoint_expert_bytes:
        yield f"expert: {most:,} bytes in headers, {blueprint.checkpoint_expert_bytes:,} computed"
    if least != most:
        yield f"experts differ in size: {least:,} to {most:,} bytes, the largest counts"
    computed = _computed(blueprint).stored_bytes
    for name in sorted(computed.keys() | tally.stored_bytes.keys() - {"other"}):
        if tally.stored_bytes[name] != computed[name]:
            yield f"{name}: {tally.stored_bytes[name]:,} bytes in headers, {computed[name]:,} computed"
    if missing:
        yield f"{len(missing):,} expected modules not stored ({', '.join(map(_shown, missing[:_SHOWN]))})"
    if unknown:
        yield f"{len(unknown):,} stored tensors without a rule ({', '.join(map(_shown, unknown[:_SHOWN]))})"
