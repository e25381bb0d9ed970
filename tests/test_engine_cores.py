"""The cores that a benchmark's client is kept to, and how busy they were."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from placer.examples.cores import busy_share


class Ticks(SimpleNamespace):
    """A core's times, of which iterating gives the numbers."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(vars(self).values())


def core(user: float, idle: float, iowait: float = 0.0) -> Ticks:
    return Ticks(user=user, idle=idle, iowait=iowait)


def test_what_others_cores_did_is_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = [core(9, 5), core(10, 5)], [core(13, 5), core(13, 5.5, 0.5)]
    monkeypatch.setattr("psutil.cpu_times", Mock(side_effect=[before, after]))
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1})
    with busy_share(engine_core=0) as found:
        assert found == []
    # Three of the second core's four seconds; the engine's core does not count.
    assert found == [0.75]
