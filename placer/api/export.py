"""`placer.export`: exactly what the serving runtime consumes."""

from pathlib import Path

from placer.api.opened import Source
from placer.exports.result import ExportResult
from placer.exports.runtimes import export_placement


def export(
    placement: Source,
    *,
    output: Source,
    runtime: str = "sglang-kt",
    model_path: str | None = None,
    kt_weight_path: str | None = None,
    record: bool = False,
) -> ExportResult:
    """Write into the folder ``output`` what ``runtime`` needs to run the placement in the file ``placement``.

    Raises
    ------
    BadInputError
        When the runtime is unknown, the placement invalid, or the runtime could not run the plan exactly.
    """
    return export_placement(
        Path(placement),
        Path(output),
        runtime=runtime,
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        record=record,
    )
