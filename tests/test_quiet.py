"""When a machine counts as not quiet: signs beyond chance, and how often chance alone raises them."""

import subprocess
import sys
import time

import numpy as np
import pytest

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.processor_time import ProcessorTime, processor_time
from placer.profiler.timing.quiet import anchor_movement, busy_warning, quiet_warning, undisturbed
from placer.profiler.timing.quiet_trial import QuietTrial, quiet_trial

ALONE = ProcessorTime(own_s=10.0, others_s=0.1, stolen_s=0.0, wall_s=10.0)
STEADY = anchor_movement([[100.0, 101.0, 150.0]] * 9)


def test_movement_is_the_spread_of_the_rounds_lower_quartiles() -> None:
    assert STEADY.seen == 0.0
    # Lower quartiles of 100, 100, 100, 100 and 130: the ninetieth percentile is 118.
    moving = anchor_movement([[100.0] * 8] * 4 + [[130.0] * 8])
    assert moving.seen == pytest.approx(0.18)


def test_a_slower_spell_is_movement_and_a_few_slow_samples_are_not() -> None:
    spell = [[100.0] * 8] * 10 + [[120.0] * 8] * 5
    assert not anchor_movement(spell).quiet
    # Every round has two slow samples of eight, at different places.
    scattered = [[130.0 if (i + j) % 4 == 0 else 100.0 for i in range(8)] for j in range(15)]
    assert anchor_movement(scattered).quiet


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_that_does_not_depend_on_the_round_is_quiet(noise: float) -> None:
    # With 30 % noise the quartile of eight samples moves by far more than 5 % by itself.
    generator = np.random.default_rng(0)
    alarms = [
        not anchor_movement(100 * np.exp(noise * generator.standard_normal((15, 8)))).quiet
        for _ in range(100)
    ]
    assert sum(alarms) <= 5


def test_drift_is_found_through_noise() -> None:
    generator = np.random.default_rng(1)
    # Half the rounds 15 % slower, 5 % noise.
    level = np.where(np.arange(16) < 8, 100.0, 115.0)[:, None]
    found = [
        not anchor_movement(level * np.exp(0.05 * generator.standard_normal((16, 8)))).quiet
        for _ in range(50)
    ]
    assert sum(found) >= 48


def test_processor_time_of_others_is_counted_in_cores() -> None:
    # In 10 s the others worked 9 s, this process 9 s of the 10 s that it wanted.
    before = ProcessorTime(own_s=1.0, others_s=100.0, stolen_s=2.0, wall_s=50.0)
    used = ProcessorTime(own_s=10.0, others_s=109.0, stolen_s=3.0, wall_s=60.0).since(before)
    assert used.other_cores == pytest.approx(0.9)
    assert used.stolen_share == pytest.approx(0.1)
    assert (used + used).other_cores == pytest.approx(0.9)


def test_rounds_in_which_others_ran_are_left_out_while_nine_remain() -> None:
    busy = ProcessorTime(own_s=10.0, others_s=5.0, stolen_s=0.0, wall_s=10.0)
    stolen = ProcessorTime(own_s=9.0, others_s=0.0, stolen_s=1.0, wall_s=10.0)
    assert undisturbed([ALONE] * 4 + [busy, stolen] + [ALONE] * 5) == (0, 1, 2, 3, 6, 7, 8, 9, 10)
    # Eight calm ones are too few for a quartile: a busy machine is measured as it is.
    assert undisturbed([ALONE] * 8 + [busy] * 3) == tuple(range(11))


def test_a_tick_of_another_program_does_not_disturb_a_short_round() -> None:
    # 20 ms of a round of 50 ms: two ticks of the clock that processor time is counted with.
    short = ProcessorTime(own_s=0.05, others_s=0.02, stolen_s=0.01, wall_s=0.05)
    assert undisturbed([short] * 9 + [ALONE]) == tuple(range(10))


def test_a_program_that_burns_a_core_is_seen_also_when_it_is_nice() -> None:
    burn = [sys.executable, "-c", "import os\nos.nice(10)\nwhile True: pass"]
    with subprocess.Popen(burn) as burner:
        try:
            time.sleep(0.3)
            before = processor_time()
            time.sleep(1.0)
            assert processor_time().since(before).other_cores > 0.25
        finally:
            burner.kill()


def test_a_trial_counts_alarms_alone_and_beside_a_busy_program() -> None:
    shape = ExpertShape(hidden_size=256, expert_intermediate_size=128, experts=8, top_k=2)
    found = quiet_trial("torch", 1, 1, shape=shape, resident_bytes=1 << 20)
    assert (len(found.alone), len(found.beside_burner)) == (1, 1)
    counted = QuietTrial(alone=(None, "the machine was not quiet"), beside_burner=("not quiet", "not quiet"))
    assert (counted.false_alarms, counted.alarms) == (1, 2)


def test_the_warning_names_the_signs_that_were_seen_and_no_other() -> None:
    assert quiet_warning(STEADY, ALONE) is None
    busy = ProcessorTime(own_s=10.0, others_s=10.0, stolen_s=0.0, wall_s=10.0)
    assert quiet_warning(STEADY, busy) == (
        "the machine was not quiet: other programs kept 1.0 cores busy; close them, then repeat"
    )
    stolen = ProcessorTime(own_s=9.0, others_s=0.0, stolen_s=1.0, wall_s=10.0)
    assert quiet_warning(STEADY, stolen) == (
        "the machine was not quiet: the host withheld 10% of the processor time; wait until the host is "
        "less busy, then repeat"
    )
    both = ProcessorTime(own_s=9.0, others_s=10.0, stolen_s=1.0, wall_s=10.0)
    assert str(quiet_warning(STEADY, both)).endswith(
        "; close them, wait until the host is less busy, then repeat"
    )
    moving = anchor_movement([[100.0] * 8] * 10 + [[130.0] * 8] * 5)
    assert quiet_warning(moving, ALONE) == (
        "the machine was not quiet: the same call moved by 30% from round to round; nothing else ran here, so "
        "look at clocks or at the host"
    )


def test_what_is_not_timed_in_rounds_is_warned_of_by_processor_time_alone() -> None:
    assert busy_warning(ALONE) is None
    busy = ProcessorTime(own_s=10.0, others_s=10.0, stolen_s=0.0, wall_s=10.0)
    assert busy_warning(busy) == quiet_warning(STEADY, busy)
