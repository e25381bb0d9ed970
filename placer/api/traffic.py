"""Traffic as functions take it, as a workload."""

from pathlib import Path

from placer.api.opened import Source
from placer.api.unused import refuse_unused
from placer.arrivals import read_arrivals
from placer.workload import Workload

PROMPT_TOKENS, OUTPUT_TOKENS = 1024, 512
"""Mean lengths where none are given."""


def workload(
    prompt_tokens: int | None,
    output_tokens: int | None,
    concurrency: int,
    *,
    slo_tpot: float | None,
    slo_ttft: float | None,
    rate: float | None,
    arrivals: Source | None,
    length_variation: float,
    prefix_hit: float,
) -> Workload:
    """The workload of these parameters; lengths in ``arrivals`` are the requests' own.

    Raises
    ------
    BadInputError
        When a mean length or a variation is given beside them.
    """
    given = None if arrivals is None else read_arrivals(Path(arrivals))
    if given is not None and given.mean_lengths is not None:
        refuse_unused(
            {
                "--prompt-tokens": prompt_tokens is not None,
                "--output-tokens": output_tokens is not None,
                "--length-variation": length_variation > 0,
            },
            f"{arrivals} gives every request its own lengths",
            f"leave them out, or leave the lengths out of {arrivals}",
        )
        prompt_tokens, output_tokens = given.mean_lengths
    return Workload(
        PROMPT_TOKENS if prompt_tokens is None else prompt_tokens,
        OUTPUT_TOKENS if output_tokens is None else output_tokens,
        concurrency,
        slo_tpot,
        slo_ttft,
        rate_per_s=rate,
        arrivals_s=None if given is None else given.times_s,
        length_variation=length_variation,
        request_lengths=None if given is None else given.lengths,
        prefix_hit=prefix_hit,
    )
