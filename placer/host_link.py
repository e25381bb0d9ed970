"""The link over which a GPU reads expert weights from host memory."""

from dataclasses import dataclass

from placer.datasheet import GPU_NAMES, GpuDatasheet, datasheet_of_device, gpu_datasheet
from placer.profiler.profile import Profile
from placer.profiler.roofline import BANDWIDTH_EFFICIENCY


@dataclass(frozen=True)
class HostLink:
    """Bytes per second from host memory to one GPU, and where the figure comes from."""

    bytes_per_s: float
    origin: str


def host_link(profile: Profile) -> HostLink | None:
    """The link of the profile's GPU by its datasheet; None for a GPU that no datasheet is known of."""
    sheet = sheet_of(profile)
    if sheet is None:
        return None
    return HostLink(
        sheet.pcie_bytes_per_s * BANDWIDTH_EFFICIENCY,
        f"datasheet: {BANDWIDTH_EFFICIENCY:.0%} (assumed) of {sheet.name}'s x16 peak of "
        f"{sheet.pcie_bytes_per_s / 1e9:g} GB/s",
    )


def sheet_of(profile: Profile) -> GpuDatasheet | None:
    """The datasheet of the profile's GPU, by the name of the datasheet or by what CUDA calls it."""
    name = profile.gpu.name
    return gpu_datasheet(name) if name.lower() in GPU_NAMES else datasheet_of_device(name)
