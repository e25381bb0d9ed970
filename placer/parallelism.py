"""How a server is spread over GPUs: tensor, expert and pipeline parallelism, and data-parallel attention."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.model.expert_share import cut_problem
from placer.model.spec import ModelSpec

_FP8_SIDE = 128


@dataclass(frozen=True)
class Parallelism:
    """Sizes of the groups that share a model, with SGLang's meaning.

    Attributes
    ----------
    tp
        GPUs of one pipeline stage; attention, shared experts and dense layers are cut over them.
    ep
        Groups among them that share out whole experts; each expert is cut over tp / ep GPUs.
    pp
        Pipeline stages, each with its own layers on tp GPUs.
    dp
        Data-parallel attention groups among the tp GPUs, each with its own requests; 1 is off.
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "ep", "pp", "dp"):
            if getattr(self, name) < 1:
                raise BadInputError(f"--{name} is {getattr(self, name)}", "give at least 1")
        for name in ("ep", "dp"):
            if self.tp % getattr(self, name):
                raise BadInputError(
                    f"--{name} {getattr(self, name)} does not divide --tp {self.tp}",
                    f"{name} groups are formed among the tp GPUs: give a divisor of {self.tp}",
                )

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.tp * self.pp

    @property
    def expert_tp(self) -> int:
        """GPUs that one routed expert is cut over."""
        return self.tp // self.ep

    @property
    def attention_tp(self) -> int:
        """GPUs that attention and its KV heads are cut over."""
        return self.tp // self.dp

    def stage_layers(self, num_layers: int) -> tuple[range, ...]:
        """Layer indices of every pipeline stage; a rest goes to the last stages, one layer each.

        Source: sglang/srt/distributed/utils.py, get_pp_indices.
        """
        base, rest = divmod(num_layers, self.pp)
        sizes = [base + (stage >= self.pp - rest) for stage in range(self.pp)]
        starts = [sum(sizes[:stage]) for stage in range(self.pp)]
        return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))

    def problem(self, model: ModelSpec) -> str | None:
        """Why ``model`` cannot be spread like this, or None.

        Routed experts must leave whole blocks of their format when cut over tp / ep; shared experts and dense
        layers are cut over all of tp under expert parallelism too.
        """
        if model.experts % self.ep:
            return f"ep {self.ep} does not divide the {model.experts} experts of a layer"
        if self.pp > model.num_layers:
            return f"pp {self.pp} leaves stages without a layer: the model has {model.num_layers}"
        if problem := cut_problem(model, self.expert_tp):
            return problem
        if self.ep == 1 or model.checkpoint_format != "fp8_block":
            return None
        for name, width in (
            ("shared experts", model.shared_intermediate_size),
            ("dense layers", model.dense_intermediate_size if _has_dense_layers(model) else 0),
        ):
            if width % (self.tp * _FP8_SIDE):
                return (
                    f"tp {self.tp} cuts the width {width:,} of {name} to {width / self.tp:,g}, not whole FP8 "
                    "blocks of 128; expert parallelism leaves them cut by tp"
                )
        return None

    def check(self, model: ModelSpec) -> None:
        """Raise BadInputError when `problem` finds one."""
        if problem := self.problem(model):
            raise BadInputError(
                problem,
                "choose sizes that keep FP8 blocks and experts whole; --ep shares out whole experts among the "
                "tp GPUs",
            )


def _has_dense_layers(model: ModelSpec) -> bool:
    return len(model.moe_layers) < model.num_layers
