"""A small job as `placer report` takes it: model, trace with domains, profile and the placement solved from them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from profiles import profile
from tiny_model import tiny_model

from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument, write_placement
from placer.planning import plan
from placer.profiler.profile import Profile, write_profile
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader
from placer.solving import SolveRequest
from placer.workload import Workload

NAME = "tiny <script>alert('name')</script>"
DOMAINS = ("<i>code</i>", "chat")


@dataclass(frozen=True)
class ReportedJob:
    """Everything in ``folder``: placement.json, profile.json, trace.safetensors and the model's config.json."""

    folder: Path
    model: ModelSpec
    trace: TokenTrace
    profile: Profile
    document: PlacementDocument

    @property
    def placement(self) -> Path:
        return self.folder / "placement.json"


def reported_job(folder: Path) -> ReportedJob:
    """Solve the tiny model for two domains, names of both being markup, with the frontier and what-ifs."""
    model, made = tiny_model(folder), profile()
    trace = _trace(model)
    request = SolveRequest(
        workload=Workload(prompt_tokens=16, output_tokens=16, concurrency=4),
        budget_bytes=4 * 2**30,
        frontier=True,
        gap=0.05,
        # Room for everything would leave nothing to place.
        most_hot=5,
    )
    document = plan(model, trace, made, request, what_if=True)
    document = document.model_copy(
        update={
            "model": document.model.model_copy(update={"name": NAME}),
            "notes": (*document.notes, "</script><script>alert('note')</script>"),
        }
    )
    write_placement(document, folder / "placement.json")
    write_profile(made, folder / "profile.json")
    write_trace(trace, folder / "trace.safetensors")
    return ReportedJob(folder, model, trace, made, document)


def _trace(model: ModelSpec) -> TokenTrace:
    """40 requests of 40 tokens, every other one of the second domain; high expert ids are chosen more often."""
    random = np.random.default_rng(0)
    requests, length = 40, 40
    keys = random.random((requests * length, len(model.moe_layers), model.experts))
    keys *= 1 + np.arange(model.experts)
    order = np.argsort(-keys, axis=2)[:, :, : model.top_k]
    return TokenTrace(
        header=TraceHeader(
            model.name, tuple(model.moe_layers), model.experts, model.top_k, "made up", DOMAINS
        ),
        topk_ids=order.astype(np.uint16),
        request=np.repeat(np.arange(requests, dtype=np.int32), length),
        position=np.tile(np.arange(length, dtype=np.int32), requests),
        phase=np.tile(np.array([Phase.PREFILL] * 8 + [Phase.DECODE] * 32, dtype=np.uint8), requests),
        domain=np.repeat(np.arange(requests, dtype=np.int16) % 2, length),
    )
