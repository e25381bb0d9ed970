"""One pass of branch and bound over several layers, side by side on the cores."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from placer.solvers.deadline import Deadline
from placer.solvers.decided import Decided
from placer.solvers.exact_layer import ExactLayer, solve_layer, usable_cores
from placer.solvers.floors import Floors
from placer.solvers.layer_view import Ints, LayerView
from placer.solvers.problem import Mask


@contextmanager
def layer_pass(
    view: LayerView,
    floors: Floors,
    decided: Decided,
    best: Mask,
    order: Ints,
    *,
    gap_us: float,
    nodes: int,
    deadline: Deadline,
) -> Iterator[Iterator[tuple[int, ExactLayer]]]:
    """Solve the layers of ``order`` to ``gap_us`` or ``nodes`` from their placements in ``best`` (bool [L, E]).

    Yields an iterator over (layer, answer). Answers come in the order asked for, so that what is made of them
    does not depend on the number of cores; leaving the context calls off those still under way.
    """
    called_off = threading.Event()
    workers = ThreadPoolExecutor(max_workers=usable_cores())
    try:
        runs = [
            workers.submit(
                solve_layer,
                view,
                int(layer),
                decided,
                floors.price,
                best[layer],
                relaxed=floors.mixed,
                gap_us=gap_us,
                nodes=nodes,
                deadline=deadline,
                called_off=called_off,
            )
            for layer in order
        ]
        yield ((int(layer), run.result()) for layer, run in zip(order, runs, strict=True))
    finally:
        called_off.set()
        workers.shutdown(wait=True, cancel_futures=True)
