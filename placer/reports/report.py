"""A placement's report: every figure and table of it as plain data, to be drawn as a page or as pictures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from placer.answer.placement import judged_sentence, objective_lines, verdict_sentence
from placer.answer.serving import serving_lines
from placer.answer.visible import all_visible
from placer.errors import BadInputError
from placer.evaluation import evaluate
from placer.file_kind import WRITTEN_BY
from placer.input import checked_input
from placer.matching import profile_notes
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument, read_placement
from placer.profiler.profile import Profile
from placer.profiler.trace.trace import Trace
from placer.reports.absent import Absent
from placer.reports.baseline import PlacementRow, placement_rows
from placer.reports.cost_scatter import CostScatter, cost_scatters
from placer.reports.domain import DomainTable, domain_tables
from placer.reports.drawable import check_drawable
from placer.reports.frontier import Frontier, frontier
from placer.reports.heat_map import HeatMap, heat_map
from placer.reports.launch import Launch, launches
from placer.reports.layer_time import LayerTimes, layer_times
from placer.reports.ledger import Ledger, hbm_ledger, host_ledger
from placer.reports.moving import MovingSets, moving_sets
from placer.reports.origin import Origin, origins
from placer.reports.trace_score import TraceScore, trace_score
from placer.reports.what_if import WhatIfTable, what_if_table


@dataclass(frozen=True)
class Report:
    """What a report shows, in its order; parts that the inputs do not hold are `Absent`.

    ``verdict`` are sentences, the first the whole answer.
    """

    title: str
    made: str
    verdict: tuple[str, ...]
    on_trace: TraceScore | Absent
    heat_map: HeatMap
    ledgers: tuple[Ledger, ...]
    frontier: Frontier | Absent
    cost: tuple[CostScatter, ...] | Absent
    layers: LayerTimes | Absent
    placements: tuple[PlacementRow, ...] | Absent
    domains: tuple[DomainTable, ...] | Absent
    what_if: WhatIfTable | Absent
    moving: MovingSets | Absent
    launches: tuple[Launch, ...]
    origins: tuple[Origin, ...]
    notes: tuple[str, ...]

    @property
    def absent(self) -> dict[str, Absent]:
        """Parts that are not shown, by name."""
        parts = {
            "frontier": self.frontier,
            "cost model": self.cost,
            "time by layer": self.layers,
            "baselines": self.placements,
            "score on a trace": self.on_trace,
            "domains": self.domains,
            "what if": self.what_if,
            "static or dynamic": self.moving,
        }
        return {name: part for name, part in parts.items() if isinstance(part, Absent)}


def make_report(
    placement_path: Path,
    *,
    profile: Profile | None = None,
    trace: Trace | None = None,
    model: ModelSpec | None = None,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Report:
    """The report of the placement at ``placement_path``.

    ``profile`` adds its timed calls; with ``trace`` and ``model`` too, the plan is scored on the trace.

    Raises
    ------
    BadInputError
        When the placement is invalid, the parts belong to different models, or a trace comes without a model and a
        profile.
    """
    # It is read again by every export.
    checked_input(placement_path, what="placement", cure=WRITTEN_BY["placement"])
    document = read_placement(placement_path)
    check_drawable(document.model_dump(mode="json"), f"placement {placement_path}", "solve again")
    if profile is not None:
        check_drawable(profile.document(), "profile", "run 'placer profile' again")
        _check_profile(document, profile)
    evaluation = None
    if trace is not None:
        if model is None or profile is None:
            missing = [flag for flag, given in (("--model", model), ("--profile", profile)) if given is None]
            raise BadInputError(
                "--trace is scored with the model's shapes and a cost model", f"add {' and '.join(missing)}"
            )
        progress("scoring the plan on the trace", 0.1)
        evaluation = evaluate(document, model, trace, profile)
    elif model is not None:
        document.check_model(model)
    progress("trying the exports", 0.6)
    commands = launches(placement_path)
    progress("putting the report together", 0.8)
    evaluation, shown_profile = all_visible(evaluation), all_visible(profile)
    document = all_visible(document)
    return Report(
        title=document.model.name,
        made=f"solved {document.created} by placer {document.placer_version}",
        verdict=(
            verdict_sentence(document),
            judged_sentence(document),
            *(str(line).strip() for line in (*serving_lines(document), *objective_lines(document))),
        ),
        on_trace=trace_score(evaluation),
        heat_map=heat_map(document),
        ledgers=(hbm_ledger(document), host_ledger(document)),
        frontier=frontier(document),
        cost=cost_scatters(shown_profile),
        layers=layer_times(document),
        placements=placement_rows(document),
        domains=domain_tables(document, evaluation),
        what_if=what_if_table(document),
        moving=moving_sets(document),
        launches=commands,
        origins=origins(document, shown_profile),
        notes=(*document.notes, *(() if profile is None else profile_notes(document, profile))),
    )


def _check_profile(document: PlacementDocument, profile: Profile) -> None:
    made, placed = profile.model, document.model
    if (made.experts, made.top_k) != (placed.experts, placed.top_k) or placed.hidden_size not in (
        None,
        made.hidden_size,
    ):
        raise BadInputError(
            f"the profile was made for {made.name} ({made.experts} experts, top-{made.top_k}), the placement for "
            f"{placed.name} ({placed.experts} experts, top-{placed.top_k})",
            "give the profile that the placement was solved with",
        )
