"""The placement problem as one integer linear program through PuLP, solved by HiGHS or CBC."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from placer.output import write_whole
from placer.solvers.deadline import Deadline
from placer.solvers.ilp_backend import SolverName, run_solver
from placer.solvers.ilp_model import TimeLimit, ilp_model
from placer.solvers.problem import PlacementProblem
from placer.solvers.solution import Solution, SolverStatus, relative_gap

TOLERANCE = 1e-6
"""Feasibility tolerance of both solvers; their bounds are lowered by this share of their size."""


def solve_ilp(
    problem: PlacementProblem,
    *,
    solver: SolverName,
    gap: float,
    time_limit_s: float,
    limits: Sequence[TimeLimit] = (),
) -> Solution:
    """Solve ``problem`` exactly as stated, every `FixedCharge` included, within ``limits``.

    Parameters
    ----------
    gap
        Relative gap at which the solver may stop, on the objective without ``constant_us``.
    time_limit_s
        Wall-clock limit; building the model counts.

    Returns
    -------
    Solution
        OPTIMAL when the solver proved the gap, TIME_LIMIT with a placement when it ran out of time,
        INFEASIBLE when it proved that there is none, NO_SOLUTION otherwise (no placement in time,
        unbounded, solver error). The bound is the solver's own (see `ilp_backend`), lowered by its
        feasibility tolerance; None where it gave none. ``lp_us`` is not reported.

    Raises
    ------
    MissingComponentError
        When the solver is not installed.
    """
    deadline = Deadline(time_limit_s)
    model = ilp_model(problem, limits)
    answer = run_solver(model.program, solver, gap=gap, time_limit_s=max(deadline.left_s(), 0.01))
    bound = answer.bound_us
    if bound is not None:
        bound += problem.constant_us - TOLERANCE * (abs(bound) + 1e-3)
    hot = model.placement() if answer.has_values else None
    if hot is None or not problem.is_feasible(hot):
        status = answer.status if answer.status is SolverStatus.INFEASIBLE else SolverStatus.NO_SOLUTION
        return Solution(solver, status, None, None, bound, None, deadline.elapsed_s())
    objective = problem.objective_us(hot)
    if bound is not None:
        bound = min(bound, objective)
    return Solution(
        solver=solver,
        status=answer.status,
        hot=np.asarray(hot),
        objective_us=objective,
        bound_us=bound,
        gap=None if bound is None else relative_gap(objective, bound, problem.constant_us),
        seconds=deadline.elapsed_s(),
    )


def write_lp(problem: PlacementProblem, path: Path) -> None:
    """Write ``problem`` in CPLEX LP format to ``path``, whole or not at all; ``constant_us`` is in a comment only.

    Raises
    ------
    BadInputError
        When ``path`` cannot be written.
    """
    model = ilp_model(problem)
    comment = (
        "\\ objective: microseconds per output token, "
        f"without the constant {problem.constant_us!r} that no placement changes\n"
    )

    def write(temporary: Path) -> None:
        model.program.writeLP(str(temporary))
        temporary.write_text(comment + temporary.read_text(encoding="utf-8"), encoding="utf-8")

    write_whole(path, write, "--write-lp")
