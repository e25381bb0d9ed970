"""Whether a placement made from a trace is worth anything: useful, domain-bound, too small, or flat."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from placer.profiler.trace.domains import DomainOverlap
from placer.profiler.trace.heldout import LEAST_REQUESTS, HeldoutCoverage
from placer.profiler.trace.selection import chance_coverage
from placer.units import counted

LEAST_TOKENS = 1000
"""Below this a uniform router looks skewed too (see `uniform_counts`), so skew is not judged."""
FLAT_SAVING = 0.2
"""With half of the experts hot, chance leaves half of the selections cold. A saving of less than this share of
them is called flat: Mixtral on MMLU saves 14 %, OLMoE 39 %, gpt-oss 59 %."""
WIDE_INTERVAL = 0.05
"""Half-width of the held-out interval, and excess of the fitted over the held-out coverage, that mean too few
requests."""
DOMAIN_BOUND = 1 / 3
"""A domain that keeps less than this share of its gain under another's hot set is served by the wrong plan."""
DOMAIN_SAVING = 0.4
"""Saving under its own hot set from which a domain has something to lose: Mixtral on abstract algebra saves 28 %,
OLMoE on code 66 %."""


class Verdict(StrEnum):
    """What a trace is worth for placement."""

    USEFUL = "useful"
    DOMAIN_BOUND = "domain-bound"
    TOO_SMALL = "too small"
    FLAT = "flat"


@dataclass(frozen=True)
class Judgement:
    """A verdict, the figures that decided it in one sentence, and what to do."""

    verdict: Verdict
    reason: str
    advice: str


def judge(
    *,
    experts: int,
    tokens: int,
    requests: int | None,
    coverage: float,
    uniform_null: float,
    heldout: HeldoutCoverage | None,
    overlap: DomainOverlap | None,
    lost_domains: int = 0,
    token_kind: str = "tokens",
) -> Judgement:
    """Judge a trace by what its hottest half of experts serves.

    Parameters
    ----------
    experts
        Experts of a layer.
    tokens
        Tokens per layer that were judged.
    requests
        Requests, or None where the trace does not tell them apart.
    coverage, uniform_null
        Coverage of the hottest half on the whole trace, and a uniform router's at the same number of tokens.
    heldout
        The same half on requests that it was not learned from, or None where that cannot be tested.
    overlap
        Overlap of the trace's domains, or None with fewer than two.
    lost_domains
        Domains that were recorded and that the trace does not tell apart.
    token_kind
        What ``tokens`` are where a trace holds others too.
    """
    if tokens < LEAST_TOKENS:
        return Judgement(
            Verdict.TOO_SMALL,
            f"{tokens:,} {token_kind}: by chance alone the hottest half of the experts would serve {uniform_null:.1%} "
            f"of them (here {coverage:.1%})",
            f"record at least {LEAST_TOKENS:,} {token_kind}, better 20 requests of the traffic to serve",
        )
    if requests is not None and requests < LEAST_REQUESTS:
        return Judgement(
            Verdict.TOO_SMALL,
            f"{counted(requests, 'request')} cannot show how far requests differ from one another",
            f"record at least {LEAST_REQUESTS} requests, better 20, of the traffic to serve",
        )
    if requests is not None and heldout is None:
        return Judgement(
            Verdict.TOO_SMALL,
            f"{requests} requests of which no draw leaves selections of every layer to test on",
            "record more requests of the traffic to serve",
        )
    if heldout is not None:
        wide = (heldout.high - heldout.low) / 2
        excess = heldout.fitted - heldout.mean
        if max(wide, excess) > WIDE_INTERVAL:
            return Judgement(
                Verdict.TOO_SMALL,
                f"the hottest half of the experts serves {heldout.fitted:.1%} of the requests that it was learned "
                f"from and {heldout.mean:.1%} of others ({heldout.low:.1%} to {heldout.high:.1%})",
                "record more requests of the traffic to serve",
            )
    chance = chance_coverage(experts, 0.5)
    if heldout is None:
        served = f"the hottest half of the experts serves {coverage:.1%} of selections, {uniform_null:.1%} by chance"
        saving = (coverage - uniform_null) / (1 - uniform_null)
    else:
        served = (
            f"the hottest half of the experts serves {heldout.mean:.1%} of requests that it was not learned from "
            f"({heldout.low:.1%} to {heldout.high:.1%}), {chance:.1%} by chance"
        )
        saving = (heldout.mean - chance) / (1 - chance)
    if overlap is not None and (bound := _worst_pair(overlap)) is not None:
        return Judgement(
            Verdict.DOMAIN_BOUND,
            f"{served}; but {bound}",
            "solve on the mix of domains that will be served (--mix) or for the worst of them (--robust), and compare "
            "traces when the mix changes",
        )
    lost, tokens_tell = "", ""
    if lost_domains > 1:
        lost = (
            f"; but it was made of {lost_domains} domains, which counts do not keep apart, so domain-bound is not "
            "excluded"
        )
        tokens_tell = (
            "; to know of domains, import or record tokens with them (topk, offsets and domain in an .npz, or 'placer "
            "trace record --text DOMAIN=FILE')"
        )
    if saving < FLAT_SAVING:
        return Judgement(
            Verdict.FLAT,
            f"{served}: {max(0.0, saving):.0%} fewer cold selections{lost}",
            f"expect little from placement here: what matters is how many experts fit{tokens_tell}",
        )
    unknown = (
        "" if heldout else "; how requests differ was not recorded, so this is not tested on other requests"
    )
    mix = " if the mix of domains stays as recorded" if lost else ""
    return Judgement(Verdict.USEFUL, f"{served}{unknown}{lost}", f"solve on it{mix}{tokens_tell}")


def _worst_pair(overlap: DomainOverlap) -> str | None:
    """The pair that keeps least of its gain, in words, where that is little."""
    kept = overlap.kept_gain(0.5)
    # A domain whose own hot half saves little has no gain to lose.
    own, chance = np.diag(overlap.coverage[0.5]), chance_coverage(overlap.experts, 0.5)
    kept[:, (own - chance) / (1 - chance) < DOMAIN_SAVING] = np.nan
    if np.isnan(kept).all() or np.nanmin(kept) >= DOMAIN_BOUND:
        return None
    row, column = np.unravel_index(int(np.nanargmin(kept)), kept.shape)
    coverage = overlap.coverage[0.5]
    return (
        f"the hottest half for {overlap.names[row]!r:.60} serves {coverage[row, column]:.1%} of "
        f"{overlap.names[column]!r:.60}, whose own serves {coverage[column, column]:.1%}"
    )
