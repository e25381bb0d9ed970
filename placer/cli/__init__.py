"""The `placer` command: parse, call one function, print its result. One file per command."""

from placer.cli import (
    bench,
    calibrate,
    compare,
    demo,
    evaluate,
    explain,
    export,
    hardware,
    inspect,
    preflight,
    profile,
    report,
    solve,
    trace,
    verify,
    version,
)
from placer.cli.application import app
from placer.cli.entry import main

__all__ = ["app", "main"]
