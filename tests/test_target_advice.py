"""Advice on targets that nothing meets: every change that is told meets them when it is asked for."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from roomy_requests import alone, with_room
from small_traces import phased
from tiny_model import tiny_cost, tiny_model

from placer import serving, target_search
from placer.errors import InfeasibleError
from placer.model.spec import ModelSpec
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.targets import missed_flags
from placer.units import parse_size
from placer.workload import Workload


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer arrivals are played, and limits stay out of exact programs, as in models of real size.

    Advice is held against solves of the same traffic by the same search, not against long runs.
    """
    monkeypatch.setattr(target_search, "EXACT_ENTRIES", 0)
    monkeypatch.setattr(serving, "_LEAST_ARRIVALS", 128)
    monkeypatch.setattr(serving, "_LEAST_COUNTED", 32)


def test_nothing_that_meets_the_target_is_said_with_by_how_much_and_where(tiny: ModelSpec) -> None:
    with pytest.raises(InfeasibleError) as caught:
        alone(tiny, 4, slo_tpot_ms=0.1)
    assert "--slo-tpot of 0.1 ms (best level reaches 120.0 µs at p95, +20.0%" in caught.value.what
    assert "1 running request, chunk 64, bf16 KV" in caught.value.what
    assert "relax to --slo-tpot 0.12" in caught.value.hint
    assert "Tried in vain: --kv-dtype fp8" in caught.value.hint


FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "--max-running": lambda text: {"max_running": None if text == "auto" else int(text)},
    "--hbm-budget": lambda text: {"budget_bytes": parse_size(text, whole_bytes=80 * 2**30)},
    "--kv-dtype": lambda text: {"kv_dtypes": (text,)},
    "--chunk": lambda text: {"chunk_tokens": None if text == "auto" else int(text)},
}
TRAFFIC: dict[str, Callable[[str], dict[str, Any]]] = {
    "--slo-ttft": lambda text: {"slo_ttft_ms": float(text)},
    "--slo-tpot": lambda text: {"slo_tpot_ms": float(text)},
    "--concurrency": lambda text: {"concurrency": int(text)},
    "--rate": lambda text: {"rate_per_s": float(text)},
}


def advised(request: SolveRequest, hint: str) -> dict[str, SolveRequest]:
    """Each change that a hint says meets the targets, as the request that it makes of ``request``."""
    said = hint.partition("each tried: ")[2] or hint
    changed = {}
    for text in said.partition(". ")[0].split("; "):
        words = dict(re.findall(r"(--[a-z-]+) (\S+?)(?=[ ,]|$)", text.partition(" (")[0]))
        workload = request.workload
        fields: dict[str, Any] = {}
        for flag, value in words.items():
            if flag in TRAFFIC:
                workload = replace(workload, **TRAFFIC[flag](value))
            else:
                fields |= FIELDS[flag](value)
        changed[text] = replace(request, workload=workload, **fields)
    return changed


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize(
    ("targets", "options", "kinds"),
    [
        ({"slo_ttft_ms": 5.0, "slo_tpot_ms": 0.5}, {}, {"--slo-ttft", "--concurrency", "--hbm-budget"}),
        # Fewer clients than running requests are refused, so both are told.
        ({"slo_tpot_ms": 0.4}, {"max_running": 4}, {"--max-running auto", "--concurrency"}),
        ({"slo_ttft_ms": 6.0, "rate_per_s": 40.0}, {"max_running": 2}, {"--rate"}),
        ({"slo_tpot_ms": 0.119, "rate_per_s": 90.0}, {}, {"--slo-tpot"}),
    ],
    ids=["both", "clients", "rate and TTFT", "rate and TPOT"],
)
def test_every_change_that_is_advised_meets_the_targets(
    tiny: ModelSpec, targets: dict[str, float], options: dict[str, int], kinds: set[str]
) -> None:
    request = SolveRequest(
        Workload(64, 32, 4, **targets),
        1,
        device_bytes=80 * 2**30,
        chunk_tokens=64,
        prefill_from="trace",
        **options,
    )
    request = with_room(tiny, request, 10)

    def solved(changed: SolveRequest) -> Solved:
        return solve(tiny, phased(tiny), tiny_cost(), changed)

    with pytest.raises(InfeasibleError, match="no level meets") as caught:
        solved(request)
    hint = caught.value.hint
    for kind in kinds:
        assert kind in hint.partition("Tried in vain")[0], hint
    for changed in advised(request, hint).values():
        assert changed != request
        # On the requests that are only reported on, too.
        assert not missed_flags(changed.workload, solved(changed).prediction)


@pytest.mark.usefixtures("short_runs")
def test_a_rate_is_advised_however_far_the_one_asked_for_is_beyond_the_server(tiny: ModelSpec) -> None:
    request = SolveRequest(
        Workload(64, 32, 4, slo_ttft_ms=6.0, rate_per_s=1e5),
        1,
        max_running=2,
        chunk_tokens=64,
        prefill_from="trace",
    )
    request = with_room(tiny, request, 10)
    with pytest.raises(InfeasibleError, match="falls behind the arrivals") as caught:
        solve(tiny, phased(tiny), tiny_cost(), request)
    advice = advised(request, caught.value.hint)
    (changed,) = (each for each in advice.values() if each.workload.rate_per_s != 1e5)
    solve(tiny, phased(tiny), tiny_cost(), changed)


def test_no_rate_below_the_least_is_tried(tiny: ModelSpec) -> None:
    request = SolveRequest(
        Workload(64, 32, 1, slo_ttft_ms=0.1, rate_per_s=1e-6), 1, chunk_tokens=64, prefill_from="trace"
    )
    with pytest.raises(InfeasibleError, match="no level meets --slo-ttft"):
        solve(tiny, phased(tiny), tiny_cost(), with_room(tiny, request, 10))
