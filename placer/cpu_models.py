"""The table of CPU models: one socket each, with the source of its figures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Core:
    """A core design: what it computes per cycle, and the instruction sets that kernels ask for.

    ``int8_ops_per_cycle`` and ``bf16_ops_per_cycle`` count two operations per multiply-add, in the fastest unit.
    """

    int8_ops_per_cycle: int
    bf16_ops_per_cycle: int
    isa: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class CpuModel:
    """One socket.

    Attributes
    ----------
    name
        Maker's line and number, lower case.
    cores, base_ghz, all_core_ghz
        Physical cores, and their clocks; None where no clock of all cores is published.
    cache_mib
        Last-level cache.
    memory_channels, memory_mts
        Channels and the fastest plain memory it is specified for with one module per channel.
    core
        Its core design.
    source
        Where the row comes from.
    most_sockets
        Sockets that it runs in.
    """

    name: str
    cores: int
    base_ghz: float
    all_core_ghz: float | None
    cache_mib: int
    memory_channels: int
    memory_mts: int
    core: Core
    source: str
    most_sockets: int = 2


_AVX512 = ("avx2", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16")
_AMX = Core(
    2048,
    1024,
    (*_AVX512, "avx512_fp16", "amx_tile", "amx_int8"),
    "AMX, a 16x64-byte tile product in 16 cycles (ktransformers doc/en/AMX.md; Intel's AMX brief)",
)
_ZEN4 = Core(
    128,
    64,
    _AVX512,
    "two 256-bit VNNI and BF16 pipes; torch's products reached 124 and 62 operations per cycle of one core",
)
_ZEN5 = Core(
    256,
    128,
    ("avx_vnni", *_AVX512),
    "twice Zen 4 by its 512-bit data path (numberworld.org, Zen 5 teardown); not measured here",
)

_RECALLED = "without a source (as the authors recall it)"
_ARK = f"Intel ARK as exported 2023-07 (felixsteinke/cpu-spec-dataset); all-core turbo {_RECALLED}"
_ARK_BASE = "Intel ARK as exported 2023-07 (felixsteinke/cpu-spec-dataset); no all-core turbo"
_AWS = f"cores and cache as instances report them (48 cores, 105 MB); clocks and DDR5-4800 {_RECALLED}"
_EMR = f"launch reports (techopse.com, technosports.co.in: cores, base, cache, DDR5-5600); all-core turbo {_RECALLED}"
_GNR = "Hardwareluxx, Xeon 6972P review (its 6900P table); MRDIMM-8800: --memory-mts 8800"
_GNR_SP = (
    "launch reports (infogioco.it: cores, base, cache; cnews.cz: eight channels of DDR5-6400; heise.de/-10395118: "
    "all-core turbo)"
)
_GENOA = "AMD's specification export 2023-07 (felixsteinke/cpu-spec-dataset), all-core boost of that table"
_TURIN = (
    "quattor template library (cores, base); cache and memory of launch reports (tomshardware.com, "
    "chipsandcheese.com), DDR5-6000; no all-core boost"
)
_TURIN_MEMORY = f"chipsandcheese.com, EPYC 9355P (cores, cache); base clock and DDR5-6000 {_RECALLED}"
_RYZEN = f"AMD's specification export 2023-07 (felixsteinke/cpu-spec-dataset); DDR5-5200 {_RECALLED}"
_TR = f"{_RECALLED} (ik_llama.cpp pull request 534 names 24 cores of the 7965WX)"

CPU_MODELS = (
    # Sapphire Rapids.
    CpuModel("xeon-8480+", 56, 2.0, 3.0, 105, 8, 4800, _AMX, _ARK),
    CpuModel("xeon-8490h", 60, 1.9, 2.9, 112, 8, 4800, _AMX, _ARK, 8),
    CpuModel("xeon-8488c", 48, 2.4, 3.2, 105, 8, 4800, _AMX, _AWS),
    CpuModel("xeon-8468", 48, 2.1, 3.1, 105, 8, 4800, _AMX, _ARK),
    CpuModel("xeon-8462y+", 32, 2.8, 3.6, 60, 8, 4800, _AMX, _ARK),
    CpuModel("xeon-8452y", 36, 2.0, 2.8, 67, 8, 4800, _AMX, _ARK),
    CpuModel("xeon-6454s", 32, 2.2, 2.8, 60, 8, 4800, _AMX, _ARK),
    CpuModel("xeon-6430", 32, 2.1, 2.6, 60, 8, 4400, _AMX, _ARK),
    CpuModel("xeon-w9-3495x", 56, 1.9, None, 105, 8, 4800, _AMX, _ARK_BASE, 1),
    # Emerald Rapids.
    CpuModel("xeon-8592+", 64, 1.9, 2.9, 320, 8, 5600, _AMX, _EMR),
    # Granite Rapids.
    CpuModel("xeon-6980p", 128, 2.0, 3.2, 504, 12, 6400, _AMX, _GNR),
    CpuModel("xeon-6979p", 120, 2.1, 3.2, 504, 12, 6400, _AMX, _GNR),
    CpuModel("xeon-6972p", 96, 2.4, 3.5, 480, 12, 6400, _AMX, _GNR),
    CpuModel("xeon-6960p", 72, 2.7, 3.8, 432, 12, 6400, _AMX, _GNR),
    CpuModel("xeon-6776p", 64, 2.3, 3.6, 336, 8, 6400, _AMX, _GNR_SP),
    # Genoa and Bergamo.
    CpuModel("epyc-9654", 96, 2.4, 3.55, 384, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9554", 64, 3.1, 3.75, 256, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9534", 64, 2.45, 3.55, 256, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9474f", 48, 3.6, 3.95, 256, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9454", 48, 2.75, 3.65, 256, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9374f", 32, 3.85, 4.1, 256, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9354", 32, 3.25, 3.75, 256, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9334", 32, 2.7, 3.85, 128, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9684x", 96, 2.55, 3.42, 1152, 12, 4800, _ZEN4, _GENOA),
    CpuModel("epyc-9754", 128, 2.25, 3.1, 256, 12, 4800, _ZEN4, _GENOA),
    # Turin.
    CpuModel("epyc-9755", 128, 2.7, None, 512, 12, 6000, _ZEN5, _TURIN),
    CpuModel("epyc-9965", 192, 2.25, None, 384, 12, 6000, _ZEN5, _TURIN),
    CpuModel("epyc-9575f", 64, 3.3, None, 256, 12, 6000, _ZEN5, _TURIN),
    CpuModel("epyc-9555", 64, 3.2, None, 256, 12, 6000, _ZEN5, _TURIN),
    CpuModel("epyc-9355", 32, 3.55, None, 256, 12, 6000, _ZEN5, _TURIN_MEMORY),
    # Workstations and desktops.
    CpuModel("threadripper-pro-7995wx", 96, 2.5, None, 384, 8, 5200, _ZEN4, _TR, 1),
    CpuModel("threadripper-pro-7975wx", 32, 4.0, None, 128, 8, 5200, _ZEN4, _TR, 1),
    CpuModel("threadripper-pro-7965wx", 24, 4.2, None, 128, 8, 5200, _ZEN4, _TR, 1),
    CpuModel("threadripper-7970x", 32, 4.0, None, 128, 4, 5200, _ZEN4, _TR, 1),
    CpuModel("ryzen-9-7950x", 16, 4.5, None, 64, 2, 5200, _ZEN4, _RYZEN, 1),
)
"""In the order that they are listed: by maker and generation."""
