"""`placer.export`: exactly what the serving runtime consumes."""

from pathlib import Path

from placer.api.checked import checked
from placer.api.opened import Source, path_as_text
from placer.exports.result import ExportResult
from placer.exports.runtimes import export_placement


@checked
def export(
    placement: Source,
    *,
    output: Source,
    runtime: str = "sglang-kt",
    model_path: Source | None = None,
    kt_weight_path: Source | None = None,
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
        model_path=path_as_text(model_path),
        kt_weight_path=path_as_text(kt_weight_path),
        record=record,
    )
