"""Targets that no plan can keep: below what a step takes outside the experts."""

from collections.abc import Mapping
from typing import Any

import pytest
from small_traces import phased
from tiny_model import tiny_cost, tiny_model

from placer.errors import InfeasibleError
from placer.model.spec import ModelSpec
from placer.solve_request import SolveRequest
from placer.solving import solve
from placer.target_floor import below_floor
from placer.workload import Workload


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def asked(targets: Mapping[str, Any]) -> SolveRequest:
    return SolveRequest(Workload(64, 32, 2, **targets), budget_bytes=8 * 2**30, prefill_from="trace")


@pytest.mark.parametrize("flag", ["tpot", "ttft"])
def test_a_step_outside_the_experts_is_out_of_reach(tiny: ModelSpec, flag: str) -> None:
    # Each of the layers takes 10 µs to launch; the rates are so high that nothing else counts.
    outside_ms = 0.010 * tiny.num_layers
    above, below = ({f"slo_{flag}_ms": share * outside_ms} for share in (1.01, 0.99))
    assert below_floor(tiny, tiny_cost(), asked(above)) is None
    said = below_floor(tiny, tiny_cost(), asked(below))
    assert said is not None
    assert said.startswith(f"--slo-{flag} of {0.99 * outside_ms:g} ms (")
    assert f"takes {1e3 * outside_ms:.2f} µs without any expert" in said


def test_what_is_out_of_reach_is_told_without_a_search(tiny: ModelSpec) -> None:
    said: list[str] = []
    with pytest.raises(InfeasibleError, match=r"no level meets --slo-tpot of 0\.001 ms") as caught:
        solve(
            tiny,
            phased(tiny),
            tiny_cost(),
            asked({"slo_tpot_ms": 0.001}),
            lambda text, _share: said.append(text),
        )
    assert "relax to --slo-tpot" in caught.value.hint
    assert "nothing else helps on this hardware" in caught.value.hint
    assert "Tried in vain" not in caught.value.hint
    assert all("what the frequency ranking reaches" in text for text in said)
