"""The process that times the base of a step: ``python -m placer.profiler.timing.base_worker PLAN.json OUT``.

Kernels of other projects are compiled and run here, so that a crash ends this process alone. Lines of JSON are
appended to OUT, each with an ``event``; the last one is ``done`` with the cost, or ``error``.
"""

import sys
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from placer.errors import PlacerError
from placer.profiler.timing.base_plan import BasePlan
from placer.profiler.timing.base_timing import cuda_device, time_base
from placer.profiler.timing.stopwatch import cuda_graph_stopwatch
from placer.profiler.timing.worker import ResultFile


def main(arguments: list[str]) -> int:
    """Time the plan of ``PLAN.json`` on the first GPU into ``OUT``; 0 when the last line is the event ``done``."""
    plan_path, out_path = (Path(argument) for argument in arguments)
    plan = TypeAdapter(BasePlan).validate_json(plan_path.read_bytes())
    results = ResultFile(out_path)
    try:
        cost = time_base(plan, cuda_device(cuda_graph_stopwatch()), results.progress)
    except PlacerError as error:
        results.write("error", kind=type(error).__name__, what=error.what, hint=error.hint)
        return error.exit_code
    results.write("done", cost=asdict(cost))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
