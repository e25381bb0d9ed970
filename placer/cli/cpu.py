"""Options that name a CPU by its datasheet and say what a server differs in from it."""

from typing import TYPE_CHECKING, Annotated

import typer

from placer.cli.completion import cpu_methods, cpu_names
from placer.errors import BadInputError

if TYPE_CHECKING:
    from placer.cpu_datasheet import CpuAdjustment, CpuDatasheet

CpuOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        help="CPU by datasheet, NAMEx2 for two sockets (placer hardware --list).",
        autocompletion=cpu_names,
    ),
]
CpuMethodOption = Annotated[
    str | None,
    typer.Option(
        "--cpu-method",
        help="Its kernel: RAWINT4 (default), AMXINT4, AMXINT8, LLAMAFILE or torch.",
        autocompletion=cpu_methods,
    ),
]
CoresOption = Annotated[
    int | None, typer.Option("--cores", help="Cores that are there, of all sockets (with --cpu).")
]
ClockOption = Annotated[float | None, typer.Option("--clock", help="GHz with all cores busy (with --cpu).")]
TurboOffOption = Annotated[bool, typer.Option("--turbo-off", help="Base clock (with --cpu).")]
MemoryChannelsOption = Annotated[
    int | None,
    typer.Option("--memory-channels", help="Filled channels of a socket (with --cpu)."),
]
MemoryMtsOption = Annotated[
    int | None, typer.Option("--memory-mts", help="Memory speed: 4800 for DDR5-4800 (with --cpu).")
]


def named_cpu(name: str | None, adjustment: "CpuAdjustment") -> "CpuDatasheet | None":
    """The CPU called ``name`` as adjusted, or None where none is named."""
    from placer.cpu_datasheet import cpu_datasheet

    if name is not None:
        return cpu_datasheet(name, adjustment)
    if not adjustment.is_none:
        raise BadInputError(
            "--cores, --clock, --turbo-off, --memory-channels and --memory-mts change a datasheet: none is named",
            "add --cpu NAME (placer hardware --list)",
        )
    return None
