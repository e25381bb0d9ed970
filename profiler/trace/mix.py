"""A trace's domains weighted as a user expects them: shares of the tokens that will be served."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.split import tokens_at
from placer.profiler.trace.trace import Phase, TokenTrace, Trace

_MOST_GROWTH = 4
"""A mixed trace holds at most this many times the tokens of the trace."""
_ROUNDING = 1e-6
_SHOWN_NAMES = 12


def parse_mix(text: str) -> dict[str, float]:
    """Shares by domain from ``name=share,name=share``; a name may hold commas and equals signs itself.

    Raises
    ------
    BadInputError
        When a part is not a name with a share above 0, a name comes twice, or the shares do not sum to 1.
    """
    mix: dict[str, float] = {}
    waiting = ""
    for part in text.split(","):
        whole = f"{waiting},{part}" if waiting else part
        name, separator, share = whole.rpartition("=")
        try:
            value = float(share) if separator else None
        except ValueError:
            value = None
        if value is None:
            # A comma of the name itself, unless nothing follows.
            waiting = whole
            continue
        waiting = ""
        if not name:
            raise BadInputError(f"--mix {text!r:.80} names no domain before '={share}'", _CURE)
        if name in mix:
            raise BadInputError(f"--mix names domain {name!r:.60} twice", "name each domain once")
        mix[name] = value
    if waiting or not mix:
        raise BadInputError(f"--mix {(waiting or text)!r:.80} is not DOMAIN=SHARE", _CURE)
    check_shares(mix)
    return mix


def check_shares(mix: Mapping[str, float]) -> None:
    """Raise BadInputError unless all shares of ``mix`` lie above 0 and sum to 1."""
    for name, share in mix.items():
        if not 0 < share < math.inf:
            raise BadInputError(
                f"--mix gives domain {name!r:.60} the share {share:g}",
                "give shares above 0, and leave out domains that are not served",
            )
    if abs(sum(mix.values()) - 1.0) > _ROUNDING:
        raise BadInputError(
            f"the shares of --mix sum to {sum(mix.values()):g}",
            "give shares that sum to 1, such as 0.7 and 0.3",
        )


_CURE = "for example: --mix code=0.7,chat=0.3"


def check_mix(trace: Trace, mix: Mapping[str, float], *, requests: int = 1, flag: str = "--mix") -> None:
    """Refuse a mix of domains that ``trace`` does not tell apart, or of which it has too few requests.

    Raises
    ------
    BadInputError
        When the trace has no domains, lacks one that ``mix`` names, or holds fewer than ``requests`` of it.
    """
    names = named_domains(trace, flag)
    for name in mix:
        if name not in names:
            raise BadInputError(
                f"{flag} names domain {name!r:.60}, which the trace does not hold",
                f"its domains: {_listed(names)}",
            )
        if names[name] < requests:
            raise BadInputError(
                f"{flag}: the trace holds {names[name]} requests of domain {name!r:.60}, and is split into "
                f"{requests} parts",
                "record more requests of it, or leave it out",
            )


def named_domains(trace: Trace, flag: str) -> dict[str, int]:
    """Requests with output by domain name, of the domains that ``trace`` holds.

    Raises
    ------
    BadInputError
        When it does not tell domains apart.
    """
    if not isinstance(trace, TokenTrace):
        raise BadInputError(
            f"{flag} needs to know the domain of each request, and this trace holds counts alone",
            "record tokens with domains ('placer trace record --text DOMAIN=FILE')",
        )
    starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
    decodes = np.add.reduceat(trace.phase == Phase.DECODE, starts, dtype=np.int64) > 0
    domain = np.full(starts.size, -1) if trace.domain is None else np.where(decodes, trace.domain[starts], -1)
    names: dict[str, int] = {}
    for one, requests in zip(*np.unique(domain[domain >= 0], return_counts=True), strict=True):
        name = trace.header.domains[int(one)]
        names[name] = names.get(name, 0) + int(requests)
    if not names:
        raise BadInputError(
            f"{flag} needs domains, and the trace names none",
            "record or import with domains ('placer trace record --text DOMAIN=FILE', domain in an .npz)",
        )
    return names


def of_domain(trace: TokenTrace, name: str) -> NDArray[np.bool_]:
    """Which tokens belong to the domain ``name``: bool [T]."""
    if trace.domain is None:
        return np.zeros(trace.tokens, dtype=np.bool_)
    numbers = [number for number, each in enumerate(trace.header.domains) if each == name]
    return np.isin(trace.domain, numbers)


def domain_weights(
    trace: TokenTrace, mix: Mapping[str, float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which part of ``mix`` each token belongs to, int64 [T] (0: none), and what a token of each part weighs.

    Weights are float64 [parts + 1]; over the tokens of a part they sum to its share.
    """
    part = np.zeros(trace.tokens, dtype=np.int64)
    weight = np.zeros(len(mix) + 1)
    for number, (name, share) in enumerate(mix.items(), start=1):
        own = of_domain(trace, name)
        part[own] = number
        weight[number] = share / max(1, int(own.sum()))
    return part, weight


def mixed(trace: Trace, mix: Mapping[str, float], seed: int) -> Trace:
    """``trace`` with its requests repeated or left out, so that each domain has its share of the tokens.

    An empty ``mix`` changes nothing. Every request of the mix is kept where four times the trace's size allows; one
    that is repeated becomes several.

    Raises
    ------
    BadInputError
        When a domain of the mix has no requests here.
    """
    if not mix or not isinstance(trace, TokenTrace):
        return trace
    random = np.random.default_rng(seed)
    starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
    lengths = np.diff(starts, append=trace.tokens)
    part, weight = domain_weights(trace, mix)
    for number, name in enumerate(mix, start=1):
        if not (part == number).any():
            raise BadInputError(
                f"--mix: a part of the split trace holds no request of domain {name!r:.60}",
                "record more requests of it, or leave it out",
            )
    size = min(1.0 / weight[1:].min(), _MOST_GROWTH * trace.tokens)
    times = np.zeros(starts.size, dtype=np.int64)
    for number in range(1, weight.size):
        members = random.permutation(np.flatnonzero(part[starts] == number))
        often = weight[number] * size
        # So many whole repeats of each, and one more of as many as the rest asks for.
        times[members] = int(often)
        times[members[: max(int(often < 1), round((often - int(often)) * members.size))]] += 1
    chosen = np.repeat(np.arange(starts.size), times)
    ends = np.cumsum(lengths[chosen])
    within = np.arange(ends[-1]) - np.repeat(ends - lengths[chosen], lengths[chosen])
    tokens = np.repeat(starts[chosen], lengths[chosen]) + within
    renamed = np.repeat(np.arange(chosen.size, dtype=np.int32), lengths[chosen])
    return replace(tokens_at(trace, tokens), request=renamed)


def _listed(names: Sequence[str] | Mapping[str, int]) -> str:
    shown = [f"{name:.40}" for name in list(names)[:_SHOWN_NAMES]]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
