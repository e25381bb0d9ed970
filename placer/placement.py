"""placement.json: the decision with every figure it rests on (schema placer.placement/1)."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError, model_validator

from placer.contradiction import contradictions
from placer.document import read_document
from placer.dynamic_section import DynamicSection
from placer.errors import BadInputError
from placer.file_kind import WRITTEN_BY
from placer.gpu_only_section import GpuOnlySection
from placer.output import write_text
from placer.placement_sections import (
    CpuMethod,
    FrontierSection,
    HbmSection,
    HostSection,
    HotPerLayerSection,
    KtSection,
    KvSection,
    PlacedModel,
    SensitivitySection,
    SolverSection,
    TraceSection,
    WholeLayersSection,
)
from placer.predicted_sections import Figures, PredictedSection
from placer.sampling_sections import HeldoutSection, RobustSection
from placer.section import Section
from placer.what_if_section import WhatIfSection
from placer.workload_section import PlannedWorkload, RuntimeSection

if TYPE_CHECKING:
    from placer.model.spec import ModelSpec

SCHEMA = "placer.placement/1"
FORCED = "warning: forced: "
"""How a note begins that says what would have refused the plan."""
_SCHEMA = re.compile(r"^placer\.placement/(\d+)(\.\d+)?$")


class PlacementDocument(Section):
    """The whole of placement.json.

    ``hot`` maps a layer index (as text) to its hot expert ids, hottest first; a layer that is not named has
    none. Numbers are finite, or null with a reason in ``null_reasons`` under their path, such as
    "predicted.ttft_ms.p95".
    """

    model_config = ConfigDict(title="placer.placement/1", populate_by_name=True)

    schema_id: str = Field(alias="schema", pattern=r"^placer\.placement/1(\.[0-9]+)?$")
    placer_version: str
    created: str
    model: PlacedModel
    hardware: dict[str, Any]
    workload: PlannedWorkload
    tp: int = Field(ge=1)
    hbm: HbmSection
    host: HostSection
    kv: KvSection
    cpu_method: CpuMethod
    hot: dict[str, tuple[int, ...]]
    hot_total: int = Field(ge=0)
    predicted: PredictedSection
    baselines: dict[str, Figures]
    heldout: HeldoutSection
    solver: SolverSection
    mem_fraction_static: float | None = Field(default=None, gt=0)
    kt: KtSection | None = None
    profile_sha256: str | None = None
    trace: TraceSection | None = None
    sensitivity: SensitivitySection | None = None
    frontier: tuple[FrontierSection, ...] | None = None
    whole_layers: WholeLayersSection | None = None
    pinned: dict[str, Literal["all", "none"]] | None = None
    mix: dict[str, float] | None = None
    robust: RobustSection | None = None
    hot_per_layer: HotPerLayerSection | None = None
    dynamic: DynamicSection | None = None
    what_if: tuple[WhatIfSection, ...] | None = None
    gpu_only: GpuOnlySection | None = None
    runtime: RuntimeSection | None = None
    notes: tuple[str, ...] = ()
    null_reasons: dict[str, str] = Field(default_factory=dict)

    @property
    def every_expert_hot(self) -> bool:
        """Whether the GPUs hold all experts of all layers."""
        return self.hot_total == len(self.model.layers) * self.model.experts

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_layer_times("predicted", self.predicted)
        for name, figures in self.baselines.items():
            self._check_layer_times(f"baselines.{name}", figures)
        self._check_values()
        if "provenance" not in self.hardware:
            for name, entry in self.hardware.items():
                if isinstance(entry, Mapping) and not entry.get("provenance"):
                    raise ValueError(f"hardware.{name}: says no provenance")
        for contradiction in contradictions(self):
            raise ValueError(contradiction)
        return self

    def _check_layer_times(self, path: str, figures: Figures) -> None:
        times = figures.per_layer_ms
        if times is None:
            return
        if len(times) != len(self.model.layers):
            raise ValueError(
                f"{path}.per_layer_ms: has {len(times)} entries for {len(self.model.layers)} MoE layers"
            )
        if min(times) < 0:
            raise ValueError(f"{path}.per_layer_ms: a time is negative")

    def _check_values(self) -> None:
        if self.sensitivity is None:
            return
        values = self.sensitivity.value_us
        if set(values) != {str(layer) for layer in self.model.layers}:
            raise ValueError("sensitivity.value_us: its layers are not those of model.layers")
        for layer, each in values.items():
            if len(each) != self.model.experts:
                raise ValueError(
                    f"sensitivity.value_us.{layer}: has {len(each)} entries for {self.model.experts} experts"
                )

    @property
    def pins(self) -> dict[int, bool]:
        """Layers that were fixed by hand: whether all of a layer's experts are hot."""
        return {int(layer): place == "all" for layer, place in (self.pinned or {}).items()}

    @property
    def least_hot(self) -> int:
        """Hot experts that every layer that is not pinned had to have."""
        return 0 if self.hot_per_layer is None else self.hot_per_layer.min

    @property
    def most_hot(self) -> int | None:
        """Hot experts that no layer that is not pinned was allowed to exceed, or None."""
        return None if self.hot_per_layer is None else self.hot_per_layer.max

    @property
    def datasheet_cpu(self) -> str | None:
        """The CPU that the cold side was planned for where that was by its datasheet, else None."""
        cpu = self.hardware.get("cpu")
        if not isinstance(cpu, Mapping) or cpu.get("provenance") != "datasheet":
            return None
        return str(cpu.get("name"))

    @property
    def total_experts(self) -> int:
        """Routed experts over all MoE layers."""
        return len(self.model.layers) * self.model.experts

    def hot_mask(self) -> NDArray[np.bool_]:
        """Hot experts: bool [L, E], rows in the order of ``model.layers``."""
        mask = np.zeros((len(self.model.layers), self.model.experts), dtype=np.bool_)
        for row, layer in enumerate(self.model.layers):
            mask[row, list(self.hot.get(str(layer), ()))] = True
        return mask

    def document(self) -> dict[str, Any]:
        """What ``solve --json`` prints: placement.json as plain values. Errors as `render_placement`."""
        plain: dict[str, Any] = json.loads(render_placement(self))
        return plain

    def check_model(self, model: "ModelSpec") -> None:
        """Raise BadInputError unless this placement was made for a model of this shape."""
        made_for = (self.model.layers, self.model.experts, self.model.top_k)
        found = (tuple(model.moe_layers), model.experts, model.top_k)
        if made_for != found:
            raise BadInputError(
                f"the placement was made for {self.model.name} ({_shape(*made_for)}), "
                f"not for {model.name} ({_shape(*found)})",
                "give the checkpoint the placement was solved for",
            )


def _shape(layers: tuple[int, ...], experts: int, top_k: int) -> str:
    return f"{len(layers)} MoE layers from {layers[0]} to {layers[-1]}, {experts} experts, top-{top_k}"


def read_placement(path: Path) -> PlacementDocument:
    """The placement in the file at ``path``.

    Raises
    ------
    BadInputError
        When the file is unreadable or not JSON, of an unknown major version, or invalid; names the field.
    """
    document = read_document(path, what="placement", cure=WRITTEN_BY["placement"])
    if "schema" not in document:
        raise BadInputError(
            f"placement {path} is none: it holds no field schema", "give a file that 'placer solve' wrote"
        )
    schema = document["schema"]
    match = _SCHEMA.match(schema) if isinstance(schema, str) else None
    if match is None:
        raise BadInputError(
            f"placement {path}: field schema is {schema!r:.80}, not {SCHEMA!r}",
            "give a file that 'placer solve' wrote",
        )
    if match.group(1) != SCHEMA.rpartition("/")[2]:
        raise BadInputError(
            f"placement {path}: field schema is {schema!r:.80}; this version of placer reads {SCHEMA!r}",
            "install the placer that wrote it, or solve again",
        )
    try:
        # JSON mode is strict (no "3" for 3, no 1 for true) and still takes arrays as tuples.
        return PlacementDocument.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise BadInputError(
            f"placement {path}: {_first_fault(error)}",
            "correct the field, or write the file again with 'placer solve'",
        ) from None


def _first_fault(error: ValidationError) -> str:
    """The first invalid field and how many more there are, on one line."""
    first, *rest = error.errors(include_url=False)
    message = first["msg"].removeprefix("Value error, ")
    field = ".".join(str(part) for part in first["loc"])
    # A check across fields names its own field in full.
    named = message if first["type"] == "value_error" and ": " in message else f"{field}: {message}"
    return f"field {named}" + (f" (and {len(rest)} more)" if rest else "")


def write_placement(document: PlacementDocument, path: Path) -> None:
    """Write ``document`` to ``path``, whole or not at all.

    Raises
    ------
    BadInputError
        When a number is null without a reason or not finite, or the file cannot be written.
    """
    write_text(path, render_placement(document))


def render_placement(document: PlacementDocument) -> str:
    """``document`` as JSON text: keys in the order of the schema, lists of numbers on one line.

    Raises
    ------
    BadInputError
        When a null has no entry in ``null_reasons`` at its path or above it, or a number is not finite.
    """
    plain = document.model_dump(mode="json", by_alias=True)
    for path in _nulls(plain, ""):
        # A config.json that the document carries keeps the nulls of its checkpoint.
        if not path.startswith("model.config.") and not _has_reason(path, document.null_reasons):
            raise BadInputError(f"placement: {path} is null without a reason", f"add null_reasons[{path!r}]")
    try:
        return _indented(plain, "") + "\n"
    except ValueError:
        raise BadInputError("placement: a number is not finite", "state it as null with a reason") from None


def _nulls(value: Any, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _nulls(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _nulls(inner, f"{path}.{index}")


def _has_reason(path: str, reasons: Mapping[str, str]) -> bool:
    return any(
        reason and (path == above or path.startswith(above + ".")) for above, reason in reasons.items()
    )


def _indented(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        lines = (f"{inner}{json.dumps(key)}: {_indented(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(inner + _indented(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
