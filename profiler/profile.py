"""profile.json: the timed kernels, the fitted cost model and the machine they belong to."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from placer.document import dump_document, read_document
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.output import write_text
from placer.profiler.base_cost import BaseCost
from placer.profiler.calibration import Calibration
from placer.profiler.cost import CostModel, GpuRates, Provenance, SideCost
from placer.profiler.fit import ErrorFigures
from placer.profiler.timing.kernel_profile import KernelProfile
from placer.profiler.uncertainty import DATASHEET_GPU_BAND, DATASHEET_REASON, Uncertainty, error_band

SCHEMA = "placer.profile/1"
MOST_US = 1e9
"""No coefficient of a usable cost model reaches a quarter of an hour."""
MOST_THREADS = 4096


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


@dataclass(frozen=True)
class MergedFrom:
    """The origins of both sides of a merged profile."""

    cpu: ProfileOrigin
    gpu: ProfileOrigin


@dataclass(frozen=True)
class Profile:
    """A model's cost on one machine, or on the CPU of one and the GPU of another.

    Attributes
    ----------
    tp
        Tensor-parallel size that the hot side was costed for.
    cpu, gpu
        The cold side's timed kernel; the hot side and what surrounds it.
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
    cpu: KernelProfile
    gpu: GpuProfile
    merged: MergedFrom | None = None
    calibration: Calibration | None = None

    def document(self) -> dict[str, Any]:
        """The profile as plain JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if self.calibration is None:
            # Left out, so that the hash of a profile stays what it was before profiles could hold one.
            del plain["calibration"]
        return plain

    @property
    def sha256(self) -> str:
        """Hash of the whole profile; placements name it."""
        return hashlib.sha256(json.dumps(self.document(), sort_keys=True).encode()).hexdigest()

    def cost_model(self) -> CostModel:
        """Both sides of a layer as `placer.solve` takes them, under the calibration where there is one."""
        cost = self.kernel_cost_model()
        return cost if self.calibration is None else cost.calibrated(self.calibration.factors)

    def kernel_cost_model(self) -> CostModel:
        """What the kernels' measurements and the datasheet say alone, without the calibration."""
        return CostModel(self.cpu.cost, self.gpu.hot, self.gpu.rates, self.gpu.base)

    @property
    def calibration_notes(self) -> tuple[str, ...]:
        """What to say beside anything that `cost_model` predicts: the calibration, and what makes it doubtful."""
        return () if self.calibration is None else (self.calibration.sentence, *self.calibration.warnings)

    @property
    def host_memory_bytes(self) -> int:
        """RAM of the machine whose CPU was timed."""
        return self.cpu.machine.memory_bytes

    @property
    def uncertainty(self) -> Uncertainty:
        """Bands around the parts of `cost_model`: of held-out calls where a side was timed, stated otherwise.

        The rest of a layer is off by its worst part's mean error at sizes between those timed, taken twice.
        """
        cold = self.heldout_error.p90_error
        kernel, base = self.gpu.kernel, self.gpu.base
        hot = None if kernel is None else kernel.report.overall.p90_error
        around = None if base is None else 2 * base.worst_mape
        return Uncertainty(
            cold=error_band(cold),
            hot=DATASHEET_GPU_BAND if hot is None else error_band(hot),
            base=DATASHEET_GPU_BAND if around is None else error_band(around),
            reasons={
                "cold": f"off by up to {cold:.1%} on nine in ten held-out calls",
                "hot": DATASHEET_REASON
                if hot is None
                else f"off by up to {hot:.1%} on nine in ten held-out calls",
                "base": DATASHEET_REASON
                if around is None
                else f"parts off by up to {around / 2:.1%} between the sizes timed, taken twice",
            },
        )

    @property
    def heldout_error(self) -> ErrorFigures:
        """Error of the CPU cost model on calls that took no part in its fit."""
        return self.cpu.report.overall

    def hardware(self) -> dict[str, Any]:
        """The ``hardware`` section of a placement."""
        return {
            "cpu": {
                "name": self.cpu.machine.cpu,
                "threads": self.cpu.threads,
                "numa_nodes": self.cpu.numa_nodes,
                "memory_bytes": self.cpu.machine.memory_bytes,
                "kernel": self.cpu.variant,
                "method": self.cpu.method,
                "heldout_mape": self.heldout_error.mape,
                "provenance": "measured",
            },
            "gpu": {
                "name": self.gpu.name,
                "usable_bytes": self.gpu.usable_bytes,
                "source": self.gpu.source,
                "provenance": self.gpu.provenance.value,
            },
        }


_ADAPTER = TypeAdapter(Profile)


def read_profile(path: Path) -> Profile:
    """The profile in the file at ``path``.

    Raises
    ------
    BadInputError
        When the file is unreadable, of another schema, or holds a cost model that is not usable.
    """
    document = read_document(path, what="profile", cure="give a file that 'placer profile' wrote")
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
        profile = _ADAPTER.validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
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
    for name, side in (("cpu.cost", profile.cpu.cost), ("gpu.hot", profile.gpu.hot)):
        if fault := _fault(side):
            raise BadInputError(f"profile {path}: field {name}: {fault}", "run 'placer profile' again")
    if profile.gpu.base is not None and (fault := profile.gpu.base.fault(profile.tp)):
        raise BadInputError(f"profile {path}: field gpu.base: {fault}", "run 'placer profile' again")
    if profile.calibration is not None and (fault := profile.calibration.fault):
        raise BadInputError(f"profile {path}: field calibration: {fault}", "run 'placer calibrate' again")
    rates = profile.gpu.rates
    latencies = (rates.layer_call_us, rates.transfer_call_us, rates.transfer_token_us)
    usable = (
        min(profile.gpu.usable_bytes, profile.tp) >= 1
        and min(rates.bytes_per_s, rates.bf16_flops) > 0
        and all(0 <= latency <= MOST_US for latency in latencies)
        and 1 <= profile.cpu.threads <= MOST_THREADS
        and 1 <= profile.cpu.numa_nodes <= MOST_THREADS
        and profile.cpu.machine.memory_bytes >= 1
    )
    if not usable:
        raise BadInputError(
            f"profile {path}: a rate, latency, thread count or memory size is out of range",
            "run 'placer profile' again",
        )
    return profile


def _fault(side: SideCost) -> str | None:
    """What makes a cost model unusable, or None."""
    if not side.regimes:
        return "has no regime"
    expected = 1
    for regime in side.regimes:
        if regime.min_tokens != expected:
            return f"a regime starts at {regime.min_tokens} tokens, expected {expected}"
        if regime.tile < 1 or len(regime.residue_us) != regime.tile:
            return f"tile {regime.tile} with {len(regime.residue_us)} residues"
        parts = (regime.fixed_us, regime.token_us, regime.expert_us, regime.tile_us, regime.heaviest_factor)
        idle = (regime.idle_us or 0.0, regime.idle_token_us)
        if not all(0 <= part <= MOST_US for part in (*parts, *idle, regime.floor_us, *regime.residue_us)):
            return f"a coefficient is not between 0 and {MOST_US:g}"
        expected = (regime.max_tokens or 0) + 1
    if side.regimes[-1].max_tokens is not None:
        return "no regime covers large calls"
    return None


def write_profile(profile: Profile, path: Path) -> None:
    """Write ``profile`` as JSON, whole or not at all."""
    write_text(path, dump_document(profile.document()))


@dataclass(frozen=True)
class ProfileUse:
    """What the server of a plan will run, where its profile must agree.

    Attributes
    ----------
    threads
        Kernel threads (``--kt-cpuinfer``), or None for the profile's.
    cpu_method
        CPU method, or None for the profile's.
    force
        Take a profile of other shapes, tensor-parallel size or threads, or with a large held-out error, all the
        same; a placement and its export keep the profiled threads. Never of another method: a plan timed with
        one is not exported for another.
    """

    threads: int | None = None
    cpu_method: str | None = None
    force: bool = False


AS_PROFILED = ProfileUse()


def check_profile_matches(
    profile: Profile, model: ModelSpec, *, tp: int, use: ProfileUse = AS_PROFILED
) -> tuple[str, ...]:
    """What does not match and was forced, one sentence each.

    Raises
    ------
    BadInputError
        When ``profile`` was made at other shapes, another tensor-parallel size or other threads than the plan
        needs and this is not forced, or with another CPU method.
    """
    if use.cpu_method not in (None, profile.cpu.method):
        raise BadInputError(
            f"the profile timed {profile.cpu.method}, the server is to run {use.cpu_method}",
            f"profile {use.cpu_method} on the server",
        )
    mismatches = _mismatches(profile, model, tp, use.threads)
    if mismatches and not use.force:
        raise BadInputError(*mismatches[0])
    forced = [what for what, _ in mismatches]
    if use.threads not in (None, profile.cpu.threads):
        forced[-1] += f"; the export keeps {profile.cpu.threads}, so change --kt-cpuinfer by hand"
    return tuple(forced)


MOST_MAPE = 0.3
"""Held-out error above which a plan would follow noise: more than the best placement gains over the runtime's
default on most traces (20 % to 350 %)."""


def check_profile_error(profile: Profile, *, force: bool = False) -> tuple[str, ...]:
    """What is wrong with the fits of ``profile`` and was forced, one sentence each.

    Raises
    ------
    BadInputError
        When a side's held-out error exceeds `MOST_MAPE` and this is not forced.
    """
    sides = [("CPU", profile.cpu.report.overall.mape)]
    if profile.gpu.kernel is not None:
        sides.append(("GPU", profile.gpu.kernel.report.overall.mape))
    found = tuple(
        f"the {side} cost model is off by {mape:.0%} on held-out calls, {MOST_MAPE:.0%} is the most to plan with"
        for side, mape in sides
        if mape > MOST_MAPE
    )
    if found and not force:
        raise BadInputError(
            found[0], "run 'placer profile' again on an idle machine and for longer, or add --force-profile"
        )
    return found


def _mismatches(profile: Profile, model: ModelSpec, tp: int, threads: int | None) -> list[tuple[str, str]]:
    """(what does not match, what to do about it)."""
    made, found = profile.model, []
    for name, timed, wanted in (
        ("hidden size", made.hidden_size, model.hidden_size),
        ("expert width", made.expert_intermediate_size, model.expert_intermediate_size),
        ("experts per layer", made.experts, model.experts),
        ("top-k", made.top_k, model.top_k),
    ):
        if timed != wanted:
            found.append(
                (
                    f"the profile was made for {made.name} with {name} {timed}, {model.name} has {wanted}",
                    f"run 'placer profile --model DIR' for {model.name}",
                )
            )
    if profile.tp != tp:
        found.append(
            (
                f"the profile was made for tp {profile.tp}, not {tp}",
                f"run 'placer profile' again with --tp {tp}",
            )
        )
    if threads not in (None, profile.cpu.threads):
        found.append(
            (
                f"the profile was made with {profile.cpu.threads} CPU threads, the server is to run {threads}",
                f"run 'placer profile' again with --threads {threads}, or leave --threads out",
            )
        )
    return found
