"""One input through one reader: accepted, refused in words, or a fault."""

import os
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from fuzzing.reader import Reader

MOST_SECONDS = 5.0

Verdict = Literal["accepted", "refused", "fault"]


class _TooSlowError(BaseException):
    """No `Exception`, so that no reader takes it for a damaged file."""


@dataclass(frozen=True)
class Trial:
    """What came of one input.

    Attributes
    ----------
    verdict
        "fault" is any outcome but a result or an error of the reader's own kind in one line.
    fault
        What went wrong and where it was raised, empty unless it is a fault.
    seconds
        Wall clock.
    """

    verdict: Verdict
    fault: str
    seconds: float


def trial(reader: Reader, path: Path, data: bytes, *, use: bool) -> Trial:
    """Write ``data`` to ``path`` and read it; with ``use`` do with it what commands do.

    Must run in the main thread of a process, for the time limit is an alarm.
    """
    with path.open("wb") as file:
        file.write(data)
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    started = time.perf_counter()
    verdict: Verdict = "accepted"
    fault = ""
    try:
        found = reader.read(path)
        if use:
            reader.use(found)
    except reader.refusals as error:
        verdict, fault = _refusal(error)
    except _TooSlowError:
        verdict, fault = "fault", f"no answer within {MOST_SECONDS:g} s"
    except BaseException as error:  # whatever it is, a user would see it
        verdict, fault = "fault", f"{type(error).__name__}: {_first_line(error)} {_raised_at(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.perf_counter() - started
        signal.signal(signal.SIGALRM, before)
    return Trial(verdict, fault, seconds)


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise _TooSlowError


def _refusal(error: Exception) -> tuple[Verdict, str]:
    """A refusal is one line on what is wrong, and one on what to do."""
    lines = [getattr(error, "what", str(error)), getattr(error, "hint", "-")]
    if all(line.strip() and "\n" not in line for line in lines):
        return "refused", ""
    return "fault", f"{type(error).__name__} is not one line and a hint: {lines!r:.300} {_raised_at(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _raised_at(error: BaseException) -> str:
    """The innermost place of this project's code, and the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    foreign = ("site-packages", f"{os.sep}tests{os.sep}", f"{os.sep}lib{os.sep}python")
    own = [frame for frame in frames if not any(part in frame.filename for part in foreign)]
    last = {f"{Path(frame.filename).name}:{frame.lineno}": None for frame in (*own[-1:], *frames[-1:])}
    return f"({', '.join(last)})"
