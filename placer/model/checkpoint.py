"""What a checkpoint's headers say of the model, held against what its config.json implies."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from placer.errors import BadInputError
from placer.model.blueprint import Blueprint
from placer.model.dtype import elements_bytes
from placer.model.module import Split, StoredTensor
from placer.model.storage import stored_tensors, tensor_parameters
from placer.model.weights import Weight, WeightGroup, gpu_dtype, weight_groups

_WRAPPERS = r"(?:(?:model\.|language_model\.){0,2})"
_FUSED = r"(?:(?:gate_up|gate|up|down)_proj(?:_[a-z]+)?|(?:input|output)_linear)"
_MATRICES = ("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3")
"""Matrices of an expert under every name in use; a checkpoint may spell them unlike its family."""
_LAYER = re.compile(r"^model\.layers\.(\d{1,9})\.")
_SHOWN = 3
_MAX_UNKNOWN = 20_000
"""Vision towers and the like have a few thousand tensors."""


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
    bits: int = 4
    weights: list[Weight] = field(default_factory=list)
    stored_bytes: Counter[str] = field(default_factory=Counter)
    parameters: Counter[str] = field(default_factory=Counter)

    def add(
        self, tensor: StoredTensor, weight_class: str, split: Split, heads: tuple[int, int] | None = None
    ) -> None:
        dtype = gpu_dtype(tensor, plain=self.plain, expert_format=self.expert_format)
        self.weights.append((weight_class, split, dtype, tensor.shape, heads))
        self.stored_bytes[weight_class] += elements_bytes(tensor.elements, tensor.dtype)
        counted = "mtp" if weight_class == "mtp" else "other"
        self.parameters[counted] += tensor_parameters(tensor, self.bits)


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
    tally = _tally(blueprint)
    experts = _ExpertTally(blueprint)
    drafting = _MtpExperts(blueprint)
    found: set[str] = set()
    unknown: list[str] = []
    for header in headers:
        if experts.add(header):
            continue
        tensor = StoredTensor(canonical_name(header.name), header.dtype, header.shape)
        owner = modules.get(tensor.name) or modules.get(tensor.name.rpartition(".")[0])
        if owner is not None:
            found.add(owner.name)
            tally.add(tensor, owner.weight_class, owner.split, owner.heads)
        elif (split := drafting.split(tensor)) is not None:
            tally.add(tensor, "mtp", split)
        else:
            unknown.append(tensor.name)
            if len(unknown) > _MAX_UNKNOWN:
                raise BadInputError(
                    f"more than {_MAX_UNKNOWN:,} tensors of the checkpoint belong to nothing that config.json "
                    f"describes, {_shown(unknown[0])[:80]} the first",
                    "keep config.json and weights of the same model together",
                )
            tally.add(tensor, _unknown_class(tensor.name, blueprint), Split.REPLICATED)
    experts.check()
    missing = [name for name in modules if name not in found and not drafting.holds(name)]
    return Weighed(
        weight_groups(tally.weights + _copies(blueprint)),
        experts.most_bytes,
        _routed_parameters(blueprint),
        tally.parameters["other"],
        tally.parameters["mtp"],
        tuple(_mismatches(blueprint, tally, experts, missing, unknown)),
    )


class _MtpExperts:
    """Experts of MTP layers that a checkpoint fuses into one tensor per matrix."""

    def __init__(self, blueprint: Blueprint) -> None:
        mtp, counts = blueprint.family.mtp, blueprint.counts
        layers = range(counts.mtp_layers) if mtp is not None and not mtp.dense else range(0)
        self._experts = counts.experts
        self._places = tuple(
            f"{mtp.name(counts.num_layers, layer)}.{blueprint.family.experts.at}."
            for layer in layers
            if mtp is not None
        )
        self._found: set[str] = set()

    def split(self, tensor: StoredTensor) -> Split | None:
        """How tp cuts ``tensor``, None when it holds no fused experts."""
        place = next((place for place in self._places if tensor.name.startswith(place)), None)
        if place is None or not tensor.shape or tensor.shape[0] != self._experts:
            return None
        matrix = tensor.name.removeprefix(place)
        if not re.match(_FUSED, matrix):
            return None
        self._found.add(place)
        return Split.INPUT if matrix.startswith(("down", "output")) else Split.OUTPUT

    def holds(self, module: str) -> bool:
        """Whether ``module`` is an expert of a layer whose experts are fused."""
        return module.startswith(tuple(self._found))


class _ExpertTally:
    """Sums stored tensors of routed experts per MoE layer and expert."""

    def __init__(self, blueprint: Blueprint) -> None:
        counts = blueprint.counts
        self._blueprint = blueprint
        self._row = {layer: row for row, layer in enumerate(counts.moe_layers)}
        self._bytes = [0] * (len(self._row) * counts.experts)
        self._parameters = list(self._bytes)
        self._bits = blueprint.packed_bits
        at = re.escape(blueprint.family.experts.at)
        named = "|".join(map(re.escape, {*blueprint.family.experts.matrices, *_MATRICES}))
        self._match = re.compile(
            rf"{_WRAPPERS}layers\.(\d{{1,9}})\.{at}\.(?:(\d{{1,9}})\.(?:{named})(\.[^.]+)?|{_FUSED}(\.[^.]+)?)"
        ).fullmatch
        # Bytes and parameters by everything that decides them: most tensors are alike.
        self._known: dict[tuple[str | None, str, tuple[int, ...]], tuple[int, int]] = {}

    def add(self, tensor: StoredTensor) -> bool:
        """Count ``tensor`` if it belongs to routed experts; False if it does not."""
        match = self._match(tensor.name)
        if match is None:
            return False
        layer, number, kind, _ = match.groups()
        if number is None:
            return self._add_fused(tensor, int(layer))
        row, expert, experts = self._row.get(int(layer)), int(number), self._blueprint.counts.experts
        if row is None:
            return self._outside(tensor, int(layer))
        if expert >= experts:
            raise _contradiction(f"a layer has {experts} experts", tensor.name)
        key = (kind, tensor.dtype, tensor.shape)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._sizes(tensor)
        place = row * experts + expert
        self._bytes[place] += known[0]
        self._parameters[place] += known[1]
        return True

    def _add_fused(self, tensor: StoredTensor, layer: int) -> bool:
        row, experts = self._row.get(layer), self._blueprint.counts.experts
        if row is None:
            return self._outside(tensor, layer)
        # The first axis of fused tensors counts experts.
        if not tensor.shape or tensor.shape[0] != experts:
            raise _contradiction(f"a layer has {experts} experts", tensor.name)
        tensor_bytes, parameters = self._sizes(tensor)
        for place in range(row * experts, (row + 1) * experts):
            self._bytes[place] += tensor_bytes // experts
            self._parameters[place] += parameters // experts
        return True

    def _outside(self, tensor: StoredTensor, layer: int) -> bool:
        if layer < self._blueprint.counts.num_layers:
            raise _contradiction(f"layer {layer} is not a MoE layer", tensor.name)
        return False

    def _sizes(self, tensor: StoredTensor) -> tuple[int, int]:
        return elements_bytes(tensor.elements, tensor.dtype), tensor_parameters(tensor, self._bits)

    def check(self) -> None:
        """Raise BadInputError unless every expert has all its parameters."""
        wanted, experts = self._blueprint.expert_parameters, self._blueprint.counts.experts
        wrong = [place for place, held in enumerate(self._parameters) if held != wanted]
        if wrong:
            row, expert = divmod(wrong[0], experts)
            layer = self._blueprint.counts.moe_layers[row]
            raise BadInputError(
                f"expert {expert} of layer {layer} holds {self._parameters[wrong[0]]:,} parameters in the "
                f"checkpoint, {wanted:,} by config.json; {len(wrong):,} of {len(self._parameters):,} differ",
                "download the checkpoint again, or give its config.json alone to size it by formula",
            )

    @property
    def most_bytes(self) -> int:
        return max(self._bytes)

    @property
    def least_bytes(self) -> int:
        return min(self._bytes)


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() else ascii(name)


def _contradiction(said: str, found: str) -> BadInputError:
    return BadInputError(
        f"config.json says {said}, but the checkpoint holds {_shown(found)}",
        "keep config.json and weights of the same model together",
    )


def _routed_parameters(blueprint: Blueprint) -> int:
    return len(blueprint.counts.moe_layers) * blueprint.counts.experts * blueprint.expert_parameters


def _tally(blueprint: Blueprint) -> _Tally:
    return _Tally(blueprint.expert_format, blueprint.quantization.plain, blueprint.packed_bits)


def _computed(blueprint: Blueprint) -> _Tally:
    tally = _tally(blueprint)
    for module in blueprint.modules:
        if module.stored:
            for tensor in stored_tensors(module, blueprint.quantization, blueprint.naming):
                tally.add(tensor, module.weight_class, module.split, module.heads)
    return tally


def _copies(blueprint: Blueprint) -> list[Weight]:
    return [
        (module.weight_class, module.split, "BF16", module.shape, module.heads)
        for module in blueprint.modules
        if not module.stored
    ]


def canonical_name(name: str) -> str:
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
