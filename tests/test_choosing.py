"""Plans that were simulated on the requests kept for choosing: what is told of them holds on other requests too."""

from pathlib import Path

import numpy as np
from roomy_requests import with_room
from test_solve import routed
from tiny_model import tiny_cost, tiny_model

from placer.choosing import Choosing
from placer.level_room import request_levels
from placer.replays import Replays
from placer.solve_request import SolveRequest
from placer.targets import relaxed
from placer.units import rounded_up
from placer.workload import Workload


def test_a_target_is_relaxed_to_what_the_reported_requests_reach_where_that_is_more(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    workload = Workload(64, 32, 2, slo_tpot_ms=0.01)
    request = with_room(model, SolveRequest(workload, 1, max_running=2, chunk_tokens=64), 8)
    # The plan's experts serve every token of the choosing requests, and none of the others.
    hot = np.zeros((4, 8), dtype=bool)
    hot[:, 6:] = True
    choosing, reporting = (
        Choosing(model, tiny_cost(), request, Replays(trace, 0, "decode"), trace)
        for trace in (
            routed(model, lambda _random, _layer: [6, 7]),
            routed(model, lambda _random, _layer: [0, 1]),
        )
    )
    (level,) = request_levels(model, request)
    chosen, reported = (each.figures(level, hot).tpot_ms_p95 for each in (choosing, reporting))
    assert chosen < reported
    (told,) = choosing.reached_beside(reporting)
    assert told.figures.tpot_ms_p95 == reported
    assert relaxed(workload, [told]) == f"relax to --slo-tpot {rounded_up(reported)}"
    # The other way round it is what the choosing requests reach.
    (told,) = reporting.reached_beside(choosing)
    assert told.figures.tpot_ms_p95 == reported
    # Of two plans the one that is nearest on both is told, here the one of all that room allows.
    choosing.figures(level, np.ones((4, 8), dtype=bool))
    nearest = min(choosing.reached_beside(reporting), key=lambda each: each.figures.tpot_ms_p95)
    assert nearest.figures.tpot_ms_p95 < reported
