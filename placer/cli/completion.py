"""What a shell completes after an option: the names that this option takes."""


def gpu_names() -> list[str]:
    """GPUs with a datasheet."""
    from placer.datasheet import GPU_NAMES

    return list(GPU_NAMES)


def cpu_names() -> list[str]:
    """CPUs with a datasheet."""
    from placer.cpu_datasheet import CPU_NAMES

    return list(CPU_NAMES)


def cpu_methods() -> list[str]:
    """Methods by which a server runs cold experts."""
    from placer.host import CPU_FORMATS

    return list(CPU_FORMATS)


def datasheet_methods() -> list[str]:
    """Those of them that times are known for by datasheet."""
    from placer.host import CPU_FORMATS
    from placer.profiler.cold_kernel import COLD_KERNELS

    return [name for name in COLD_KERNELS if name in CPU_FORMATS]


def runtimes() -> list[str]:
    """Runtimes that a placement can be exported for."""
    from placer.exports.runtime_name import RUNTIMES

    return list(RUNTIMES)


def trace_presets() -> list[str]:
    """Presets of synthetic traces."""
    from placer.profiler.trace.synth_presets import PRESETS

    return list(PRESETS)
