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
    routed = len(blueprint.counts.moe_layers) * blueprint.counts.experts * blueprint.expert_parameters
    return Weighed(
        weight_groups(tally.weights + _copies(blueprint)),
        blueprint.checkpoint_expert_bytes,
        routed,
        tally.parameters["other"],
        tally.parameters["mtp"],
    )


def weigh_by_headers(blueprint: Blueprint, headers: Iterable[StoredTensor]) -> Weighed:
    """Sizes that the headers state.

    Raises
    ------
    BadInputError
        When the checkpoint lacks experts that config.json counts, or holds experts that it does not.
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
    missing = [name for name in modules if name not in found]
    return Weighed(
        weight_groups(tally.weights + _copies(blueprint)),
        experts.bytes_each(),
        experts.parameters,
        tally.parameters["other"],
        tally.parameters["mtp"],
        tuple(_mismatches(blueprint, tally, experts, missing, unknown)),
    )


class _ExpertTally:
    """Sums bytes of routed experts over stored tensors, per MoE layer and expert."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._row = {layer: row for row, layer in enumerate(blueprint.counts.moe_layers)}
        self._bytes: npt.NDArray[np.int64] = np.zeros(
            (len(self._row), blueprint.counts.experts), dtype=np.int64
        )
        self.parameters = 0

    def add(self, tensor: StoredTensor) -> bool:
        """Count ``tensor`` if it belongs to routed experts; False if it does not."""
        match = _EXPERT.search(tensor.name)
        if match is None or int(match[1]) >= self._blueprint.counts.num_layers:
            return False
        layer, experts = int(match[1]), self._blueprint.counts.experts
        if layer not in self._row:
            raise _contradiction(f"layer {layer} is not a MoE layer", tensor.name)
        size = elements_bytes(tensor.elements, tensor.dtype)
        if match[2] is not None:
            if int(match[2]) >= experts:
                raise _contradiction(f"a layer has {experts} experts", tensor.name)
            self._bytes[self._row[layer], int(match[2])] += size
        else:
            # Fused experts: the first axis counts them.
            if not tensor.shape or tensor.shape[0] != experts:
                raise _contradiction(f"a layer has {experts} experts", tensor.name)
            self._bytes[self._row[layer]] += size // experts
        self.parameters += tensor.parameters
        return True

    def bytes_each(self) -> int:
        """Bytes of the largest expert; raises BadInputError when one has no tensors."""
        absent = np.argwhere(self._bytes == 0)
        if len(absent):
            row, expert = (int(index) for index in absent[0])
            raise BadInputError(
                f"the checkpoint holds no tensor for {len(absent):,} of {self._bytes.size:,} experts, first: "
                f"expert {expert} of layer {self._blueprint.counts.moe_layers[row]}",
                "download the checkpoint again, or give its config.json alone to size it by formula",
            )
        return int(self._bytes.max())

    def least_bytes(self) -> int:
        return int(self._bytes.min())


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() else ascii(name)


def _contradiction(said: str, found: str) -> BadInputError:
    return BadInputError(
        f"config.json says {said}, but the checkpoint holds {_shown(found)}",
        "keep config.json and weights of the same model together",
    )


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
    if (each := experts.bytes_each()) != blueprint.checkpoint_expert_bytes:
        yield f"expert: {each:,} bytes in headers, {blueprint.checkpoint_expert_bytes:,} computed"
    if (least := experts.least_bytes()) != each:
        yield f"experts differ in size: {least:,} to {each:,} bytes, the largest counts"
    computed = _computed(blueprint).stored_bytes
    for name in sorted(computed.keys() | tally.stored_bytes.keys() - {"other"}):
        if tally.stored_bytes[name] != computed[name]:
            yield f"{name}: {tally.stored_bytes[name]:,} bytes in headers, {computed[name]:,} computed"
    if missing:
        yield f"{len(missing):,} expected modules not stored ({', '.join(map(_shown, missing[:_SHOWN]))})"
    if unknown:
        yield f"{len(unknown):,} stored tensors without a rule ({', '.join(map(_shown, unknown[:_SHOWN]))})"
