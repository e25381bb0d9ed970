"""A function run in a fresh interpreter, which loads its module and nothing of the program that called it.

`multiprocessing` would load the caller's script once more: one without ``if __name__ == "__main__"`` would run twice.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn, ParamSpec, TypeVar

import psutil

P = ParamSpec("P")
R = TypeVar("R")

_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from placer.solvers.fresh_process import answer_request; answer_request()"
)
_answers: list[BinaryIO] = []
"""Where this process answers, if it is a fresh one: its standard output as it was started."""
_once = threading.Lock()


class EndedWithoutAnswerError(Exception):
    """The process was killed or crashed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"ended with exit code {exit_code}")
        self.exit_code = exit_code


def run_fresh(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What ``function`` of a module returns or raises in a process of its own; it and its children end with the call.

    Raises
    ------
    EndedWithoutAnswerError
        When the process was killed or crashed.
    """
    request = pickle.dumps((function, args, kwargs))
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _START, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches this process alone, which then kills the other.
    )
    try:
        answer, _ = process.communicate(request)
    except BaseException:
        _kill(process.pid)
        process.wait()
        raise
    if not answer:
        raise EndedWithoutAnswerError(process.returncode)
    returned, value = pickle.loads(answer)
    if not returned:
        raise value
    result: R = value
    return result


def end_with(value: object) -> NoReturn:
    """Answer ``value`` from any thread of a fresh process and end it at once, whatever else is still running."""
    with _once:
        _send(returned=True, value=value)
        os._exit(0)


def answer_request() -> None:
    """Run what standard input asks for and answer on standard output; what is printed meanwhile goes to stderr."""
    _answers.append(os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    function, args, kwargs = pickle.load(sys.stdin.buffer)
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        error.add_note(traceback.format_exc())
        _send(returned=False, value=error)
    else:
        _send(returned=True, value=value)


def _send(*, returned: bool, value: Any) -> None:
    (answers,) = _answers
    answers.write(pickle.dumps((returned, value)))
    answers.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
