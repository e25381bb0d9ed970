"""Options that name a CPU by its datasheet and say what a server differs in from it."""

from typing import Annotated

import typer

from placer.cli.completion import cpu_names, datasheet_methods

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
        autocompletion=datasheet_methods,
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
