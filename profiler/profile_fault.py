"""What makes a profile that was read from a file unusable, although every field has its type."""

from typing import TYPE_CHECKING

from placer.profiler.cost import SideCost
from placer.profiler.datasheet_cpu import DatasheetCpu

if TYPE_CHECKING:
    from placer.profiler.profile import Profile

MOST_US = 1e9
"""No coefficient of a usable cost model reaches a quarter of an hour."""
MOST_THREADS = 4096


def profile_fault(profile: "Profile") -> str | None:
    """The first field that no usable profile has so, in words, or None."""
    for name, side in (("cpu.cost", profile.cpu.cost), ("gpu.hot", profile.gpu.hot)):
        if fault := _side_fault(side):
            return f"field {name}: {fault}"
    if profile.gpu.base is not None and (fault := profile.gpu.base.fault(profile.tp)):
        return f"field gpu.base: {fault}"
    if isinstance(profile.cpu, DatasheetCpu) and (fault := profile.cpu.fault):
        return f"field cpu: {fault}"
    rates = profile.gpu.rates
    latencies = (
        rates.layer_call_us,
        rates.layer_token_us,
        rates.transfer_call_us,
        rates.transfer_token_us,
    )
    usable = (
        min(profile.gpu.usable_bytes, profile.tp) >= 1
        and min(rates.bytes_per_s, rates.bf16_flops) > 0
        and all(0 <= latency <= MOST_US for latency in latencies)
        and 1 <= profile.cpu.threads <= MOST_THREADS
        and 1 <= profile.cpu.numa_nodes <= MOST_THREADS
        and (profile.host_memory_bytes is None or profile.host_memory_bytes >= 1)
    )
    return None if usable else "a rate, latency, thread count or memory size is out of range"


def _side_fault(side: SideCost) -> str | None:
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
