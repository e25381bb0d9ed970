"""Profiles made from a known cost model instead of a timed kernel."""

import numpy as np

from placer.datasheet import gpu_datasheet
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cost import GpuRates, Provenance, Regime, SideCost
from placer.profiler.fit import call_us
from placer.profiler.profile import SCHEMA, GpuProfile, Profile, ProfiledModel
from placer.profiler.timing.grid import grid_calls, zipf_calls
from placer.profiler.timing.kernel_profile import KernelProfile, kernel_profile
from placer.profiler.timing.machine import Arithmetic, Bandwidth, Machine
from placer.profiler.timing.processor_time import ProcessorTime
from placer.profiler.timing.samples import LoadedKernel, Samples
from placer.profiler.timing.spec import CampaignSpec

SHAPE = ExpertShape(hidden_size=256, expert_intermediate_size=128, experts=8, top_k=2)
"""`tiny_model`'s."""
TRUTH = SideCost((Regime(1, None, 5.0, 0.0, 10.0, 1, 2.0, (0.0,), 0.0, 256),), Provenance.MEASURED)
"""An expert with m rows takes 10 + 2m microseconds, a call 5 more."""
BYTES_PER_EXPERT = 60_000


def machine(cpu: str = "a CPU") -> Machine:
    return Machine(cpu, ("avx2",), 2, 1, 1 << 25, 64 << 30, 32 << 30, 0.0)


def samples(shape: ExpertShape = SHAPE, *, cpu: str = "a CPU", threads: int = 1) -> Samples:
    """Nine rounds of the whole grid without any noise: 10 GB/s of memory, 100 Gop/s in int8, 50 in bfloat16."""
    calls = tuple(dict.fromkeys((*grid_calls(shape, None), *zipf_calls(shape, None, seed=0))))
    times = np.array([call_us(TRUTH, np.array(call.rows), call.tokens) for call in calls])
    return Samples(
        calls=calls,
        times_us=np.tile(times, (9, 1)),
        anchor_us=np.full((9, 8), 40.0),
        border=None,
        border_how="one",
        kernel=LoadedKernel(
            "torch", "a path", "torch 0", 4, 4 * 8 * BYTES_PER_EXPERT, BYTES_PER_EXPERT, None, 0.01
        ),
        machine=machine(cpu),
        bandwidth=(Bandwidth("cpu", threads, 10e9),),
        arithmetic=(Arithmetic("cpu", threads, "bf16", 50e9), Arithmetic("cpu", threads, "int8", 100e9)),
        used=ProcessorTime(own_s=9.0, others_s=0.0, stolen_s=0.0, wall_s=9.0),
        notes=(),
        seconds=10.0,
    )


def kernel(shape: ExpertShape = SHAPE, *, cpu: str = "a CPU", threads: int = 1) -> KernelProfile:
    spec = CampaignSpec("cpu", "torch", threads, 1, shape, seed=0, max_seconds=60.0)
    return kernel_profile(spec, samples(shape, cpu=cpu, threads=threads), "made up")


def profile(
    shape: ExpertShape = SHAPE,
    *,
    name: str = "tiny",
    cpu: str = "a CPU",
    gpu: str = "rtx-4090",
    threads: int = 1,
    tp: int = 1,
) -> Profile:
    sheet = gpu_datasheet(gpu)
    return Profile(
        schema=SCHEMA,
        placer_version="0.0.0",
        created="2026-01-01T00:00:00+00:00",
        model=ProfiledModel(
            name, "0" * 64, shape.hidden_size, shape.expert_intermediate_size, shape.experts, shape.top_k
        ),
        tp=tp,
        cpu=kernel(shape, cpu=cpu, threads=threads),
        gpu=GpuProfile(
            name=gpu,
            usable_bytes=sheet.usable_bytes,
            provenance=Provenance.DATASHEET,
            source=sheet.source,
            efficiency={"share of peak bandwidth": 0.75},
            hot=TRUTH,
            rates=GpuRates(
                sheet.bandwidth_bytes_per_s, sheet.bf16_flops, 30.0, 30.0, 0.1, Provenance.DATASHEET
            ),
            kernel=None,
        ),
    )
