"""What to type to start a server with the plan, for every runtime that placer exports to."""

import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from placer.answer.visible import visible
from placer.errors import BadInputError
from placer.exports.runtime_name import RUNTIMES
from placer.exports.runtimes import export_placement


@dataclass(frozen=True)
class Launch:
    """Commands for one runtime.

    Attributes
    ----------
    runtime
        Name and revision.
    commands
        Shell lines in the order in which they are typed; none where the runtime cannot run the plan.
    refused
        Why it cannot, and what to do, or "".
    notes
        What the export says of the runtime and the plan.
    """

    runtime: str
    commands: tuple[str, ...]
    refused: str
    notes: tuple[str, ...]


def launches(placement_path: Path) -> tuple[Launch, ...]:
    """The commands for the placement at ``placement_path``, each tried by an export that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="placer-report-") as folder:
        return tuple(_launch(placement_path, runtime, Path(folder)) for runtime in RUNTIMES)


def _launch(placement_path: Path, runtime: str, folder: Path) -> Launch:
    try:
        result = export_placement(placement_path, folder / runtime, runtime=runtime)
    except BadInputError as error:
        return Launch(runtime, (), visible(f"{error.what}: {error.hint}"), ())
    *variables, _ = shlex.split(result.launch_line)
    export = ["placer", "export", visible(str(placement_path)), "--runtime", runtime, "-o", runtime]
    return Launch(
        result.runtime,
        (shlex.join(export), shlex.join([*variables, f"./{runtime}/launch.sh"])),
        "",
        tuple(map(visible, result.notes)),
    )
