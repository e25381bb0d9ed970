"""What a way of running a model asks of a GPU's memory, and what stands in its way where that does not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from placer.demand import MemoryDemand
from placer.kv_pool import sglang_page_tokens, sglang_pool_tokens
from placer.level import chunk_grid, running_grid
from placer.model.config import MAX_TOKENS
from placer.model.spec import ModelSpec
from placer.modes.gpu_only import spread_problem, spreads
from placer.modes.mode import Cache, Mode, Obstacle, Way
from placer.modes.request import MOST_GPUS, CompareRequest
from placer.modes.served_experts import runtime_problem, served_model
from placer.parallelism import Parallelism
from placer.remedy import largest, remedies
from placer.units import gib

_FLAGS = {
    "kv_tokens": "--kv-tokens",
    "kv_dtype": "--kv-dtype",
    "budget_bytes": "--hbm-budget",
}


@dataclass(frozen=True)
class ModeMemory:
    """The memory side of ``way`` for ``model`` under ``request``.

    ``cpu_method`` is the one that cold experts are computed by; None does not ask whether a runtime runs the way.
    """

    model: ModelSpec
    way: Way
    request: CompareRequest
    cpu_method: str | None = None

    @cached_property
    def served(self) -> ModelSpec:
        """``model`` with its experts as this mode holds them on GPUs."""
        return served_model(self.model, self.way.mode)

    @cached_property
    def stopper(self) -> str | None:
        """Why no runtime runs the way, or None."""
        if self.cpu_method is None:
            return None
        return runtime_problem(self.model, self.way, self.cpu_method)

    @property
    def least_per_layer(self) -> int:
        """Experts of a layer that GPUs must hold: all, none, or as many as a token takes for an LRU cache."""
        if self.way.mode is Mode.GPU_ONLY:
            return self.model.experts
        return self.model.top_k if self.way.cache is Cache.LRU else 0

    @property
    def least(self) -> MemoryDemand:
        """The smallest server: one request at a time and the smallest chunk."""
        return self._demand(1, chunk_grid(self.request.workload.prompt_tokens, 1)[0])

    def demands(self) -> Iterator[MemoryDemand]:
        """Every server worth trying that fits: an LRU cache as large as it can be, without one a KV pool that holds
        the longest requests together where that fits. Beside the grid of running requests the most that fit are tried,
        and the most beside a cache of every expert."""
        workload = self.request.workload
        grid = running_grid(workload.concurrency)
        most = {self._most_running(grid[-1], self.least_per_layer)}
        if self.way.cache is Cache.LRU:
            most.add(self._most_running(grid[-1], self.model.experts))
        for running in sorted({*grid, *most} - {0}):
            for chunk in chunk_grid(workload.prompt_tokens, running, self.request.scheduler):
                demand = self._demand(running, chunk)
                if not demand.fits:
                    continue
                yield self._cached(demand) if self.way.cache is Cache.LRU else self._pooled(demand)

    def _most_running(self, clients: int, per_layer: int) -> int:
        """The most requests that fit beside ``per_layer`` experts of every layer, in small chunks; 0 for none."""

        def fits(running: int) -> bool:
            chunk = chunk_grid(self.request.workload.prompt_tokens, running)[0]
            return replace(self._demand(running, chunk), hot_per_layer=per_layer).fits

        return largest(1, clients, fits) or 0

    def most_kv_tokens(self) -> int:
        """The largest KV pool beside the fewest experts, in whole pages; 0 when not even the least server fits."""
        least = self.least
        if not least.fits:
            return 0
        page = sglang_page_tokens(self.model)
        most = largest(1, MAX_TOKENS // page, lambda pages: replace(least, min_kv_tokens=pages * page).fits)
        return 0 if most is None else replace(least, min_kv_tokens=most * page).settings.kv_tokens

    def obstacle(self) -> Obstacle | None:
        """The line at which even the least server breaks, with single changes that would do; None when it fits."""
        least = self.least
        if least.fits:
            return None
        ledger = least.ledger()
        line = ledger.binding_line or "unused"
        request = self.request
        flags = {**_FLAGS, "request_tokens": request.workload.length_options}
        # Whatever pool is asked for, the longest request has to fit.
        cures = tuple(
            each.advice
            for each in remedies(least, flags)
            if each.kind != "kv_tokens" or int(each.value) >= request.workload.longest_request_tokens
        )
        return self.refusal(
            line,
            f"{gib(-ledger.unused_bytes)} per GPU short at line {line!r} ({gib(ledger.lines[line])})",
            cures,
            self._more_gpus(),
        )

    def refusal(
        self, line: str, reason: str, here: tuple[str, ...], elsewhere: tuple[str, ...] = ()
    ) -> Obstacle:
        """The obstacle ``reason``, with only those cures after which a runtime runs the way.

        ``here`` leave the way as it is, ``elsewhere`` make it one that runs. Where none is left, it says why.
        """
        cures = (*(here if self.stopper is None else ()), *elsewhere)
        why = f"; and no runtime runs this: {self.stopper}" if self.stopper and not cures else ""
        return Obstacle(line, reason + why, cures)

    def possible_gpus(self) -> tuple[str, ...]:
        """The flag with every number of GPUs on which the way fits and runs; () where there is none."""
        counts = [str(gpus) for gpus in range(1, MOST_GPUS + 1) if self._on(gpus) is not None]
        return (f"--gpus {','.join(counts)}",) if counts else ()

    def _on(self, gpus: int) -> "ModeMemory | None":
        return fitting(self.model, self.way.mode, self.way.cache, self.request, gpus, self.cpu_method)

    def _more_gpus(self) -> tuple[str, ...]:
        enough = fewest_gpus(self.model, self.way.mode, self.way.cache, self.request, self.cpu_method)
        return () if enough is None else (f"--gpus {enough.way.parallel.gpus} ({enough.way.spread})",)

    def _demand(self, running: int, chunk_tokens: int) -> MemoryDemand:
        request = self.request
        return MemoryDemand(
            model=self.served,
            parallel=self.way.parallel,
            budget_bytes=request.budget_bytes,
            running=running,
            chunk_tokens=sglang_pool_tokens(chunk_tokens, sglang_page_tokens(self.model)),
            kv_dtype=request.kv_dtype,
            min_kv_tokens=request.least_kv_tokens,
            request_tokens=request.workload.request_tokens,
            hot_per_layer=self.least_per_layer,
            device_bytes=request.device_bytes,
        )

    def _pooled(self, demand: MemoryDemand) -> MemoryDemand:
        wanted = demand.running * self.request.workload.longest_request_tokens
        held = demand.settings.kv_tokens
        tokens = largest(held, wanted, lambda count: replace(demand, min_kv_tokens=count).fits)
        return demand if tokens is None else replace(demand, min_kv_tokens=tokens)

    def _cached(self, demand: MemoryDemand) -> MemoryDemand:
        slots = largest(
            demand.hot_per_layer,
            self.model.experts,
            lambda count: replace(demand, hot_per_layer=count).fits,
        )
        return demand if slots is None else replace(demand, hot_per_layer=slots)


def fewest_gpus(
    model: ModelSpec,
    mode: Mode,
    cache: Cache | None,
    request: CompareRequest,
    cpu_method: str | None = None,
) -> ModeMemory | None:
    """The smallest server on 1, 2, 4... GPUs that fits and runs; None where none up to `MOST_GPUS` does."""
    gpus = 1
    while gpus <= MOST_GPUS:
        if memory := fitting(model, mode, cache, request, gpus, cpu_method):
            return memory
        gpus *= 2
    return None


def fitting(
    model: ModelSpec,
    mode: Mode,
    cache: Cache | None,
    request: CompareRequest,
    gpus: int,
    cpu_method: str | None = None,
) -> ModeMemory | None:
    """The smallest server on so many GPUs that fits and runs, in the first spread in which one does."""
    for parallel in spreads(gpus) if mode is not Mode.HOT_COLD else (Parallelism(gpus),):
        memory = ModeMemory(model, Way(mode, parallel, cache), request, cpu_method)
        possible = memory.stopper is None and spread_problem(memory.served, parallel) is None
        if possible and memory.least.fits:
            return memory
    return None
