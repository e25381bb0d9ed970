"""A HiGHS engine that prints nothing."""

import contextlib
import ctypes
import functools
import importlib
import os
import sys
import threading
from typing import Any

from placer.errors import MissingComponentError

# Typed as Any: highspy ships type marks for part of its classes only.
highspy: Any
try:
    highspy = importlib.import_module("highspy")
except ImportError:
    highspy = None


_lock = threading.Lock()


def highs_engine() -> Any:
    """A new `highspy.Highs` with all output off.

    Raises
    ------
    MissingComponentError
        When highspy is not installed.
    """
    silence_banner()
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    return engine


def silence_banner() -> None:
    """Swallow the banner that HiGHS writes to the process's stdout when its first engine is made.

    No option turns it off and it bypasses Python's streams, so it would land in front of a JSON document.

    Raises
    ------
    MissingComponentError
        When highspy is not installed.
    """
    if highspy is None:
        raise MissingComponentError(
            "HiGHS is not installed", "run 'pip install highspy', or use --solver cbc"
        )
    with _lock:
        _make_first_engine()


@functools.cache
def _make_first_engine() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        # No stdout: nothing to protect.
        highspy.Highs()
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        highspy.Highs()
        # The C library may hold the banner back until the real stdout is there again.
        ctypes.CDLL(None).fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(sink)
