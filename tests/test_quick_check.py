"""Quick checks of changed requests: what they find, and at which of several levels."""

from dataclasses import replace
from pathlib import Path

from test_solve import last_two, routed
from tiny_model import line, tiny_cost, tiny_model

from placer.quick_check import QuickCheck
from placer.solve_request import SolveRequest
from placer.workload import Workload


def test_of_several_levels_that_serve_the_one_of_most_throughput_is_told(tmp_path: Path) -> None:
    # Steps cost nearly the same for one request as for four, so four at a time put out the most.
    model = tiny_model(tmp_path)
    cost = tiny_cost(cold=line(20.0, 100.0, 30.0), hot=line(5.0, 2.0, 1.0))
    request = SolveRequest(Workload(64, 32, 4, slo_tpot_ms=1e6), 8 * 2**30, min_kv_tokens=1024)
    check = QuickCheck(model, routed(model, last_two), cost, request)
    found, four, one = (check(replace(request, max_running=running)) for running in (None, 4, 1))
    assert found is not None
    assert four is not None
    assert one is not None
    assert found.output_tokens_per_s == four.output_tokens_per_s
    assert four.output_tokens_per_s > 1.5 * one.output_tokens_per_s


def test_what_nothing_serves_or_fits_is_none(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    request = SolveRequest(Workload(64, 32, 2, slo_tpot_ms=0.001), 8 * 2**30)
    check = QuickCheck(model, routed(model, last_two), tiny_cost(), request)
    assert check(request) is None
    assert check(replace(request, budget_bytes=2**10)) is None
