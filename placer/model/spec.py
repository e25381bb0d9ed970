"""ModelSpec: what a checkpoint says of its model's shape and bytes, in the figures that placement needs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placer.document import read_document
from placer.errors import BadInputError
from placer.model import formats
from placer.model.blueprint import Blueprint, blueprint
from placer.model.checkpoint import Weighed, weigh_by_formula, weigh_by_headers
from placer.model.config import CONFIG_CURE, MAX_CONFIG_BYTES, Config, read_config
from placer.model.families import knows
from placer.model.headers import has_headers, read_headers
from placer.model.kv import CacheGroup, RequestState, request_bytes, token_bytes
from placer.model.quantization import quantization_of
from placer.model.unknown_family import observed_blueprint
from placer.model.weights import WeightGroup, class_bytes_per_gpu

GPU_FORMAT = "fp8_block"
CPU_FORMAT = "rawint4"
_FP8_SIDE = formats.FP8_BLOCK[0]
_MAX_TP = 64


@dataclass(frozen=True)
class ModelSpec:
    """A mixture-of-experts model.

    Attributes
    ----------
    name
        Of the checkpoint's directory.
    architecture, model_type
        As config.json has them.
    config_sha256, config
        Of config.json's bytes; and its content, without the long list of modules that stay unquantised.
    num_layers, moe_layers
        Layers (MTP layers excluded), and the indices of the MoE layers among them, ascending.
    experts, top_k
        Routed experts of a MoE layer, and how many of them a token takes.
    shared_experts, shared_intermediate_size
        Experts of a MoE layer that every token takes, and the width of all of them together.
    hidden_size, expert_hidden_size, expert_intermediate_size
        Width of activations, K of an expert's gate and up, and N of them.
    dense_intermediate_size
        Width of the MLP of layers that are not MoE layers; 0 when all are.
    vocab_size, max_context_tokens
        Rows of the embedding, and tokens that positions reach.
    query_heads, kv_heads
        Attention heads; ``kv_heads`` is None for latent attention, whose cache is whole on every GPU.
    expert_bias_parameters
        Biases of one expert (2I + H where there are any).
    checkpoint_format, checkpoint_expert_bytes
        How the checkpoint stores routed experts, and the bytes of one.
    routed_parameters, other_parameters, mtp_parameters
        Parameters of the routed experts, of everything else but MTP layers, and of MTP layers.
    weights
        Non-expert weights as a GPU holds them.
    cache
        What layers cache per token and per request.
    states
        What layers keep per request beside windows: recurrent states, rings of a compressor.
    gpu_format
        What a GPU holds hot experts in.
    provenance
        Where the figures come from: ``config``, ``sizes``, ``gpu``, and ``mismatch`` where headers and
        formulas disagree (the headers count); ``assumed`` where something is taken for granted.
    """

    name: str
    architecture: str
    model_type: str
    config_sha256: str
    config: dict[str, Any] = field(hash=False, repr=False)
    num_layers: int
    moe_layers: tuple[int, ...]
    experts: int
    top_k: int
    shared_experts: int
    shared_intermediate_size: int
    hidden_size: int
    expert_hidden_size: int
    expert_intermediate_size: int
    dense_intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    query_heads: int
    kv_heads: int | None
    expert_bias_parameters: int
    checkpoint_format: str
    checkpoint_expert_bytes: int
    routed_parameters: int
    other_parameters: int
    mtp_parameters: int
    weights: tuple[WeightGroup, ...]
    cache: tuple[CacheGroup, ...]
    provenance: dict[str, str] = field(hash=False)
    states: tuple[RequestState, ...] = ()
    gpu_format: str = GPU_FORMAT

    @property
    def expert_format(self) -> dict[str, str]:
        """Expert precision in the ``checkpoint``, on the ``gpu`` and, by default, on the ``cpu``."""
        return {"checkpoint": self.checkpoint_format, "gpu": self.gpu_format, "cpu": CPU_FORMAT}

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters: ``total`` without MTP, ``routed`` experts, ``active`` per token (input embedding
        included), and ``mtp``.
        """
        total = self.routed_parameters + self.other_parameters
        return {
            "total": total,
            "routed": self.routed_parameters,
            "active": self.other_parameters + self.routed_parameters * self.top_k // self.experts,
            "mtp": self.mtp_parameters,
        }

    def expert_bytes(self, format: str, *, numa_nodes: int = 1) -> int:
        """Bytes of one whole expert (not its share under tp) in ``format``, by formula.

        The plain formats include biases, as the model's own tensors do; the packed formats are buffers of
        kernels that take the matrices only. ``numa_nodes`` matters to the AMX formats alone.

        Raises
        ------
        BadInputError
            When the format is none of `placer.model.formats.EXPERT_FORMATS`.
        """
        matrices = formats.expert_bytes(
            format, H=self.expert_hidden_size, width=self.expert_intermediate_size, numa_nodes=numa_nodes
        )
        bias_bytes = {"f32": 4, "f16": 2, "bf16": 2}.get(format, 0)
        return matrices + bias_bytes * self.expert_bias_parameters

    def weights_bytes_per_gpu(self, tp: int) -> dict[str, int]:
        """Bytes of non-expert weights on one GPU by class, in the checkpoint's own precision.

        FP8 scales count as the float32 that SGLang keeps, and latent attention includes the bf16 copies that
        SGLang makes of kv_b_proj. ``mtp`` is loaded for speculative decoding only.

        Raises
        ------
        BadInputError
            When ``tp`` does not divide the attention heads.
        """
        self._check_tp(tp)
        return class_bytes_per_gpu(self.weights, tp=tp, kv_heads=self.kv_heads)

    def kv_bytes_per_token_per_gpu(self, tp: int, dtype: str) -> int:
        """Bytes that one cached token takes on one GPU; ``dtype`` is "bf16" or "fp8".

        Raises
        ------
        BadInputError
            When the dtype is another one or ``tp`` does not divide the attention heads.
        """
        self._check_tp(tp)
        return token_bytes(self.cache, tp, dtype)

    def state_bytes_per_request_per_gpu(self, tp: int, dtype: str = "bf16") -> int:
        """Bytes that one running request takes on one GPU beside its tokens: full windows and states.

        Raises
        ------
        BadInputError
            As `kv_bytes_per_token_per_gpu`.
        """
        self._check_tp(tp)
        return request_bytes(self.cache, self.states, tp, dtype)

    def fp8_tp_problem(self, tp: int) -> str | None:
        """Why block FP8 cannot be cut over ``tp`` GPUs, or None.

        A cut must fall between scale blocks, so every width that tp cuts must leave a multiple of 128:
        the routed experts' always, that of shared experts and dense layers when the checkpoint stores them
        in block FP8 (sglang/srt/layers/quantization/fp8.py, create_weights and validate_block_quant_shapes).
        """
        name, width = next(
            ((name, width) for name, width in self._fp8_widths() if _splits_block(width, tp)), ("", 0)
        )
        if not name:
            return None
        working = self._fp8_workable_tp()
        return (
            f"tp {tp} cuts the {name} width {width:,} to {width / tp:,g}, not whole FP8 blocks of 128; "
            f"possible: tp {', '.join(map(str, working))}"
        )

    def check_tp(self, tp: int) -> None:
        """Raise BadInputError where ``tp`` divides the heads unevenly or cuts FP8 blocks."""
        self._check_tp(tp)
        if problem := self.fp8_tp_problem(tp):
            raise BadInputError(problem, "choose a tensor-parallel size that keeps FP8 blocks whole")

    def _fp8_workable_tp(self) -> list[int]:
        return [size for size in self._workable_tp() if not self._fp8_problematic(size)]

    def _fp8_excluded(self) -> str:
        """Why some sizes that divide the heads are not among `_fp8_workable_tp`; empty where all are."""
        cut = [tp for tp in self._workable_tp() if self._fp8_problematic(tp)]
        if not cut:
            return ""
        name, width = next(
            (name, width) for name, width in self._fp8_widths() if _splits_block(width, cut[0])
        )
        sizes = ", ".join(map(str, cut))
        return f" ({sizes} would cut the {name} width {width:,} within FP8 blocks of {_FP8_SIDE})"

    def _fp8_problematic(self, tp: int) -> bool:
        return any(_splits_block(width, tp) for _, width in self._fp8_widths())

    def _fp8_widths(self) -> list[tuple[str, int]]:
        widths = [("experts'", self.expert_intermediate_size)]
        if self.checkpoint_format == "fp8_block":
            widths.append(("shared experts'", self.shared_intermediate_size))
            widths.append(("dense layers'", self.dense_intermediate_size))
        return [(name, width) for name, width in widths if width]

    def _workable_tp(self) -> list[int]:
        return [tp for tp in range(1, _MAX_TP + 1) if self._divides_heads(tp)]

    def _divides_heads(self, tp: int) -> bool:
        if self.query_heads % tp:
            return False
        return self.kv_heads is None or self.kv_heads % tp == 0 or tp % self.kv_heads == 0

    def _check_tp(self, tp: int) -> None:
        if tp < 1 or not self._divides_heads(tp):
            heads = f"{self.query_heads} attention heads"
            if self.kv_heads is not None and self.kv_heads != self.query_heads:
                heads += f" and {self.kv_heads} KV heads"
            raise BadInputError(
                f"tp {tp} does not divide the {heads} of {self.name}",
                f"use --tp {', '.join(map(str, self._fp8_workable_tp()))}{self._fp8_excluded()}",
            )


def _splits_block(width: int, tp: int) -> bool:
    # One GPU holds every block whole, a last partial one too.
    return tp > 1 and (width % tp != 0 or width // tp % _FP8_SIDE != 0)


def read_model(path: Path | str) -> ModelSpec:
    """Read the model at ``path``: a checkpoint directory, one with only config.json, or a config.json.

    Weights are never read. With safetensors files (or an index of them) in the directory, sizes come from
    their headers; otherwise, and for a config.json itself, from formulas. A model of an unknown family needs
    headers, and what is assumed of it is stated.

    Raises
    ------
    BadInputError
        When config.json or a header cannot be used, the model has no experts, or its architecture or
        quantization has no sizing rule (the fields in question are named).
    """
    path = Path(path)
    try:
        return _read(path)
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror or error}", "check the path") from None


def _read(path: Path) -> ModelSpec:
    directory = path if path.is_dir() else None
    config = read_config(path if directory is None else path / "config.json")
    beside, said_by = (
        _quantization_beside(directory) if directory and config.quantization is None else (None, None)
    )
    origin = _config_origin(config) + (f"; quantised by {said_by}" if said_by else "")
    provenance = {"config": origin, "sizes": "safetensors headers"}
    if directory is None or not has_headers(directory):
        plan = blueprint(config, beside)
        provenance["sizes"] = "computed from config.json"
        return _spec(_name(path), config, plan, weigh_by_formula(plan), provenance)
    if knows(config):
        plan = blueprint(config, beside)
        return _spec(_name(path), config, plan, weigh_by_headers(plan, read_headers(directory)), provenance)
    headers = list(read_headers(directory))
    plan = observed_blueprint(config, quantization_of(config, beside), headers)
    return _spec(_name(path), config, plan, weigh_by_headers(plan, headers), provenance)


def _spec(
    name: str, config: Config, plan: Blueprint, weighed: Weighed, provenance: dict[str, str]
) -> ModelSpec:
    provenance = {**provenance, "gpu": _gpu_origin(plan)}
    if plan.assumed:
        provenance["assumed"] = plan.assumed
    if weighed.mismatches:
        provenance["mismatch"] = "; ".join(weighed.mismatches)
    counts = plan.counts
    return ModelSpec(
        name=name,
        architecture=config.architecture or plan.family.architectures[0],
        model_type=config.text("model_type", default=plan.family.model_types[0]),
        config_sha256=config.sha256,
        config=_carried(config),
        num_layers=counts.num_layers,
        moe_layers=counts.moe_layers,
        experts=counts.experts,
        top_k=counts.top_k,
        shared_experts=counts.shared_experts,
        shared_intermediate_size=counts.shared_intermediate_size,
        hidden_size=counts.hidden_size,
        expert_hidden_size=counts.expert_hidden_size,
        expert_intermediate_size=counts.expert_intermediate_size,
        dense_intermediate_size=counts.dense_intermediate_size,
        vocab_size=counts.vocab_size,
        max_context_tokens=counts.max_context_tokens,
        query_heads=counts.query_heads,
        kv_heads=counts.kv_heads,
        expert_bias_parameters=plan.expert_bias_parameters,
        checkpoint_format=plan.expert_format,
        checkpoint_expert_bytes=weighed.expert_bytes,
        routed_parameters=weighed.routed_parameters,
        other_parameters=weighed.other_parameters,
        mtp_parameters=weighed.mtp_parameters,
        weights=weighed.groups,
        cache=plan.cache,
        states=plan.states,
        gpu_format=_gpu_format(plan),
        provenance=provenance,
    )


def _carried(config: Config) -> dict[str, Any]:
    section = config.document.get("quantization_config")
    if not isinstance(section, dict):
        return dict(config.document)
    lists = ("modules_to_not_convert", "ignore")
    short = {key: value for key, value in section.items() if key not in lists}
    return {**config.document, "quantization_config": short}


def _config_origin(config: Config) -> str:
    origin = config.path.name
    if config.nested:
        origin += f", its {config.nested} (other towers of the model are not counted)"
    if not (config.has("torch_dtype") or config.has("dtype")):
        origin += "; it names no torch_dtype, bf16 is assumed"
    return origin


def _gpu_format(plan: Blueprint) -> str:
    return plan.family.hot_formats.get(plan.expert_format, GPU_FORMAT)


def _gpu_origin(plan: Blueprint) -> str:
    if (form := _gpu_format(plan)) != GPU_FORMAT:
        return f"{form}, computed: SGLang keeps this model's experts in the checkpoint's precision"
    H, width = plan.counts.expert_hidden_size, plan.counts.expert_intermediate_size
    if H % _FP8_SIDE == 0 and width % _FP8_SIDE == 0:
        return "block FP8, computed"
    return (
        f"block FP8, computed; {H} x {width} leaves partial blocks of 128, "
        "which SGLang's block-FP8 experts refuse"
    )


def _name(path: Path) -> str:
    """The directory's name; the repository's for a Hugging Face cache snapshot; a lone file's stem."""
    path = path.resolve()
    if path.is_file():
        if path.name != "config.json":
            return path.stem
        path = path.parent
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rsplit("--", 1)[-1]
    return path.name


_BESIDE = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files that quantise a checkpoint whose config.json does not say so, and the method that writes each."""


def _quantization_beside(directory: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The content of such a file as a ``quantization_config``, and its name."""
    for name, method in _BESIDE.items():
        path = directory / name
        if path.exists():
            if not path.is_file() or path.stat().st_size > MAX_CONFIG_BYTES:
                raise BadInputError(
                    f"{path} is no file, or larger than {MAX_CONFIG_BYTES:,} bytes", "check it"
                )
            section = read_document(path, what="quantization config", cure=CONFIG_CURE)
            return {"quant_method": method} | section, name
    return None, None
