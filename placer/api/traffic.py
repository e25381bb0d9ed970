"""Traffic as functions take it, as a workload."""

from pathlib import Path

from placer.api.opened import Source
from placer.arrivals import read_arrivals
from placer.workload import Workload


def workload(
    prompt_tokens: int,
    output_tokens: int,
    concurrency: int,
    *,
    slo_tpot: float | None,
    slo_ttft: float | None,
    rate: float | None,
    arrivals: Source | None,
    length_variation: float,
    prefix_hit: float,
) -> Workload:
    """The workload of these parameters; lengths in ``arrivals`` take the place of the mean lengths."""
    given = None if arrivals is None else read_arrivals(Path(arrivals))
    if given is not None and given.mean_lengths is not None:
        prompt_tokens, output_tokens = given.mean_lengths
    return Workload(
        prompt_tokens,
        output_tokens,
        concurrency,
        slo_tpot,
        slo_ttft,
        rate_per_s=rate,
        arrivals_s=None if given is None else given.times_s,
        length_variation=length_variation,
        request_lengths=None if given is None else given.lengths,
        prefix_hit=prefix_hit,
    )
