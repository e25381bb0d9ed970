"""The unmodified source of sglang-kt 0.7.2, run without the rest of the server.

sglang-kt needs CUDA libraries to import. What is run here are whole functions, classes and modules of its
installed files, compiled as they stand; only the imports that they make are given by the tests.
"""

import __future__

import argparse
import ast
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

REPOSITORY = Path(__file__).parents[1]


def source(path: str) -> Path:
    """A file of the installed package, or a skip that says how to have it."""
    root = Path(os.environ.get("PLACER_SGLANG_KT") or REPOSITORY / ".runtimes" / "sglang-kt")
    if not (root / "sglang" / path).is_file():
        pytest.skip(
            f"needs sglang/{path} of sglang-kt 0.7.2: make test-runtimes, or PLACER_SGLANG_KT=<its folder>"
        )
    return root / "sglang" / path


def definitions(path: str, names: set[str], given: dict[str, Any]) -> dict[str, Any]:
    """Top-level definitions of a file, made anew from its own text; ``given`` are their imports."""
    namespace = dict(given)
    exec(_compiled(source(path), frozenset(names)), namespace)
    return namespace


@cache
def _compiled(file: Path, names: frozenset[str]) -> CodeType:
    chosen = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if names & _names(node)]
    assert {name for node in chosen for name in _names(node)} >= names, f"{file} does not define {names}"
    # Annotations name types that are not imported here; as text they are never evaluated.
    flags = __future__.annotations.compiler_flag
    return compile(ast.Module(body=chosen, type_ignores=[]), str(file), "exec", flags=flags)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return {target.id for target in targets if isinstance(target, ast.Name)}


STRATEGIES = {
    "generate_front_loading_masks",
    "generate_uniform_masks",
    "generate_random_masks",
}


def mask_functions() -> dict[str, Any]:
    """The functions of kt_ep_wrapper.py that make the hot mask, on rank 0 of one process."""
    experts_base = pytest.importorskip("kt_kernel.experts_base", reason="needs kt-kernel 0.7.2")
    return definitions(
        "srt/layers/moe/kt_ep_wrapper.py",
        STRATEGIES | {"_KT_GPU_EXPERTS_MASKS", "_init_kt_gpu_experts_masks"},
        {
            "torch": torch,
            "dist": torch.distributed,
            "logger": logging.getLogger("sglang-kt"),
            "get_tensor_model_parallel_rank": lambda: 0,
            "generate_gpu_experts_masks": experts_base.generate_gpu_experts_masks,
        },
    )


def hf_config(config: dict[str, Any]) -> SimpleNamespace:
    """A config.json as the object of attributes that the runtime reads."""
    text = config.get("text_config")
    return SimpleNamespace(**{**config, **({"text_config": hf_config(text)} if text else {})})


def runtime_mask(config: dict[str, Any], counts_file: Path, **server_args: Any) -> torch.Tensor:
    """The mask that the runtime makes of a file: bool [num_layers, E], by its own code."""
    functions = mask_functions()
    arguments = SimpleNamespace(
        get_hf_config=lambda: hf_config(config),
        init_expert_location=str(counts_file),
        kt_gpu_experts_ratio=server_args["kt_gpu_experts_ratio"],
        kt_num_gpu_experts=server_args.get("kt_num_gpu_experts"),
        kt_expert_placement_strategy=server_args.get("kt_expert_placement_strategy", "frequency"),
    )
    mask: torch.Tensor = functions["_init_kt_gpu_experts_masks"](arguments)
    return mask


class NotImported:
    """Stands for a name that server_args.py imports and that no flag of ours comes near."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "NotImported":
        if name.startswith("__"):
            raise AttributeError(name)
        return NotImported(f"{self._name}.{name}")

    def __call__(self, *_: object, **__: object) -> "NotImported":
        return self

    def __iter__(self) -> Any:
        return iter(())


def server_args_module() -> ModuleType:
    """server_args.py with its own code and its imports from the standard library; others stand empty."""
    file = source("srt/server_args.py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    foreign = [node for node in tree.body if _is_foreign(node)]
    module = ModuleType("sglang_kt_server_args")
    # The lists that choices are made of must be lists.
    lists: dict[str, Any] = {"SUPPORTED_LORA_TARGET_MODULES": [], "LORA_TARGET_ALL_MODULES": "all"}
    for node in foreign:
        assert isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names:
            name = alias.asname or alias.name
            setattr(module, name, lists.get(name, NotImported(name)))
    kept = [node for node in tree.body if node not in foreign]
    sys.modules[module.__name__] = module
    exec(compile(ast.Module(body=kept, type_ignores=[]), str(file), "exec"), module.__dict__)
    return module


def _is_foreign(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] not in sys.stdlib_module_names for alias in node.names)
    return (
        isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] not in sys.stdlib_module_names
    )


def server_parser(module: ModuleType) -> argparse.ArgumentParser:
    """The runtime's own argument parser."""
    parser = argparse.ArgumentParser()
    module.ServerArgs.add_cli_args(parser)
    return parser


def config_merger(parser: argparse.ArgumentParser) -> Callable[[list[str]], list[str]]:
    """The runtime's own reader of ``--config``: arguments with the file's flags put in."""
    file = source("srt/server_args_config_parser.py")
    spec = importlib.util.spec_from_file_location("sglang_kt_config_parser", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    merge: Callable[[list[str]], list[str]] = module.ConfigArgumentMerger(parser).merge_config_with_args
    return merge
