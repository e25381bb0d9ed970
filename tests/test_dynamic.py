"""A fixed hot set beside moving ones of as many experts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import profile
from test_gain import mask, traffic
from tiny_model import tiny_cost, tiny_model

from placer.dynamic import Dynamic, compare_dynamic, no_comparison
from placer.hbm import HbmLedger, ServerSettings
from placer.host_link import HostLink, host_link
from placer.level import Level
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.profiler.trace.trace import TokenTrace
from placer.solvers.problem import Mask
from placer.workload import Workload

FAST, SLOW = HostLink(1e18, "made up"), HostLink(1e6, "made up")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def compared(tiny: ModelSpec, hot: Mask, trace: TokenTrace, running: int, link: HostLink | None) -> Dynamic:
    level = Level(ServerSettings(running, 4096, 512, "bf16"), HbmLedger(1 << 30, {"unused": 1 << 30}), 8)
    workload = Workload(prompt_tokens=8, output_tokens=8, concurrency=running)
    return compare_dynamic(
        hot, trace, model=tiny, cost=tiny_cost(), level=level, workload=workload, tp=1, link=link, seed=0
    )


def two_kinds(tiny: ModelSpec) -> TokenTrace:
    """Eight requests of twelve tokens: half choose experts 0 and 1 in every layer, half 6 and 7."""
    return traffic(tiny, np.arange(8) % 2 == 0, tokens=12)


def test_one_request_at_a_time_is_served_by_recency(tiny: ModelSpec) -> None:
    # The plan's 0 and 1 serve half of the requests, and so does every other fixed pair. A cache of two misses both
    # experts where the kind of request changes, at most eight times, and the prompt's own experts are always right.
    found = compared(tiny, mask(tiny, [0, 1]), two_kinds(tiny), 1, FAST)
    assert (found.steps, found.slots_per_layer) == (96, 2)
    assert found.hit_share["plan"] == found.hit_share["oracle_static"] == 0.5
    assert found.hit_share["prompt_update"] == 1.0
    assert 1 - 8 / 96 <= found.hit_share["lru"] < 1.0
    assert found.loads_per_step == pytest.approx(4 * 2 * (1 - found.hit_share["lru"]))
    # Four layers of two experts on the GPU: 4 * (5 + 2 * 3) us, when loads take no time.
    assert found.step_us["lru_serial"] == pytest.approx(44.0)
    assert found.matters
    assert found.verdict.startswith("dynamic wins at 1 running request: an LRU cache (SGLang")


def test_loads_over_a_slow_link_leave_the_prompts_update(tiny: ModelSpec) -> None:
    found = compared(tiny, mask(tiny, [0, 1]), two_kinds(tiny), 1, SLOW)
    load_us = expert_share_bytes(tiny, 1) / 1e6 * 1e6
    serial = found.step_us["lru_serial"]
    assert serial == pytest.approx(44.0 + load_us * found.loads_per_step)
    assert found.matters
    assert "dynamic may win" in found.verdict
    assert "kt-kernel's dynamic update would take" in found.verdict


def test_many_requests_at_once_are_served_by_a_fixed_set(tiny: ModelSpec) -> None:
    # Three of four requests choose 0 and 1, and eight run at once: each step needs all four experts. The cache keeps
    # two of them, a prompt's own are wrong for the other kind.
    trace = traffic(tiny, np.arange(8) % 4 != 0, tokens=12)
    found = compared(tiny, mask(tiny, [0, 1]), trace, 8, SLOW)
    assert found.hit_share["plan"] == found.hit_share["oracle_static"] == 0.75
    assert found.hit_share["prompt_update"] <= 0.75
    assert found.loads_per_step == 4 * 2
    assert not found.matters
    assert found.verdict.startswith("static is right at 8 running requests: an LRU cache")


def test_an_unknown_link_leaves_the_caches_times_open(tiny: ModelSpec) -> None:
    found = compared(tiny, mask(tiny, [0, 1]), two_kinds(tiny), 1, None)
    assert found.step_us["lru_serial"] is None
    assert found.hit_share["lru"] > 0.9
    assert "unknown" in found.assumptions[0]
    # One slot per layer does not hold the two experts of a token.
    assert compared(tiny, mask(tiny, [0]), two_kinds(tiny), 1, FAST).step_us["lru_serial"] is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.data())
def test_no_fixed_set_serves_more_than_the_one_in_hindsight(tiny: ModelSpec, data: st.DataObject) -> None:
    left = np.array(data.draw(st.lists(st.booleans(), min_size=2, max_size=6)))
    hot = np.array(data.draw(st.lists(st.booleans(), min_size=32, max_size=32))).reshape(4, 8)
    found = compared(tiny, hot, traffic(tiny, left), data.draw(st.integers(1, 3)), SLOW)
    assert found.hit_share["oracle_static"] >= found.hit_share["plan"] - 1e-12
    assert all(0 <= share <= 1 for share in found.hit_share.values())
    serial, overlapped = found.step_us["lru_serial"], found.step_us["lru_overlapped"]
    assert serial is None or (overlapped is not None and serial >= overlapped)


def test_says_why_there_is_nothing_to_compare(tiny: ModelSpec) -> None:
    trace = two_kinds(tiny)
    assert no_comparison(mask(tiny, [0]), None) == "no trace was given"
    assert no_comparison(mask(tiny, []), trace) == "no expert is hot"
    assert no_comparison(mask(tiny, list(range(8))), trace) == "every expert is hot"
    assert no_comparison(mask(tiny, [0]), trace) is None


def test_the_link_is_the_datasheets_at_three_quarters(tmp_path: Path) -> None:
    made = profile()
    link = host_link(made)
    assert link is not None
    assert link.bytes_per_s == pytest.approx(0.75 * 31.5e9)
    assert "rtx-4090" in link.origin
    named = replace(made, gpu=replace(made.gpu, name="NVIDIA H100 80GB HBM3"))
    assert host_link(named).bytes_per_s == pytest.approx(0.75 * 63e9)
    assert host_link(replace(made, gpu=replace(made.gpu, name="some GPU"))) is None
