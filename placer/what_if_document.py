"""From solved changes to the section ``what_if`` of a placement."""

from collections.abc import Sequence
from typing import Any

from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.prediction import Prediction
from placer.profiler.profile import Profile
from placer.profiler.trace.trace import Trace
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import Progress
from placer.what_if import WhatIf, what_ifs
from placer.what_if_section import WhatIfSection

_FIGURES = ("output_tokens_per_s", "tpot_ms_p95", "ttft_ms_p95")


def with_what_ifs(
    document: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    request: SolveRequest,
    solved: Solved,
    progress: Progress,
) -> PlacementDocument:
    """``document``, the answer ``solved``, with a section per change of the server."""
    rows = what_ifs(model, trace, profile, request, solved, progress)
    return document.model_copy(
        update={
            "what_if": sections(rows, solved.prediction),
            "null_reasons": {**document.null_reasons, **_untold(rows)},
        }
    )


def sections(rows: Sequence[WhatIf], plan: Prediction) -> tuple[WhatIfSection, ...]:
    """A section per change; ``plan`` is the prediction that they are held against."""
    return tuple(_section(row, plan) for row in rows)


def _untold(rows: Sequence[WhatIf]) -> dict[str, str]:
    return {
        f"what_if.{number}.fits": row.problem or row.origin
        for number, row in enumerate(rows)
        if row.fits is None
    }


def _section(row: WhatIf, plan: Prediction) -> WhatIfSection:
    given: dict[str, Any] = {
        "name": row.name,
        "text": row.text,
        "origin": row.origin,
        "fits": row.fits,
    }
    given |= {name: text for name, text in (("regime", row.regime), ("problem", row.problem)) if text}
    if row.prediction is not None and row.settings is not None:
        figures = {name: getattr(row.prediction, name) for name in _FIGURES}
        known = {name: value for name, value in figures.items() if value is not None}
        given |= {
            **known,
            "gained": {
                name: value / before - 1.0 for name, value in known.items() if (before := getattr(plan, name))
            },
            "hot_experts": row.hot_experts,
            "kv_tokens": row.settings.kv_tokens,
            "kv_dtype": row.settings.kv_dtype,
            "max_running_requests": row.settings.max_running_requests,
            "chunked_prefill_size": row.settings.chunk_tokens,
        }
    return WhatIfSection(**given)
