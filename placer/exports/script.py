"""A shell script of an export: a template whose @NAMES@ are filled in."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

KT_PATHS = """DEFAULT_MODEL_PATH=@MODEL_PATH@
DEFAULT_KT_WEIGHT_PATH=@KT_WEIGHT_PATH@
MODEL_PATH="${MODEL_PATH:-$DEFAULT_MODEL_PATH}"
KT_WEIGHT_PATH="${KT_WEIGHT_PATH:-$DEFAULT_KT_WEIGHT_PATH}"
PYTHON="${PYTHON:-python}"
"""
"""What every script of an sglang-kt export begins with that needs the server's paths."""


def filled(template: str, values: Mapping[str, str]) -> str:
    """``template`` with every @NAME@ replaced; values that the user chose come last in ``values``.

    A later value may hold anything, also what looks like a name.
    """
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


def launch_line(folder: Path, paths: Mapping[str, str | None]) -> str:
    """What to type to run the launch.sh in ``folder``.

    ``paths`` maps a variable that the script needs, as it is shown ("MODEL_PATH=DIR"), to what the script holds
    for it; those that it holds nothing for are to be set.
    """
    unset = (variable for variable, path in paths.items() if not path)
    return " ".join([*unset, shlex.quote(os.path.join(".", folder, "launch.sh"))])
