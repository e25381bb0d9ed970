"""Shards read on the workers of a running Dask cluster, through the optional ``dask.distributed``."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from placer.errors import BadInputError, MissingComponentError, PlacerError

Result = TypeVar("Result")

_ADDRESS = re.compile(r"([a-z]+://)?[^\s/:]+:\d{1,5}/?|[a-z]+://\[[0-9a-fA-F:]+\]:\d{1,5}/?")
_CONNECT_SECONDS = 20
_TASKS_PER_THREAD = 4
_RETRIES = 2


def cluster_map(
    address: str, function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> Iterator[Result | PlacerError]:
    """Results of ``function(*call)`` for each call, in order, from the cluster whose scheduler is at ``address``.

    Only a few calls per worker thread are under way at once, so results that wait stay few. A `PlacerError` is
    a result, not raised. Workers need placer installed and must see the same files.

    Raises
    ------
    MissingComponentError
        When dask.distributed is not installed here, or placer is not there.
    BadInputError
        When the cluster cannot be reached, or is lost.
    """
    try:
        from dask import distributed  # noqa: PLC0415  (an optional component)
    except ImportError:
        raise MissingComponentError(
            "--dask needs dask.distributed, which is not installed", "pip install 'dask[distributed]'"
        ) from None
    if not _ADDRESS.fullmatch(address):
        raise BadInputError(
            f"--dask {address!r} is not an address", "give the scheduler's, such as tcp://host:8786"
        )
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # a timeout is an OSError
        raise BadInputError(
            f"--dask {address}: no Dask scheduler answers ({_reason(error)})",
            "give the scheduler's address, such as tcp://host:8786",
        ) from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise BadInputError(f"--dask {address}: the cluster has no workers", "start workers first")
        waiting: deque[Any] = deque()
        remaining = iter(calls)
        try:
            while True:
                for call in remaining:
                    waiting.append(client.submit(_attempt, function, call, pure=False, retries=_RETRIES))
                    if len(waiting) >= threads * _TASKS_PER_THREAD:
                        break
                if not waiting:
                    return
                yield _gathered(waiting.popleft(), address)
        finally:
            client.cancel(list(waiting))


def _attempt(function: Callable[..., Result], call: tuple[Any, ...]) -> Result | PlacerError:
    """What runs on a worker."""
    try:
        return function(*call)
    except PlacerError as error:
        return error


def _gathered(future: Any, address: str) -> Any:
    try:
        return future.result()
    except ImportError as error:
        raise MissingComponentError(
            f"--dask {address}: a worker cannot import what it needs ({_reason(error)})",
            "install the same version of moe-placer on every worker",
        ) from None
    except Exception as error:  # whatever the cluster makes of a lost worker or a failed task
        raise BadInputError(
            f"--dask {address}: a worker failed ({_reason(error)})",
            "see the cluster's logs, or leave --dask out",
        ) from None


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
