"""What the user asks of a solve, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from placer.errors import BadInputError
from placer.host import HostRoom
from placer.objective import Objective
from placer.profiler.serving.server import Scheduler
from placer.robust import Criterion
from placer.runtime_behaviour import DEFAULT_BEHAVIOUR, RuntimeBehaviour
from placer.targets import has_targets
from placer.workload import Workload


@dataclass(frozen=True)
class SolveRequest:
    """What the user asks of a solve.

    Attributes
    ----------
    budget_bytes
        Device memory per GPU that the process may use.
    max_running
        Running requests, or None to decide them.
    min_kv_tokens
        Least capacity of the KV pool, in tokens.
    kv_dtypes
        KV precisions to choose from ("bf16", "fp8").
    solver
        "auto" (structured), "highs" or "cbc" (the exact ILP on the best level).
    gap
        Relative gap at which the solver stops.
    time_limit_s
        Wall time of the solver on the level that is returned.
    prove
        Whether to go on to the time limit on levels whose gap is still open.
    prefill_from
        "trace", or "decode" to let decode tokens stand in where the trace has no prompts, or "none".
    chunk_tokens
        Prefill chunk, or None to decide it.
    min_hot_per_layer
        Hot experts per layer that settings must leave room for.
    speculative
        Whether to keep room for the model's MTP layer.
    loss_bytes
        Device memory gone after start, or None for the measured table.
    device_bytes
        What a process can use of one GPU, None where it is not known.
    pins
        Layers (checkpoint indices) whose experts are all hot (True) or all cold (False).
    least_hot, most_hot
        Bounds on the hot experts of every layer; ``most_hot`` None for no upper bound.
    frontier
        Whether to state the best plan of every number of running requests.
    lp_path
        Where to write the chosen level as an integer linear program, or None.
    mix
        Shares of the tokens by domain of the trace; empty for the trace's own.
    robust
        By which criterion the worst domain is made as good as can be, or None to plan for all together.
    scheduler
        Whose rules the predicted server schedules by.
    host
        The server's RAM, which smaller chunks take less of; None leaves it unchecked.
    behaviour
        What the runtime does beyond its defaults. What it defers is predicted, but no part of the objective.
    objective
        What to make as good as can be.
    """

    workload: Workload
    budget_bytes: int
    tp: int = 1
    max_running: int | None = None
    min_kv_tokens: int = 0
    kv_dtypes: tuple[str, ...] = ("bf16",)
    solver: str = "auto"
    gap: float = 0.005
    time_limit_s: float = 30.0
    prove: bool = False
    seed: int = 0
    prefill_from: str = "decode"
    chunk_tokens: int | None = None
    min_hot_per_layer: int = 0
    speculative: bool = False
    loss_bytes: int | None = None
    device_bytes: int | None = None
    pins: Mapping[int, bool] = field(default_factory=dict)
    least_hot: int = 0
    most_hot: int | None = None
    frontier: bool = False
    lp_path: Path | None = None
    mix: Mapping[str, float] = field(default_factory=dict)
    robust: Criterion | None = None
    scheduler: Scheduler = Scheduler.SGLANG
    behaviour: RuntimeBehaviour = DEFAULT_BEHAVIOUR
    objective: Objective = Objective.THROUGHPUT
    host: HostRoom | None = None

    def __post_init__(self) -> None:
        if self.max_running is not None and self.max_running < 1:
            raise BadInputError(f"--max-running is {self.max_running}", "give at least 1, or auto")
        if self.max_running is not None and self.max_running > self.workload.concurrency:
            raise BadInputError(
                f"--max-running {self.max_running} exceeds the {self.workload.concurrency} clients of --concurrency",
                "raise --concurrency to the clients that you expect",
            )
        if self.min_kv_tokens < 0:
            raise BadInputError(f"--min-kv-tokens is {self.min_kv_tokens}", "give 0 or more")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise BadInputError(f"--chunk is {self.chunk_tokens}", "give at least 1, or auto")
        if not 0 < self.gap < 1:
            raise BadInputError(f"--gap is {self.gap}", "give a share between 0 and 1, such as 0.005")
        if not 0 < self.time_limit_s < 1e6:
            raise BadInputError(f"--time-limit is {self.time_limit_s}", "give seconds above 0")
        self._check_objective()

    def _check_objective(self) -> None:
        if self.objective is Objective.GOODPUT and not has_targets(self.workload):
            raise BadInputError(
                "--objective goodput counts requests that keep the latency targets, and none was given",
                "give --slo-tpot, --slo-ttft or both",
            )
        if self.robust is not None and self.objective is not Objective.THROUGHPUT:
            raise BadInputError(
                f"--robust plans for the worst domain's time per output token, not for {self.objective.value}",
                "leave --robust or --objective out",
            )
        unjudged = self.prefill_from == "none" and self.workload.slo_ttft_ms is not None
        if self.objective is Objective.GOODPUT and unjudged:
            raise BadInputError(
                "--slo-ttft cannot be judged where prompts are left out (--prefill-from none)",
                "leave --slo-ttft or --prefill-from none out",
            )
