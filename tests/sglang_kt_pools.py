"""The pools that sglang-kt 0.7.2 allocates for a model and its flags: its own code, on torch's meta device."""

import dataclasses
import logging
import sys
from abc import ABC
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sglang_kt_source import definitions, hf_config

GIB = 2**30
_POOLS = {
    "KVCache",
    "MHATokenToKVPool",
    "MLATokenToKVPool",
    "NSATokenToKVPool",
    "HybridLinearKVPool",
    "MambaPool",
    "ReqToTokenPool",
    "HybridReqToTokenPool",
    "get_tensor_size_bytes",
    "GB",
}
_V4_POOLS = {
    "get_compress_state_ring_size",
    "DeepSeekV4SingleKVPool",
    "DeepSeekV4IndexerPool",
    "DeepSeekV4LayerItem",
    "DeepSeekV4TokenToKVPool",
}
_DTYPES = {"bf16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn}


def _torch() -> SimpleNamespace:
    """torch as it is, but on a GPU of compute capability 9.0 and with every buffer on the meta device."""
    cuda = SimpleNamespace(get_device_capability=lambda: (9, 0), use_mem_pool=lambda _pool: nullcontext())
    names = {name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")}
    names["cuda"] = cuda
    names["get_device_module"] = lambda _device: None
    for name in ("zeros", "empty"):
        made = getattr(torch, name)
        names[name] = lambda *args, made=made, **kwargs: made(*args, **{**kwargs, "device": "meta"})
    return SimpleNamespace(**names)


class _Anything:
    """Stands for what the pools import and do not need on this device."""

    @staticmethod
    def create(**_options: Any) -> "_Anything":
        return _Anything()

    def region(self, _kind: object) -> Any:
        return nullcontext()


def _given() -> dict[str, Any]:
    return {
        "torch": _torch(),
        "np": np,
        "abc": SimpleNamespace(ABC=ABC, abstractmethod=lambda function: function),
        "dataclasses": dataclasses,
        "dataclass": dataclass,
        "field": field,
        "nullcontext": nullcontext,
        "contextmanager": contextmanager,
        "logger": logging.getLogger("sglang-kt"),
        "logging": logging,
        "GPU_MEMORY_TYPE_KV_CACHE": "kv",
        "TorchMemorySaverAdapter": _Anything,
        "maybe_init_custom_mem_pool": lambda device: (False, None, None),
        "_is_cuda": False,
        "_is_npu": False,
        "_is_cpu": False,
        "_cpu_has_amx_support": False,
        "_is_hip": False,
        "ABC": ABC,
    }


def _v4_modules(patch: pytest.MonkeyPatch, given: dict[str, Any], pools: dict[str, Any]) -> None:
    """The modules that the runtime imports for DeepSeek-V4 while it makes the pools."""
    from typing import NamedTuple

    states = definitions("srt/mem_cache/compress_state.py", {"KVAndScore", "CompressStatePool"}, given)
    environment = SimpleNamespace(SGLANG_OPT_CACHE_SWA_TRANSLATION=SimpleNamespace(get=lambda: False))
    v4 = definitions(
        "srt/mem_cache/deepseekv4_memory_pool.py",
        _V4_POOLS,
        {
            **given,
            "KVCache": pools["KVCache"],
            "CompressStatePool": states["CompressStatePool"],
            "NamedTuple": NamedTuple,
            "envs": environment,
            "ceil_div": lambda value, by: -(-value // by),
            "get_global_server_args": lambda: given["server_args"],
        },
    )
    world = SimpleNamespace(world_size=1, cpu_group=None)
    profiler = definitions(
        "srt/model_executor/memory_profiler.py",
        {"DSv4PoolSizes", "DSv4MemoryCalculator", "profile_available_bytes"},
        {**given, "get_world_group": lambda: world, **v4},
    )
    nextn = {"COMPRESS_RATIO_NEXTN_LAYER": 0}
    registry = {"resolve_kv_pool_factory": lambda *_: ("deepseek_v4", v4["DeepSeekV4TokenToKVPool"])}
    common = {"get_available_gpu_memory": lambda *_, **__: given["free_gib"]}
    for name, content in {
        "sglang.srt.model_executor.memory_profiler": profiler,
        "sglang.srt.mem_cache.pool_registry": registry,
        "sglang.srt.mem_cache.deepseekv4_memory_pool": v4,
        "sglang.srt.models.deepseek_v4_nextn": nextn,
        "sglang.srt.utils.common": common,
    }.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        for at in range(1, name.count(".") + 1):
            parent = ".".join(name.split(".")[:at])
            patch.setitem(sys.modules, parent, sys.modules.get(parent) or ModuleType(parent))
        patch.setitem(sys.modules, name, module)


def allocated(
    patch: pytest.MonkeyPatch, config: dict[str, Any], flags: dict[str, Any], *, tp: int, **memory: float
) -> dict[str, int]:
    """What the runtime's ``init_memory_pool`` allocates per GPU: bytes of the pools, and tokens it holds.

    ``flags`` are those of an exported config.yaml; ``memory`` is ``total_gib``, free before weights are loaded,
    and ``free_gib``, free after.
    """
    server_args = SimpleNamespace(
        max_running_requests=int(flags["max-running-requests"]),
        max_total_tokens=int(flags["max-total-tokens"]),
        page_size=int(flags.get("page-size", 1)),
        swa_full_tokens_ratio=float(flags.get("swa-full-tokens-ratio", 0.8)),
        max_mamba_cache_size=flags.get("max-mamba-cache-size"),
        mamba_full_memory_ratio=0.9,
        mem_fraction_static=float(flags["mem-fraction-static"]),
        speculative_algorithm=flags.get("speculative-algorithm"),
        speculative_num_draft_tokens=flags.get("speculative-num-draft-tokens"),
        disable_radix_cache=_radix_off(config, flags),
        enable_mamba_extra_buffer=lambda: False,
        enable_dp_attention=False,
        disaggregation_mode="null",
        attention_backend=None,
        enable_double_sparsity=False,
        enable_memory_saver=False,
        enable_pdmux=False,
        nsa_prefill_backend=None,
        nsa_decode_backend=None,
    )
    given = {**_given(), "server_args": server_args, "free_gib": memory["free_gib"]}
    pools = definitions("srt/mem_cache/memory_pool.py", _POOLS, given)
    swa = definitions(
        "srt/mem_cache/swa_memory_pool.py", {"SWAKVPool", "GB"}, {**given, **_picked(pools, _POOLS)}
    )
    _v4_modules(patch, given, pools)
    world = SimpleNamespace(world_size=1, cpu_group=None)
    mixin = definitions(
        "srt/model_executor/model_runner_kv_cache_mixin.py",
        {
            "ModelRunnerKVCacheMixin",
            "MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO",
            "MAMBA_CACHE_V2_ADDITIONAL_RATIO_OVERLAP",
            "MAMBA_CACHE_V2_ADDITIONAL_RATIO_NO_OVERLAP",
        },
        {
            **given,
            **_picked(pools, _POOLS),
            "SWAKVPool": swa["SWAKVPool"],
            **{
                name: lambda *_, **__: None
                for name in (
                    "TokenToKVPoolAllocator",
                    "PagedTokenToKVPoolAllocator",
                    "SWATokenToKVPoolAllocator",
                )
            },
            "get_available_gpu_memory": lambda *_, **__: memory["free_gib"],
            "get_world_group": lambda: world,
            "get_attention_tp_size": lambda: tp,
            "is_deepseek_compressed": lambda read: bool(getattr(read, "compress_ratios", None)),
            "is_deepseek_nsa": lambda read: (
                getattr(read, "index_topk", None) is not None and not getattr(read, "compress_ratios", None)
            ),
            "is_minimax_sparse": lambda _read: False,
            "is_float4_e2m1fn_x2": lambda _dtype: False,
            "get_nsa_index_head_dim": lambda read: read.index_head_dim,
        },
    )["ModelRunnerKVCacheMixin"]
    model = _model_config(config, tp)
    model.context_len = int(flags["context-length"])
    runner = type("Runner", (mixin,), {})()
    vars(runner).update(
        server_args=server_args,
        model_config=model,
        kv_cache_dtype=torch.uint8 if model.compress_ratios else _DTYPES[str(flags["kv-cache-dtype"])],
        use_mla_backend=model.is_mla,
        is_hybrid_swa=model.is_hybrid_swa,
        is_hybrid_swa_compress=model.is_hybrid_swa_compress,
        sliding_window_size=128,
        is_draft_worker=False,
        num_effective_layers=model.num_layers,
        start_layer=0,
        end_layer=model.num_layers,
        mambaish_config=model.mambaish,
        hybrid_gdn_config=model.mambaish,
        spec_algorithm=SimpleNamespace(is_none=lambda: server_args.speculative_algorithm is None),
        mem_fraction_static=server_args.mem_fraction_static,
        total_gpu_memory=memory["total_gib"],
        page_size=server_args.page_size,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        dtype=torch.bfloat16,
        device="meta",
        gpu_id=0,
        pp_size=1,
        dp_size=1,
        enable_hisparse=False,
    )
    runner.init_memory_pool()
    states = getattr(runner.req_to_token_pool, "mamba_pool", None)
    return {
        "tokens": runner.max_total_num_tokens,
        "requests": runner.req_to_token_pool.size,
        "request_table": _buffers(runner.req_to_token_pool.req_to_token),
        "kv_pool": _buffers(runner.token_to_kv_pool, skip=states),
        "request_state": 0 if states is None else int(states.mamba_cache.mem_usage_bytes()),
    }


def _picked(namespace: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: namespace[name] for name in names}


def _radix_off(config: dict[str, Any], flags: dict[str, Any]) -> bool:
    """As _handle_mamba_radix_cache sets it."""
    linear = "linear_num_value_heads" in config.get("text_config", config)
    return (linear and "speculative-algorithm" in flags) or "linear_attn_config" in config


def _buffers(pool: object, *, skip: object = None) -> int:
    """Bytes of every buffer that a pool, its own pools and their lists hold."""
    seen: set[int] = {id(skip)}

    def total(value: object) -> int:
        if id(value) in seen:
            return 0
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            # Lists of addresses are not cache.
            return 0 if value.dim() == 1 else value.numel() * value.element_size()
        if isinstance(value, list | tuple):
            return sum(map(total, value))
        if type(value).__name__.endswith(("Pool", "KVAndScore")):
            return sum(map(total, vars(value).values()))
        return 0

    return total(pool)


def _model_config(config: dict[str, Any], tp: int) -> SimpleNamespace:
    """The fields of the runtime's ModelConfig that its pools read, by its own rules where they are rules."""
    rules = definitions(
        "srt/configs/model_config.py",
        {"is_hybrid_swa_model", "get_hybrid_layer_ids", "ModelConfig"},
        {"logger": logging.getLogger("sglang-kt"), "ModelImpl": SimpleNamespace(AUTO="auto")},
    )
    read = hf_config(config)
    text = getattr(read, "text_config", read)
    model = SimpleNamespace(hf_config=read, hf_text_config=text, disable_hybrid_swa_memory=False)
    shape = rules["ModelConfig"]
    shape._derive_hybrid_model(model)
    model.is_mla = hasattr(text, "kv_lora_rank")
    model.num_layers = text.num_hidden_layers
    model.head_dim = getattr(text, "head_dim", 0)
    model.v_head_dim = getattr(text, "v_head_dim", model.head_dim)
    model.swa_head_dim = getattr(text, "swa_head_dim", model.head_dim)
    model.swa_v_head_dim = getattr(text, "swa_v_head_dim", model.v_head_dim)
    model.get_num_kv_heads = lambda size: max(1, text.num_key_value_heads // size)
    model.get_swa_num_kv_heads = lambda size: shape.get_swa_num_kv_heads(model, size)
    for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "index_head_dim"):
        setattr(model, name, getattr(text, name, None))
    model.compress_ratios = getattr(text, "compress_ratios", None)
    if model.compress_ratios:
        model.qk_nope_head_dim = text.head_dim - text.qk_rope_head_dim
        model.window_size = text.sliding_window
    model.mambaish = _recurrent(text, tp)
    return model


def _recurrent(text: SimpleNamespace, tp: int) -> SimpleNamespace | None:
    """Shapes of the recurrent states, by the runtime's own classes."""
    if not hasattr(text, "linear_num_value_heads"):
        return None
    environment = SimpleNamespace(
        SGLANG_MAMBA_CONV_DTYPE=SimpleNamespace(get=lambda: "bfloat16"),
        SGLANG_MAMBA_SSM_DTYPE=SimpleNamespace(get=lambda: None),
    )
    shapes = definitions(
        "srt/configs/mamba_utils.py",
        {
            "extra_groups_for_head_shards",
            "Mamba2StateDType",
            "mamba2_state_dtype",
            "BaseLinearStateParams",
            "Mamba2StateShape",
            "Mamba2CacheParams",
        },
        {
            **_given(),
            "torch": torch,
            "envs": environment,
            "divide": lambda value, by: value // by,
        },
    )
    every = getattr(text, "full_attention_interval", 4)
    kinds = getattr(text, "layer_types", None) or [
        "linear_attention" if (layer + 1) % every else "full_attention"
        for layer in range(text.num_hidden_layers)
    ]
    params = shapes["Mamba2CacheParams"](
        shape=shapes["Mamba2StateShape"].create(
            tp_world_size=tp,
            intermediate_size=text.linear_value_head_dim * text.linear_num_value_heads,
            n_groups=text.linear_num_key_heads,
            num_heads=text.linear_num_value_heads,
            head_dim=text.linear_value_head_dim,
            state_size=text.linear_key_head_dim,
            conv_kernel=text.linear_conv_kernel_dim,
        ),
        layers=[layer for layer, kind in enumerate(kinds) if kind == "linear_attention"],
        dtype=shapes["mamba2_state_dtype"](text),
    )
    full = [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    return SimpleNamespace(mamba2_cache_params=params, full_attention_layer_ids=full)
