"""`placer.inspect`: what a checkpoint says of itself, and whether a server of it fits."""

from dataclasses import dataclass
from typing import Any

from placer.api.budget import check_hbm_budget, hbm_budget_bytes
from placer.api.checked import checked
from placer.api.choice import cpu_method as known_cpu_method
from placer.api.choice import kv_dtype as known_kv_dtype
from placer.api.number import at_least
from placer.api.opened import Source, opened
from placer.api.size import Size, size_bytes
from placer.datasheet import gpu_datasheet
from placer.demand import MemoryDemand
from placer.errors import BadInputError
from placer.hbm import given_loss_bytes
from placer.memory_plan import memory_plan_document
from placer.model.inspect import inspect_document
from placer.model.spec import ModelSpec, read_model
from placer.modes.served_experts import sglang_split_problem, split_problem
from placer.parallelism import Parallelism


@dataclass(frozen=True)
class Inspection:
    """A checkpoint's shape and bytes.

    Attributes
    ----------
    model
        What was read.
    shape
        Fields of ``inspect --json``.
    plan
        Both ledgers of the server that was asked about, or None.
    """

    model: ModelSpec
    shape: dict[str, Any]
    plan: dict[str, Any] | None

    @property
    def fits(self) -> bool | None:
        """Whether the server fits; None where none was asked about."""
        return None if self.plan is None else bool(self.plan["fits"])

    def document(self) -> dict[str, Any]:
        """What ``inspect --json`` prints."""
        return self.shape if self.plan is None else {**self.shape, "plan": self.plan}


@checked
def inspect(
    model: ModelSpec | Source,
    *,
    tp: int = 1,
    plan: int | None = None,
    gpu: str | None = None,
    hbm_budget: Size | None = None,
    gpu_free: Size | None = None,
    kv_tokens: int = 32768,
    kv_dtype: str = "bf16",
    chunk: int = 8192,
    running: int = 64,
    ep: int = 1,
    pp: int = 1,
    dp: int = 1,
    speculative: bool = False,
    cpu_method: str = "RAWINT4",
    numa: int = 1,
    host_memory: Size | None = None,
) -> Inspection:
    """What the checkpoint ``model`` says of its shape and bytes; with ``plan``, whether a server of it fits.

    Raises
    ------
    BadInputError
        When the checkpoint cannot be used, the sizes do not divide, or ``plan`` comes without a GPU or a budget.
    """
    at_least(0, plan=plan)
    at_least(1, tp=tp, kv_tokens=kv_tokens, chunk=chunk, running=running, ep=ep, pp=pp, dp=dp, numa=numa)
    if hbm_budget is not None:
        check_hbm_budget(hbm_budget)
    known_kv_dtype(kv_dtype)
    method = known_cpu_method(cpu_method)
    free = None if gpu_free is None else size_bytes(gpu_free, "--gpu-free")
    memory = None if host_memory is None else size_bytes(host_memory, "--host-memory")
    whole = None if gpu is None else gpu_datasheet(gpu).usable_bytes
    spec = opened(model, read_model)
    parallel = Parallelism(tp, ep, pp, dp)
    if spec.checkpoint_format == "fp8_block":
        parallel.check(spec)
    shape = inspect_document(spec, parallel.attention_tp, expert_tp=parallel.expert_tp)
    if plan is None:
        return Inspection(spec, shape, None)
    if whole is None and hbm_budget is None:
        raise BadInputError(
            "--plan needs to know the GPU", "add --gpu NAME (placer hardware --list) or --hbm-budget SIZE"
        )
    budget = hbm_budget_bytes(
        "100%" if hbm_budget is None else hbm_budget,
        whole,
        gpu or "the GPU",
        "lower it, or name the GPU that you mean (--gpu NAME)",
        whole_name="the GPU's memory",
    )
    device = budget if whole is None else whole
    demand = MemoryDemand(
        model=spec,
        parallel=parallel,
        budget_bytes=budget,
        running=running,
        chunk_tokens=chunk,
        kv_dtype=known_kv_dtype(kv_dtype),
        min_kv_tokens=kv_tokens,
        hot_per_layer=plan,
        speculative=speculative,
        loss_bytes=given_loss_bytes(
            device_bytes=device,
            gpu_free_bytes=free,
        ),
        device_bytes=whole,
    )
    planned = memory_plan_document(
        demand,
        device_bytes=device,
        cpu_method=method,
        numa_nodes=numa,
        host_memory_bytes=memory,
        split_problem=split_problem(spec, method, tp) if plan < spec.experts else None,
        sglang_problem=sglang_split_problem(spec, method) if plan < spec.experts else None,
    )
    return Inspection(spec, shape, planned)
