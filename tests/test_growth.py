"""How time grows: a fit that finds known exponents, its error, and a sweep of real solves."""

import json
from itertools import product

import pytest
from json_documents import check_document

from placer.answer.console import print_answer
from placer.answer.growth import growth_answer
from placer.api.bench_growth import BenchGrowth
from placer.solvers.bench.family import Size
from placer.solvers.bench.growth import GrowthPoint, fitted, growth
from placer.solvers.bench.solver_run import Limits


def points(factor: float) -> list[GrowthPoint]:
    """CPU seconds 1e-3 · L · E^1.5 · S^0.5, every other one ``factor`` times that."""
    sizes = list(product((8, 16), (32, 64), (4, 16)))
    return [
        GrowthPoint(
            "made", L, E, S, 1.0, 1e-3 * L * E**1.5 * S**0.5 * (factor if turn % 2 else 1.0), 0.0, "optimal"
        )
        for turn, (L, E, S) in enumerate(sizes)
    ]


def test_an_exact_power_law_is_found() -> None:
    result = fitted("made", points(1.0))
    assert [one.dimension for one in result.exponents] == ["layers", "experts", "steps"]
    assert [one.value for one in result.exponents] == pytest.approx([1.0, 1.5, 0.5])
    assert [one.error for one in result.exponents] == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    assert result.spread == pytest.approx(1.0)


def test_scatter_becomes_error() -> None:
    # The steps alternate too: a factor e on every other solve is an exponent 1 / log 4 more.
    result = fitted("made", points(2.718281828459045))
    assert result.exponents[2].value == pytest.approx(0.5 + 1 / 1.3862943611)
    ragged = [*points(1.0)[:-1], GrowthPoint("made", 16, 64, 16, 1.0, 1.0, 0.0, "optimal")]
    assert all(one.error > 0.1 for one in fitted("made", ragged).exponents)


def test_solves_that_ran_out_of_time_are_left_out_and_counted() -> None:
    cut = [GrowthPoint("made", 64, 64, 64, 60.0, 60.0, 0.1, "time_limit")]
    result = fitted("made", [*points(1.0), *cut])
    assert result.left_out == 1
    assert result.exponents[0].value == pytest.approx(1.0)
    unfitted = fitted("made", cut * 9)
    assert unfitted.exponents == ()
    document = BenchGrowth((result, unfitted)).document()
    check_document(["bench", "--growth"], json.dumps(document))
    assert "fewer than five" in document["growth"][1]["null_reasons"]["spread"]


def test_a_sweep_solves_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [Size(2, 16, 2), Size(4, 16, 2)]
    (result,) = growth(Limits(10.0, gap=0.05), families=["balanced"], sizes=sizes)
    assert [(point.layers, point.status) for point in result.points] == [(2, "optimal"), (4, "optimal")]
    print_answer(growth_answer([result, fitted("made", points(1.0))]))
    printed = capsys.readouterr().err
    assert "balanced: no fit" in printed
    assert "layers^(1.00 ± 0.00) · experts^(1.50 ± 0.00) · steps^(0.50 ± 0.00)" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 100
