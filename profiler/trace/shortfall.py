"""Selections that a count trace's tokens make at top-k and that its layers do not count."""

from dataclasses import replace

from placer.profiler.trace.trace import CountTrace


def noting_shortfall(trace: CountTrace) -> CountTrace:
    """``trace``, with a warning among its notes where its layers count too little for its tokens.

    Less than a token per window is rounding: tokens are derived from counts by rounding up.
    Shares of experts stay what they are, so it is no error: a recorder may lose selections, and a token may leave
    slots unused.
    """
    header = trace.header
    made = trace.tokens * header.top_k
    counted = int(trace.counts.sum(axis=2).max(axis=1).sum())
    if counted >= made - header.top_k * len(trace.counts):
        return trace
    warning = (
        f"warning: layers count {counted:,} of the {made:,} selections that {trace.tokens:,} tokens make at "
        f"top-{header.top_k}: the number of tokens or top-k is wrong, or selections were lost"
    )
    if warning in header.notes:
        return trace
    return replace(trace, header=replace(header, notes=(*header.notes, warning)))
