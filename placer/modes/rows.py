"""Rows of a comparison: what each way of running the model takes and delivers, on the same replayed steps."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from placer.hbm import hbm_ledger
from placer.host import HostRoom
from placer.model.spec import ModelSpec
from placer.modes.gpu_only import GpuLayers, spread_problem
from placer.modes.hardware import ComparedHardware
from placer.modes.hot_cold import solve_compared
from placer.modes.memory import ModeMemory
from placer.modes.mode import Cache, Mode, ModeFigures, ModeRow, Obstacle, Way
from placer.modes.request import CompareRequest
from placer.modes.search import banded, search
from placer.modes.served_experts import experts_origin, served_model
from placer.modes.step_times import LayersOf, ModeTimes
from placer.modes.steps import ComparedSteps
from placer.modes.streamed import ORIGIN, HitShares, StreamedLayers, expert_fetch_us, host_bytes
from placer.parallelism import Parallelism
from placer.profiler.profile import Profile
from placer.profiler.serving.server import Scheduler
from placer.profiler.trace.trace import Trace
from placer.units import counted, enough_gib, gib

_SCHEDULERS = {Scheduler.SGLANG: "SGLang", Scheduler.VLLM: "vLLM"}


class ModeRows:
    """Makes rows for ``model`` on ``hardware``; placements are solved on ``trace``, and all judged on ``judged``.

    ``trace`` None stands for uniform routing, which ``judged`` then holds.
    """

    def __init__(
        self,
        model: ModelSpec,
        hardware: ComparedHardware,
        trace: Trace | None,
        judged: Trace,
        request: CompareRequest,
    ) -> None:
        self._model = model
        self._hardware = hardware
        self._trace = trace
        self._request = request
        self._steps = ComparedSteps(judged, request.seed)
        self._hits = HitShares(model, None if trace is None else judged, request.seed)
        self._served = served_model(model, Mode.GPU_ONLY)
        self._computed: dict[Parallelism, GpuLayers] = {}
        self._alone: dict[Parallelism, ModeFigures] = {}

    def row(self, way: Way) -> ModeRow:
        """One way of running the model."""
        memory = ModeMemory(self._model, way, self._request, self._hardware.profile.cpu.method)
        if way.mode is Mode.HOT_COLD and self._hardware.cold_problem is not None:
            return self._without_kernel(way, memory, *self._hardware.cold_problem)
        if problem := spread_problem(memory.served, way.parallel):
            return _refused(way, memory.refusal("parallelism", problem, (), memory.possible_gpus()))
        if obstacle := memory.obstacle():
            return _refused(way, obstacle, memory)
        made = self._hot_cold if way.mode is Mode.HOT_COLD else self._on_gpus
        stopper = None if memory.stopper is None else f"{memory.stopper}: this row is what they would give"
        return replace(made(way, memory), stopper=stopper)

    def _without_kernel(
        self, way: Way, memory: ModeMemory, problem: str, methods: tuple[str, ...]
    ) -> ModeRow:
        """The row of a model that the CPU's kernel cannot run; another of ``methods`` may, where a runtime runs it."""
        possible = spread_problem(memory.served, way.parallel) is None
        tried = [method for method in methods if possible and memory.least.fits]
        runs = [method for method in tried if replace(memory, cpu_method=method).stopper is None]
        if runs:
            return _refused(
                way, Obstacle("cpu_kernel", problem, (f"--cpu-method {' or '.join(runs)}",)), memory
            )
        gpus = counted(way.parallel.gpus, "GPU")
        why = (
            f"{problem}; and no runtime splits the experts of {self._model.name} on {gpus} by another kernel"
        )
        return _refused(way, Obstacle("cpu_kernel", why), memory if possible else None)

    def again(self, request: CompareRequest, row: ModeRow) -> ModeRow:
        """The way of ``row`` under another ``request``, on the steps that were costed for this one."""
        other = copy(self)
        other._request = request
        return other.row(row.way)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the replayed steps assume."""
        return self._steps.notes()

    def _on_gpus(self, way: Way, memory: ModeMemory) -> ModeRow:
        request, gpu = self._request, self._hardware.gpu
        host = {} if way.cache is None else host_bytes(self._served, way.cache, way.parallel)
        if obstacle := self._host_obstacle(memory, host):
            return _refused(way, obstacle, memory, host)
        computed = self._gpu_layers(way.parallel)
        fetch_bytes_per_s = self._hardware.fetch_bytes_per_s(way.parallel.gpus)

        def times_of(slots: int) -> ModeTimes:
            if way.cache is None:
                return self._times(computed, way.parallel)
            fetched = StreamedLayers(
                computed,
                self._steps,
                self._hits,
                fetch_us=expert_fetch_us(self._served, fetch_bytes_per_s, way.parallel),
                slots=slots,
                groups=way.parallel.ep,
            )
            return self._times(fetched, way.parallel)

        candidate, mid = search(memory.demands(), times_of, request)
        profile = self._hardware.at(way.parallel, self._served)
        origin = {"cold": "none: GPUs compute every expert", **self._origins(way, profile)}
        if way.cache is not None:
            origin["transfer"] = (
                f"PCIe of the datasheet of {gpu.name}, no faster than host memory; {ORIGIN[way.cache]}"
            )
        figures = banded(candidate, mid, profile.uncertainty, request)
        if way.cache is None:
            self._alone[way.parallel] = figures
        return ModeRow(
            way=way,
            obstacle=None,
            settings=candidate.settings,
            hot_experts=candidate.demand.hot_experts,
            most_kv_tokens=memory.most_kv_tokens(),
            figures=figures,
            hbm=candidate.demand.ledger(),
            host=host,
            provenance=origin,
            unstreamed=self._unstreamed(way, candidate.demand.hot_per_layer, figures),
        )

    def _unstreamed(self, way: Way, slots: int, figures: ModeFigures) -> str | None:
        """Why streaming shows nowhere in ``figures``, or None; a row of GPUs alone in this spread comes before."""
        if way.cache is Cache.LRU and slots == self._model.experts:
            return "every expert has a slot: nothing is streamed"
        if way.cache is Cache.NONE and figures == self._alone.get(way.parallel):
            return "what is streamed hides behind the computation: it serves as gpu-only does"
        return None

    def _hot_cold(self, way: Way, memory: ModeMemory) -> ModeRow:
        model, request, tp = self._model, self._request, way.parallel.tp
        profile = self._hardware.at(way.parallel)
        cost, cpu = profile.cost_model(), profile.cpu
        room = HostRoom(cpu.method, cpu.numa_nodes, request.host_memory_bytes)
        least = room.ledger(model, memory.least.chunk_tokens)
        if obstacle := self._host_obstacle(memory, least.lines):
            return _refused(way, obstacle, memory, least.lines)
        solved = solve_compared(model, self._trace, cost, request, tp, room)
        settings, hot_experts = solved.level.settings, int(solved.hot.sum())
        found = solved.prediction
        if found.serving is None or found.bands is None:
            raise ValueError("a solved placement is predicted with its bands")
        host = room.ledger(model, settings.chunk_tokens)
        return ModeRow(
            way=way,
            obstacle=None,
            settings=settings,
            hot_experts=hot_experts,
            most_kv_tokens=memory.most_kv_tokens(),
            figures=ModeFigures(found.serving, found.bands),
            hbm=hbm_ledger(
                model,
                parallel=way.parallel,
                budget_bytes=request.budget_bytes,
                settings=settings,
                hot_experts=hot_experts,
            ),
            host=host.lines,
            provenance={"cold": profile.cpu.provenance_text, **self._origins(way, profile)},
        )

    def _origins(self, way: Way, profile: Profile) -> dict[str, str]:
        """Where a row's figures come from, but for cold experts and transfers."""
        served, scheduler = served_model(self._model, way.mode), _SCHEDULERS[self._request.scheduler]
        hot = f"{profile.gpu.provenance_text}; {experts_origin(self._model, way.mode)}"
        if other := self._hardware.timed_problem(way.parallel, served):
            hot += f"; {other}"
        return {
            "hot": hot,
            "base": profile.gpu.base_provenance_text,
            "routing": "assumed uniform, without a trace"
            if self._trace is None
            else "held-out requests of the trace",
            "latencies": f"simulated with {scheduler}'s scheduler, p50 and p95 over requests",
        }

    def _gpu_layers(self, parallel: Parallelism) -> GpuLayers:
        if parallel not in self._computed:
            hot = self._hardware.at(parallel, self._served).cost_model().hot
            self._computed[parallel] = GpuLayers(hot, self._steps, parallel.ep)
        return self._computed[parallel]

    def _times(self, layers_of: LayersOf, parallel: Parallelism) -> ModeTimes:
        return ModeTimes(
            self._model,
            self._hardware.at(parallel, self._served).cost_model(),
            layers_of,
            self._request.workload,
            parallel.tp,
            self._request.scheduler,
        )

    def _host_obstacle(self, memory: ModeMemory, lines: Mapping[str, int]) -> Obstacle | None:
        held, needed = self._request.host_memory_bytes, sum(lines.values())
        if held is None or needed <= held:
            return None
        line = max(lines, key=lambda name: lines[name])
        return memory.refusal(
            f"host {line}",
            f"host memory of {gib(held)} is {gib(needed - held)} short at line {line!r} ({gib(lines[line])})",
            (f"a server with {enough_gib(needed):,.2f} GiB of memory",),
        )


def _refused(
    way: Way, obstacle: Obstacle, memory: ModeMemory | None = None, host: Mapping[str, int] | None = None
) -> ModeRow:
    return ModeRow(
        way=way,
        obstacle=obstacle,
        settings=None,
        hot_experts=0,
        most_kv_tokens=0 if memory is None else memory.most_kv_tokens(),
        figures=None,
        hbm=None if memory is None else memory.least.ledger(),
        host=host,
    )
