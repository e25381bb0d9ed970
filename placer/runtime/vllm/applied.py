"""The lines that a started server leaves in its log: what was applied, layer by layer.

One line per layer, and one for the whole plan after all of them::

    placer-placement layer=3 experts=64 hot=20 cold=44 device_bytes=7864320 host_bytes=9732096 hot_sha256=...
    placer-placement applied layers=8 hot=160 plan_sha256=... cold_path="kt RAWINT4, 3 threads"

``device_bytes`` are all parameters of the layer's routed experts, ``host_bytes`` the cold experts as they are held.
``hot_sha256`` is of the hot ids, ascending and joined by commas. A log without the last line is of a server that did
not honour the plan.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_LAYER = re.compile(
    r"placer-placement layer=(\d{1,9}) experts=(\d{1,9}) hot=(\d{1,9}) cold=(\d{1,9}) "
    r"device_bytes=(\d{1,18}) host_bytes=(\d{1,18}) "
    r"hot_sha256=([0-9a-f]{64})\b"
)
_PLAN = re.compile(
    r'placer-placement applied layers=(\d{1,9}) hot=(\d{1,9}) plan_sha256=([0-9a-f]{64}) cold_path="([^"]*)"'
)
_START = re.compile(r"vLLM API server version|Initializing a V\d+ LLM engine")
_KV = re.compile(r"GPU KV cache size: (\d[\d,]{0,20}) tokens")


@dataclass(frozen=True)
class AppliedLayer:
    """One layer as the engine holds it."""

    layer: int
    experts: int
    hot: int
    cold: int
    device_bytes: int
    host_bytes: int
    hot_sha256: str

    def line(self) -> str:
        """As it is logged."""
        return (
            f"placer-placement layer={self.layer} experts={self.experts} hot={self.hot} cold={self.cold} "
            f"device_bytes={self.device_bytes} host_bytes={self.host_bytes} hot_sha256={self.hot_sha256}"
        )


@dataclass(frozen=True)
class AppliedPlan:
    """The whole plan, logged when every layer of it is in place; ``plan_sha256`` is of the file's bytes."""

    layers: int
    hot: int
    plan_sha256: str
    cold_path: str

    def line(self) -> str:
        """As it is logged."""
        return (
            f"placer-placement applied layers={self.layers} hot={self.hot} plan_sha256={self.plan_sha256} "
            f'cold_path="{self.cold_path}"'
        )


def hot_digest(ids: Iterable[int]) -> str:
    """What `AppliedLayer.hot_sha256` says of these ids, in any order."""
    return hashlib.sha256(",".join(map(str, sorted(ids))).encode()).hexdigest()


def read_applied(log: str) -> tuple[list[AppliedLayer], AppliedPlan | None]:
    """The layers of the last start in ``log``, in its order, and the plan's line; None where it was not applied whole.

    A start begins where vLLM names its version or its engine, or where a layer comes again.
    """
    layers: dict[int, AppliedLayer] = {}
    plan = None
    for line in log.splitlines():
        if _START.search(line):
            layers, plan = {}, None
        elif match := _LAYER.search(line):
            layer, experts, hot, cold, device_bytes, host_bytes = (int(each) for each in match.groups()[:6])
            if layer in layers:
                layers, plan = {}, None
            layers[layer] = AppliedLayer(layer, experts, hot, cold, device_bytes, host_bytes, match[7])
        elif match := _PLAN.search(line):
            plan = AppliedPlan(int(match[1]), int(match[2]), match[3], match[4])
    return list(layers.values()), plan


def read_kv_tokens(log: str) -> int | None:
    """Tokens of the KV pool by the last start in ``log``; None where it does not say."""
    tokens = None
    for line in log.splitlines():
        if _START.search(line):
            tokens = None
        elif match := _KV.search(line):
            tokens = int(match[1].replace(",", ""))
    return tokens
