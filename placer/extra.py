"""Extras: the optional packages of a part of placer, and the command that installs them where placer runs."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit

_DISTRIBUTION = "moe-placer"


def install_command(extra: str) -> str:
    """The command that adds ``extra`` to the environment that runs, from the clone where placer came from one."""
    clone = _clone()
    what = shlex.quote(f"{_DISTRIBUTION if clone is None else clone}[{extra}]")
    return f"{shlex.quote(sys.executable)} -m pip install {'' if clone is None else '-e '}{what}"


def _clone() -> str | None:
    """The folder of an editable installation, or None."""
    try:
        origin = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(origin["url"]).path)
