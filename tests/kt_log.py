"""Lines of sglang-kt's timing log, made with the format that the runtime makes them with."""

LINE = (
    "[kt-time] layer=%s step=%d total=%.2fms submit=%.2f mask=%.2f gpu=%.2f sync=%.2f merge=%.2f cpu_wait=%.2fms "
    "num_tokens=%d"
)


def line(
    *,
    layer: int = 0,
    step: int = 1,
    tokens: int = 4,
    submit: float = 0.12,
    mask: float = 0.03,
    gpu: float = 0.4,
    sync: float = 0.01,
    merge: float = 1.5,
) -> str:
    """A line as the server's log shows it, times in milliseconds."""
    total = submit + mask + gpu + sync + merge
    values = (layer, step, total, submit, mask, gpu, sync, merge, sync, tokens)
    return "[2026-11-29 12:00:00 TP0] " + LINE % values
