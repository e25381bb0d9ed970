"""Steps are doubled until the time on the choosing requests stays."""

from placer.convergence import converge, most_step_factor


def test_steps_that_are_enough_are_kept() -> None:
    found = converge({1: 100.0, 2: 99.9}.__getitem__, most_factor=8)
    assert (found.factors, found.used, found.converged) == ((1, 2), 1, True)
    assert found.change is not None
    assert abs(found.change + 0.001) < 1e-12


def test_steps_are_doubled_while_it_pays() -> None:
    """From 4 to 8 times the time moves by 0.1 %, so 4 are enough and within 0.2 % of the best."""
    found = converge({1: 120.0, 2: 105.0, 4: 100.0, 8: 99.9}.__getitem__, most_factor=8)
    assert (found.factors, found.used, found.converged) == ((1, 2, 4, 8), 4, True)


def test_without_convergence_the_best_plan_is_taken_and_said_to_be_unsettled() -> None:
    found = converge({1: 100.0, 2: 90.0, 4: 95.0}.__getitem__, most_factor=4)
    assert (found.used, found.converged) == (2, False)


def test_a_level_too_large_to_double_is_said_to_be_untested() -> None:
    found = converge({1: 100.0}.__getitem__, most_factor=1)
    assert (found.factors, found.converged, found.change) == ((1,), False, None)


def test_large_models_get_fewer_doublings() -> None:
    assert most_step_factor(512, 24 * 32) == 8
    # 92 layers of 896 experts: 16 million costs are 194 steps.
    assert most_step_factor(48, 92 * 896) == 4
    assert most_step_factor(256, 92 * 896) == 1
