"""Readers of placer's own documents: placement.json as commands and as runtimes read it, profile.json, kept samples."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from kt_export import CONFIG
from placements import placement_dict
from profiles import SHAPE, machine, profile

from fuzzing.json_mutation import mutated_json
from fuzzing.reader import Reader
from fuzzing.shown import show
from fuzzing.text_mutation import mutated_json_lines
from placer.answer.applied import applied_answer
from placer.answer.explanation import explanation_answer
from placer.answer.placement import placement_answer
from placer.answer.profile import profile_answer
from placer.document import dump_document
from placer.errors import PlacerError
from placer.explanation import explain
from placer.exports.kt_applied import check_log
from placer.exports.runtime_name import RUNTIMES
from placer.exports.runtimes import export_placement
from placer.placement import PlacementDocument, read_placement, render_placement
from placer.profiler.profile import Profile, read_profile
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.journal import Journal, earlier_rounds
from placer.profiler.timing.machine import Arithmetic, Bandwidth
from placer.profiler.timing.samples import Event, LoadedKernel, read_samples
from placer.profiler.timing.spec import CampaignSpec
from placer.reports.report import make_report
from placer.runtime.load import Placement, PlacementError
from placer.runtime.load import load as load_for_runtime

__all__ = ["PLAN_READERS"]

_HOT = {1: [2, 0], 2: [], 3: [1, 3, 0, 2]}


def _placements(_folder: Path) -> Sequence[bytes]:
    plain = placement_dict(_HOT, layers=[1, 2, 3], experts=4)
    whole = placement_dict(
        _HOT,
        layers=[1, 2, 3],
        experts=4,
        pinned={"2": "none", "3": "all"},
        mix={"code": 0.5, "chat": 0.5},
        notes=["a note"],
        profile_sha256="1" * 64,
    )
    whole["model"] |= {"config": CONFIG, "hidden_size": 256}
    whole["sensitivity"] = {
        "value_us": {str(layer): [4.0, 1.0, 2.0, 0.5] for layer in (1, 2, 3)},
        "multiplier_us_per_byte": 1e-9,
        "us_per_output_token_per_gib": 1.5,
        "expert_bytes_per_gpu": 20,
    }
    return [json.dumps(each).encode() for each in (plain, whole)]


def _read_plan(path: Path) -> tuple[Path, PlacementDocument]:
    document = read_placement(path)
    document.hot_mask()
    _ = document.pins, document.datasheet_cpu, document.total_experts
    return path, document


def _use_plan(found: tuple[Path, PlacementDocument]) -> None:
    path, document = found
    show(placement_answer(document, "placement.json"))
    for step in (lambda: render_placement(document), lambda: _explained(document), lambda: make_report(path)):
        with contextlib.suppress(PlacerError):
            step()
    with TemporaryDirectory(dir=path.parent) as folder:
        log = Path(folder) / "server.log"
        log.write_text("server_args=ServerArgs(tp_size=1)\n")
        show(applied_answer(check_log(document, log)))
        for runtime in RUNTIMES:
            with contextlib.suppress(PlacerError):
                export_placement(path, Path(folder) / runtime, runtime=runtime)


def _explained(document: PlacementDocument) -> None:
    show(explanation_answer(explain(document, document.model.layers[0])))
    show(explanation_answer(explain(document, document.model.layers[-1], 0)))


def _use_in_runtime(plan: Placement) -> None:
    assert sum(map(sum, plan.masks.values())) == plan.hot_total
    with contextlib.suppress(PlacementError):
        plan.check_config(b"{}")


def _profiles(_folder: Path) -> Sequence[bytes]:
    return [dump_document(_small(profile().document())).encode()]


def _small(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its long lists of timed calls cut, so that a change meets other fields too."""
    cpu = document["cpu"]
    for name, value in cpu.items():
        if isinstance(value, list):
            cpu[name] = value[:12]
    return document


def _use_profile(found: Profile) -> None:
    show(profile_answer(found))
    cost = found.cost_model()
    rows = np.array([[0, 1, 2, 7, 64]])
    for side in (cost.cold, cost.hot):
        side.expert_us(rows, np.array([8]))
        side.fixed_us(np.array([1, 8, 4096]))
    _ = found.sha256, found.uncertainty, found.hardware(), found.calibration_notes
    dump_document(found.document())


_SPEC = CampaignSpec("cpu", "torch", 1, 1, SHAPE, seed=0, max_seconds=60.0)
_JOURNAL = "cpu-torch-1x1.jsonl"


def _journals(folder: Path) -> Sequence[bytes]:
    journal = Journal(folder / "samples", _SPEC)
    loaded = LoadedKernel("torch", "a path", "torch 0", 4, 1000, 10, None, 0.01)
    calls = [asdict(Call((2, 1), 3, Role.GRID, "rows")), asdict(Call((1,), 1, Role.HELDOUT, "zipf"))]
    events: list[Event] = [
        {"event": "machine", **asdict(machine())},
        {"event": "bandwidth", **asdict(Bandwidth("cpu", 1, 10e9))},
        {"event": "arithmetic", **asdict(Arithmetic("cpu", 1, "bf16", 50e9))},
        {"event": "loaded", **asdict(loaded)},
        {
            "event": "plan",
            "border": None,
            "how": "one",
            "contrast": None,
            "calls": calls,
            "notes": ["a note"],
        },
    ]
    used = {"own_s": 1.0, "others_s": 0.0, "stolen_s": 0.0, "wall_s": 1.0}
    events += [
        {
            "event": "round",
            "index": n,
            "kept": [0, 1],
            "times_us": [1.5 + n, 2.5],
            "anchor_us": [40.0],
            "used": used,
        }
        for n in range(2)
    ]
    for event in (*events, {"event": "done", "notes": []}):
        journal.append(event)
    journal.close()
    return [(folder / "samples" / _JOURNAL).read_bytes()]


def _read_journal(path: Path) -> Journal:
    journal = Journal(path.parent, _SPEC)
    journal.close()
    return journal


def _use_journal(journal: Journal) -> None:
    earlier_rounds(journal.events)
    if journal.finished:
        read_samples(journal.events, seconds=1.0).timed()


PLAN_READERS = (
    Reader("placement", _placements, mutated_json, _read_plan, _use_plan),
    Reader(
        "placement-runtime",
        _placements,
        mutated_json,
        load_for_runtime,
        _use_in_runtime,
        refusals=(PlacementError,),
    ),
    Reader("profile", _profiles, mutated_json, read_profile, _use_profile),
    Reader("samples", _journals, mutated_json_lines, _read_journal, _use_journal, file=_JOURNAL),
)
