"""profile.json: the timed kernels, the fitted cost model and the machine they belong to."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from placer.document import dump_document, read_document
from placer.errors import BadInputError
from placer.file_kind import WRITTEN_BY
from placer.output import write_text
from placer.profiler.base_cost import BaseCost
from placer.profiler.calibration import Calibration
from placer.profiler.cost import CostModel, GpuRates, Provenance, SideCost
from placer.profiler.datasheet_cpu import BAND_REASON, CpuSide, DatasheetCpu
from placer.profiler.fit import ErrorFigures
from placer.profiler.profile_fault import profile_fault
from placer.profiler.timing.kernel_profile import KernelProfile
from placer.profiler.uncertainty import DATASHEET_GPU_BAND, DATASHEET_REASON, Band, Uncertainty, error_band

SCHEMA = "placer.profile/1"


@dataclass(frozen=True)
class ProfiledModel:
    """The shapes that were timed; a profile serves any checkpoint that has them."""

    name: str
    config_sha256: str
    hidden_size: int
    expert_intermediate_size: int
    experts: int
    top_k: int


@dataclass(frozen=True)
class GpuProfile:
    """The hot side and the rest of a layer, on one GPU.

    Attributes
    ----------
    name, usable_bytes
        Which GPU, and the memory that a process can use of it.
    provenance
        "measured" when ``kernel`` was timed here, "datasheet" for a roofline.
    source
        Where the datasheet figures come from.
    efficiency
        Assumed factors behind datasheet figures, by name.
    hot
        Cost of the hot side.
    rates
        What the GPU sustains outside the experts, with its own provenance.
    kernel
        The timed kernel, or None.
    base
        The timed rest of a layer; None where it follows from ``rates``.
    """

    name: str
    usable_bytes: int
    provenance: Provenance
    source: str
    efficiency: dict[str, float]
    hot: SideCost
    rates: GpuRates
    kernel: KernelProfile | None
    base: BaseCost | None = None

    @property
    def provenance_text(self) -> str:
        """Origin of hot-side figures, in words."""
        if self.kernel is not None:
            return f"fitted to kernels measured on {self.name} ({self.kernel.method})"
        factors = ", ".join(f"{name} {value:g}" for name, value in self.efficiency.items())
        return f"datasheet roofline of {self.name} (assumed: {factors})"

    @property
    def base_provenance_text(self) -> str:
        """Origin of attention, router and transfer figures, in words."""
        if self.base is not None:
            return (
                f"measured on {self.base.machine} ({self.base.kernels}; parts off by up to {self.base.worst_mape:.0%} "
                "between the sizes timed); transfers from a datasheet, their latency assumed"
            )
        return f"{self.rates.provenance.value} of {self.name}; launch and transfer latencies assumed"


@dataclass(frozen=True)
class ProfileOrigin:
    """Where one side of a merged profile comes from: when, by which version, on which device, in which profile."""

    created: str
    placer_version: str
    device: str
    profile_sha256: str

    def words(self, *, by_datasheet: bool) -> str:
        """How the side was made: nothing was profiled where it is ``by_datasheet``."""
        if by_datasheet:
            return f"taken {self.created} from the datasheet of {self.device}"
        return f"profiled {self.created} on {self.device}"


@dataclass(frozen=True)
class MergedFrom:
    """The origins of both sides of a merged profile."""

    cpu: ProfileOrigin
    gpu: ProfileOrigin


_TIMED, _SHEET = "timed", "datasheet"


def _cpu_side(document: Any) -> str:
    """Which of the two CPU sides ``document`` describes; timed ones do not say."""
    return _SHEET if isinstance(document, dict) and document.get("provenance") == _SHEET else _TIMED


@dataclass(frozen=True)
class Profile:
    """A model's cost on one machine, or on the CPU of one and the GPU of another.

    Attributes
    ----------
    tp
        Tensor-parallel size that the hot side was costed for.
    cpu, gpu
        The cold side, a timed kernel or a datasheet's roofline; the hot side and what surrounds it.
    merged
        Where the sides come from when they were profiled apart, else None.
    calibration
        Factors that a running server's own figures put on the cost model, or None.
    """

    schema: str
    placer_version: str
    created: str
    model: ProfiledModel
    tp: int
    cpu: Annotated[
        Annotated[KernelProfile, Tag(_TIMED)] | Annotated[DatasheetCpu, Tag(_SHEET)], Discriminator(_cpu_side)
    ]
    gpu: GpuProfile
    merged: MergedFrom | None = None
    calibration: Calibration | None = None

    def document(self) -> dict[str, Any]:
        """The profile as plain JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if self.calibration is None:
            # Left out, so that the hash of a profile stays what it was before profiles could hold one.
            del plain["calibration"]
        if not self.gpu.rates.layer_token_us:
            del plain["gpu"]["rates"]["layer_token_us"]
        return plain

    @property
    def sha256(self) -> str:
        """Hash of the whole profile; placements name it."""
        return hashlib.sha256(json.dumps(self.document(), sort_keys=True).encode()).hexdigest()

    def cost_model(self) -> CostModel:
        """Both sides of a layer as `placer.solving` takes them, under the calibration where there is one."""
        cost = self.kernel_cost_model()
        return cost if self.calibration is None else cost.calibrated(self.calibration.factors)

    def kernel_cost_model(self) -> CostModel:
        """What the kernels' measurements and the datasheet say alone, without the calibration."""
        return CostModel(
            self.cpu.cost, self.gpu.hot, self.gpu.rates, self.gpu.base, uncertainty=self.uncertainty
        )

    @property
    def calibration_notes(self) -> tuple[str, ...]:
        """What to say beside anything that `cost_model` predicts: the calibration, and what makes it doubtful."""
        return () if self.calibration is None else (self.calibration.sentence, *self.calibration.warnings)

    @property
    def cpu_by_datasheet(self) -> bool:
        """Whether the CPU's side is a datasheet's roofline."""
        return isinstance(self.cpu, DatasheetCpu)

    @property
    def gpu_by_datasheet(self) -> bool:
        """Whether the hot side is a datasheet's roofline."""
        return self.gpu.provenance is Provenance.DATASHEET

    @property
    def host_memory_bytes(self) -> int | None:
        """RAM of the machine whose CPU was timed; None where the CPU is a datasheet, which says nothing of it."""
        return None if isinstance(self.cpu, DatasheetCpu) else self.cpu.machine.memory_bytes

    @property
    def uncertainty(self) -> Uncertainty:
        """Bands around the parts of `cost_model`: of held-out calls where a side was timed, stated otherwise.

        The rest of a layer is off by its worst part's mean error at sizes between those timed, taken twice.
        """
        cold, cold_reason = _cold_band(self.cpu)
        kernel, base = self.gpu.kernel, self.gpu.base
        hot = None if kernel is None else kernel.report.overall.p90_error
        around = None if base is None else 2 * base.worst_mape
        return Uncertainty(
            cold=cold,
            hot=DATASHEET_GPU_BAND if hot is None else error_band(hot),
            base=DATASHEET_GPU_BAND if around is None else error_band(around),
            reasons={
                "cold": cold_reason,
                "hot": DATASHEET_REASON
                if hot is None
                else f"off by up to {hot:.1%} on nine in ten held-out calls",
                "base": DATASHEET_REASON
                if around is None
                else f"parts off by up to {around / 2:.1%} between the sizes timed, taken twice",
            },
        )

    @property
    def heldout_error(self) -> ErrorFigures | None:
        """Error of the CPU cost model on calls that took no part in its fit; None where it is a datasheet's."""
        return None if isinstance(self.cpu, DatasheetCpu) else self.cpu.report.overall

    def hardware(self) -> dict[str, Any]:
        """The ``hardware`` section of a placement."""
        error, sheet = self.heldout_error, isinstance(self.cpu, DatasheetCpu)
        return {
            "cpu": {
                "name": self.cpu.device,
                "threads": self.cpu.threads,
                "numa_nodes": self.cpu.numa_nodes,
                "memory_bytes": self.host_memory_bytes,
                "kernel": self.cpu.backend if isinstance(self.cpu, DatasheetCpu) else self.cpu.variant,
                "method": self.cpu.method,
                "heldout_mape": None if error is None else error.mape,
                "provenance": Provenance.DATASHEET.value if sheet else Provenance.MEASURED.value,
                **({"source": self.cpu.source} if isinstance(self.cpu, DatasheetCpu) else {}),
            },
            "gpu": {
                "name": self.gpu.name,
                "usable_bytes": self.gpu.usable_bytes,
                "source": self.gpu.source,
                "provenance": self.gpu.provenance.value,
            },
        }

    def hardware_null_reasons(self) -> dict[str, str]:
        """Why figures of `hardware` are null, by their path in a placement."""
        if not isinstance(self.cpu, DatasheetCpu):
            return {}
        return {
            "hardware.cpu.memory_bytes": "a datasheet does not say how much memory is installed",
            "hardware.cpu.heldout_mape": "the CPU's side is a datasheet's roofline: no call was timed",
        }


def _cold_band(cpu: CpuSide) -> tuple[Band, str]:
    """How far the CPU's side may be off, and why."""
    if isinstance(cpu, DatasheetCpu):
        return cpu.band, BAND_REASON
    error = cpu.report.overall.p90_error
    return error_band(error), f"off by up to {error:.1%} on nine in ten held-out calls"


PROFILE_TYPE = TypeAdapter(Profile)
"""Reads and describes profiles."""


def read_profile(path: Path) -> Profile:
    """The profile in the file at ``path``.

    Raises
    ------
    BadInputError
        When the file is unreadable, of another schema, or holds a cost model that is not usable.
    """
    document = read_document(path, what="profile", cure=WRITTEN_BY["profile"])
    if "schema" not in document:
        raise BadInputError(
            f"profile {path} is none: it holds no field schema", "give a file that 'placer profile' wrote"
        )
    if document.get("schema") != SCHEMA:
        raise BadInputError(
            f"profile {path}: field schema is {document.get('schema')!r:.80}, not {SCHEMA!r}",
            "give a file that this version's 'placer profile' wrote",
        )
    try:
        # JSON mode is strict (no "3" for 3, no "nan") and still takes arrays as tuples.
        profile = PROFILE_TYPE.validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"] if part not in (_TIMED, _SHEET))
        raise BadInputError(
            f"profile {path}: field {field}: {first['msg']}", "run 'placer profile' again"
        ) from None
    shape = profile.cpu.shape
    made = (profile.model.expert_intermediate_size, profile.model.experts, profile.model.top_k)
    if (shape.expert_intermediate_size, shape.experts, shape.top_k) != made:
        raise BadInputError(
            f"profile {path}: the CPU kernel was timed at other shapes than model names",
            "run 'placer profile' again, or put two profiles together with 'placer profile merge'",
        )
    if fault := profile_fault(profile):
        raise BadInputError(f"profile {path}: {fault}", "run 'placer profile' again")
    if profile.calibration is not None and (wrong := profile.calibration.fault):
        raise BadInputError(f"profile {path}: field calibration: {wrong}", "run 'placer calibrate' again")
    return profile


def write_profile(profile: Profile, path: Path) -> None:
    """Write ``profile`` as JSON, whole or not at all."""
    write_text(path, dump_document(profile.document()))
