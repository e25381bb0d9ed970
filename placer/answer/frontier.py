"""What `placer solve --frontier` prints: the best plan for every number of running requests."""

from rich.table import Table

from placer.placement_sections import FrontierSection
from placer.units import duration, figure


def frontier_table(frontier: tuple[FrontierSection, ...]) -> Table:
    """One row per number of running requests."""
    table = Table(
        title="by running requests (bound: no plan is faster)", title_justify="left", box=None, pad_edge=False
    )
    for header in ("running", "KV tokens", "hot", "tokens/s", "TPOT p95", "per token", "bound", ""):
        table.add_column(header, justify="right")
    for point in frontier:
        table.add_row(
            f"{point.max_running_requests:,}",
            f"{point.kv_tokens:,}",
            f"{point.hot_experts:,}",
            figure(point.output_tokens_per_s, 1),
            "unknown" if point.tpot_ms_p95 is None else duration(1e3 * point.tpot_ms_p95, 3),
            duration(point.objective_us),
            duration(point.bound_us),
            "<- chosen" if point.chosen else "",
        )
    return table
