"""A hot set that every arriving prompt replaces."""

import numpy as np
from small_traces import token_trace

from placer.profiler.trace.prompt_update import PromptHot, last_arrived, runs
from placer.profiler.trace.trace import Phase

PRE, DEC = int(Phase.PREFILL), int(Phase.DECODE)


def test_the_last_prompt_counts_for_all_running_requests() -> None:
    # Two slots. Request 7 arrives in the second slot at step 2, request 8 in the first at step 3.
    assert last_arrived(np.array([[5, 6], [5, 6], [5, 7], [8, 7], [8, 7]])).tolist() == [5, 5, 7, 8, 8]


def test_of_two_that_arrive_together_the_first_slot_counts() -> None:
    assert last_arrived(np.array([[5, 6], [8, 7]])).tolist() == [5, 8]


def test_stretches_of_the_same_request() -> None:
    assert list(runs(np.array([5, 5, 7, 5]))) == [(slice(0, 2), 5), (slice(2, 3), 7), (slice(3, 4), 5)]


def test_hot_are_the_prompts_most_selected_experts() -> None:
    # Request 0's prompt chooses expert 2 twice and 1 once; what it answers does not count.
    ids = [[[2]], [[2]], [[1]], [[3]], [[0]]]
    trace = token_trace(ids, experts=4, request=[0, 0, 0, 0, 1], phase=[PRE, PRE, PRE, DEC, PRE])
    prompts = PromptHot(trace, np.array([2]))
    assert not prompts.from_output
    assert prompts.mask(0).tolist() == [[False, True, True, False]]
    assert prompts.mask(1).tolist() == [[True, True, False, False]]  # expert 0, then the smaller id


def test_without_prompts_the_output_stands_in_and_says_so() -> None:
    prompts = PromptHot(token_trace([[[2]], [[3]]], experts=4, request=[0, 1]), np.array([1]))
    assert prompts.from_output
    assert prompts.mask(1).tolist() == [[False, False, False, True]]
