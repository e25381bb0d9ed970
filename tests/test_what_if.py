"""Changes of the server, each solved again and held against the plan."""

from dataclasses import replace

import pytest
from profiles import profile
from rich.console import Console
from test_solve import room_for, routed
from tiny_model import tiny_cost, tiny_model

from placer.answer.what_if import what_if_notes, what_if_parts
from placer.model.spec import ModelSpec
from placer.planning import plan
from placer.profiler.profile import Profile
from placer.profiler.trace.trace import TokenTrace
from placer.solve_request import SolveRequest
from placer.solving import solve
from placer.what_if import WhatIf, what_ifs
from placer.what_if_section import WhatIfSection
from placer.workload import Workload

WORKLOAD = Workload(prompt_tokens=64, output_tokens=32, concurrency=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def made() -> Profile:
    known, cost = profile(), tiny_cost()
    return replace(
        known,
        cpu=replace(known.cpu, cost=cost.cold),
        gpu=replace(known.gpu, hot=cost.hot, rates=cost.rates),
    )


@pytest.fixture(scope="module")
def trace(tiny: ModelSpec) -> TokenTrace:
    """Every token takes experts 6 and 7."""
    return routed(tiny, lambda _random, _layer: [6, 7])


def request(tiny: ModelSpec, **changes: object) -> SolveRequest:
    """Room for half of the eight experts that are used, at one running request."""
    asked = SolveRequest(WORKLOAD, room_for(tiny, 4), max_running=1, chunk_tokens=512)
    return replace(asked, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rows(tiny: ModelSpec, made: Profile, trace: TokenTrace) -> dict[str, WhatIf]:
    asked = request(tiny)
    solved = solve(tiny, trace, made.cost_model(), asked)
    # Every layer waits for its cold expert, 20 + 110 us; 10 us a layer around it.
    assert solved.prediction.decode_step_ms == pytest.approx(4 * (130 + 10) / 1e3, rel=1e-3)
    return {row.text: row for row in what_ifs(tiny, trace, made, asked, solved)}


def test_more_memory_makes_every_used_expert_hot(rows: dict[str, WhatIf]) -> None:
    row = rows["10 % more HBM"]
    assert row.fits
    assert row.prediction is not None
    # 5 + 2 * 3 us on the GPU, beside a CPU call of 20 that finds nothing to do.
    assert row.prediction.decode_step_ms == pytest.approx(4 * (20 + 10) / 1e3, rel=1e-3)


def test_a_smaller_chunk_leaves_the_decode_step_as_it_is(rows: dict[str, WhatIf]) -> None:
    # Memory that the smaller chunk frees may hold more experts, never fewer.
    row = rows["chunk of 256"]
    assert row.settings is not None
    assert row.settings.chunk_tokens == 256
    assert row.hot_experts is not None
    assert row.hot_experts >= 4


def test_what_does_not_fit_names_the_line(tiny: ModelSpec, made: Profile, trace: TokenTrace) -> None:
    asked = request(tiny, pins={0: True})
    asked = replace(asked, budget_bytes=room_for(tiny, 8))
    solved = solve(tiny, trace, made.cost_model(), asked)
    found = {row.text: row for row in what_ifs(tiny, trace, made, asked, solved)}
    row = found["2 running, 2 clients"]
    assert row.fits is False
    assert row.problem is not None
    assert "does not fit" in row.problem
    assert row.prediction is None


def test_the_document_holds_the_rows_and_the_answer_fits_its_width(
    tiny: ModelSpec, made: Profile, trace: TokenTrace
) -> None:
    heard: list[float] = []
    document = plan(
        tiny,
        trace,
        made,
        request(tiny, workload=replace(WORKLOAD, slo_tpot_ms=1000.0)),
        host_memory_bytes=1 << 40,
        what_if=True,
        progress=lambda _text, share: heard.append(share),
    )
    assert heard == sorted(heard)
    assert document.what_if is not None
    more = next(row for row in document.what_if if row.name == "budget")
    assert more.gained is not None
    rate = document.predicted.output_tokens_per_s
    assert more.output_tokens_per_s == pytest.approx(rate * (1 + more.gained["output_tokens_per_s"]))
    assert more.gained["output_tokens_per_s"] > 0.1
    untold = [number for number, row in enumerate(document.what_if) if row.fits is None]
    assert untold
    assert all(document.null_reasons[f"what_if.{number}.fits"] for number in untold)
    console = Console(width=100, record=True, file=None)
    with console.capture() as captured:
        for part in what_if_parts(document):
            console.print(part)
    text = captured.get()
    assert "this plan" in text
    assert "more than 1 CPU threads: cannot be told" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_change_across_a_border_says_why_also_where_it_does_not_fit() -> None:
    row = WhatIfSection(
        name="more_running",
        text="33 running, 33 clients",
        origin="measured",
        regime="33 tokens a step lie above the border of the CPU kernel at 32",
        fits=False,
        problem="needs 2 GiB more",
    )
    assert what_if_notes([row]) == [
        "* 33 tokens a step lie above the border of the CPU kernel at 32",
        "33 running, 33 clients *: needs 2 GiB more",
    ]
