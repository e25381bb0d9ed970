"""The hardware of a comparison: one CPU, and as many of one GPU as each row asks for."""

from dataclasses import dataclass, replace

from placer.cpu_datasheet import CpuDatasheet
from placer.datasheet import GpuDatasheet, behind, datasheet_of_device, gpu_datasheet
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.parallelism import Parallelism
from placer.profiler import roofline
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.datasheet_profile import cpu_methods, datasheet_gpu, datasheet_profile
from placer.profiler.profile import Profile
from placer.profiler.profile_use import check_profile_matches

ANY_SHAPE_METHOD = "torch"
"""The CPU method that takes every expert's shape."""


@dataclass(frozen=True)
class ComparedHardware:
    """A profile made at one tensor-parallel size, taken to any other.

    Attributes
    ----------
    profile
        Whose CPU side holds whatever the GPUs are: cold experts are computed once, for all of them.
    gpu
        Whose datasheet costs the GPU side where ``profile`` has none for the size asked.
    cold_problem
        Why the CPU's kernel cannot run the model, and the methods whose kernels can; None where it does.
    """

    model: ModelSpec
    profile: Profile
    gpu: GpuDatasheet
    cold_problem: tuple[str, tuple[str, ...]] | None = None

    def at(self, parallel: Parallelism, served: ModelSpec | None = None) -> Profile:
        """The profile of a server that is spread like this and holds experts on GPUs as ``served`` (None: `model`).

        A GPU that was timed counts at its own size and format alone: experts in another format, or cut otherwise,
        are by datasheet.
        """
        served = served or self.model
        own = self.gpu.name == self.profile.gpu.name and parallel.tp == self.profile.tp
        if own and parallel.ep == 1 and served.gpu_format == self.model.gpu_format:
            return self.profile
        sheet = replace(
            datasheet_gpu(served, self.gpu, parallel.tp),
            usable_bytes=self.usable_bytes,
            hot=roofline.roofline_hot(self.gpu, served, parallel.expert_tp),
        )
        # What surrounds the experts is the same whatever they are held in.
        base = self.profile.gpu.base if own else None
        return replace(self.profile, tp=parallel.tp, gpu=replace(sheet, base=base))

    def timed_problem(self, parallel: Parallelism, served: ModelSpec) -> str | None:
        """Why the profile's timed GPU kernel does not cost the experts of ``served``, or None."""
        kernel = self.profile.gpu.kernel
        if kernel is None or self.at(parallel, served).gpu.kernel is not None:
            return None
        timed = f"{self.model.gpu_format} at tp {self.profile.tp} of {self.profile.gpu.name}"
        return f"not the profile's kernel, which was timed on {timed}"

    def fetch_bytes_per_s(self, gpus: int) -> float:
        """What each of ``gpus`` fetches from host memory at once: its own link, or its share of the memory's speed.

        Of a timed CPU the memory's speed counts as measured where most of its cores read.
        """
        link = self.gpu.pcie_bytes_per_s * roofline.BANDWIDTH_EFFICIENCY
        memory = self._host_bytes_per_s()
        return link if memory is None else min(link, memory / gpus)

    def _host_bytes_per_s(self) -> float | None:
        cpu = self.profile.cpu
        if isinstance(cpu, DatasheetCpu):
            return cpu.bandwidth_bytes_per_s * roofline.BANDWIDTH_EFFICIENCY
        read = [each.bytes_per_s for each in cpu.bandwidth if 2 * each.threads > cpu.machine.usable_cores]
        return max(read, default=None)

    @property
    def usable_bytes(self) -> int:
        """What a process can use of one GPU."""
        same = self.profile.gpu.name == self.gpu.name
        return self.profile.gpu.usable_bytes if same else self.gpu.usable_bytes


def profiled_hardware(model: ModelSpec, profile: Profile, gpu_name: str | None) -> ComparedHardware:
    """The hardware of ``profile``, its GPU replaced by the one called ``gpu_name`` unless that is None.

    Raises
    ------
    BadInputError
        When no such GPU is listed, or the profile's has no datasheet for other numbers of GPUs.
    """
    check_profile_matches(profile, model, tp=profile.tp)
    if gpu_name is not None:
        return ComparedHardware(model, profile, gpu_datasheet(gpu_name))
    name = profile.gpu.name
    try:
        sheet = gpu_datasheet(name)
    except BadInputError:
        found = datasheet_of_device(name)
        if found is None:
            raise BadInputError(
                f"the profile's GPU {name!r:.80} has no datasheet, which other numbers of GPUs need",
                "name the closest one with --gpu NAME (placer hardware --list)",
            ) from None
        sheet = found
    return ComparedHardware(model, profile, sheet)


def datasheet_hardware(
    model: ModelSpec, cpu: CpuDatasheet, gpu_name: str, cpu_method: str | None
) -> ComparedHardware:
    """The hardware of two datasheets; ``cpu_method`` None takes the kernel that SGLang runs by default.

    A model that this kernel cannot run can still be served by GPUs: it is `ComparedHardware.cold_problem` then.

    Raises
    ------
    BadInputError
        When no such GPU is listed, or the kernel that was asked for cannot run the model.
    """
    gpu = behind(gpu_datasheet(gpu_name), cpu.pcie_generation)
    if cpu_method is not None:
        return ComparedHardware(model, datasheet_profile(model, cpu, gpu, method=cpu_method), gpu)
    try:
        return ComparedHardware(model, datasheet_profile(model, cpu, gpu), gpu)
    except BadInputError as error:
        problem = (error.what, cpu_methods(model, cpu))
        return ComparedHardware(
            model, datasheet_profile(model, cpu, gpu, method=ANY_SHAPE_METHOD), gpu, problem
        )
