"""What a solve says of its plan, in one sentence."""

from dataclasses import replace

import numpy as np
import pytest
from test_solve import WORKLOAD, last_two, room_for, routed
from tiny_model import tiny_cost, tiny_model

from placer.gain import Gains
from placer.interval import Interval
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.verdict import placement_verdict


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    tiny = tiny_model(tmp_path_factory.mktemp("tiny"))
    request = SolveRequest(WORKLOAD, room_for(tiny, 8), max_running=1, chunk_tokens=64)
    return solve(tiny, routed(tiny, last_two), tiny_cost(), request)


def test_a_gain_on_held_out_requests_is_said_to_help(solved: Solved) -> None:
    assert placement_verdict(solved).startswith("static placement helps: hot experts serve 9")


def test_counts_of_one_run_promise_nothing_for_other_traffic(solved: Solved) -> None:
    said = placement_verdict(replace(solved, held_out=False))
    assert said.startswith("unknown on other traffic")
    assert "nothing was held out" in said


def test_where_everything_is_hot_the_cpu_has_nothing_to_do(solved: Solved) -> None:
    said = placement_verdict(replace(solved, hot=np.ones_like(solved.hot)))
    assert "SGLang without its --kt flags" in said


def test_a_gain_that_is_within_sampling_error_is_not_promised(solved: Solved) -> None:
    unsure = Gains(7, {"uniform": Interval(0.3, -0.1, 0.7), "frequency": Interval(0.1, 0.05, 0.2)})
    said = placement_verdict(replace(solved, gains=unsure))
    assert said.startswith("static placement is not known to help here")
    assert "cannot be told from sampling error on the 7 reported requests" in said
    sure = replace(unsure, over={"uniform": Interval(0.3, 0.1, 0.7)})
    assert placement_verdict(replace(solved, gains=sure)).startswith("static placement helps")


def test_a_gain_below_a_percent_is_none(solved: Solved) -> None:
    same = {**solved.baselines, "uniform": solved.prediction}
    assert placement_verdict(replace(solved, baselines=same)).startswith(
        "static placement will not help here"
    )
