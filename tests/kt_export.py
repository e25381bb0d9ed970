"""A small plan and its model for tests of an sglang-kt export, and a machine to run its scripts on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from placements import FP8, placement

from placer.placement import PlacementDocument

CONFIG = {
    "model_type": "tiny_moe",
    "num_hidden_layers": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "hidden_size": 256,
    "moe_intermediate_size": 128,
    "max_position_embeddings": 40960,
    "quantization_config": FP8,
}


def plan(**changes: Any) -> PlacementDocument:
    hot = changes.pop("hot", {1: [2, 0], 2: [], 3: [1, 3, 0, 2]})
    return placement(hot, layers=[1, 2, 3], experts=4, **changes)


FILES = (
    "init_expert_location.pt",
    "config.yaml",
    "README.md",
    "placement.json",
    "launch.sh",
    "preflight.sh",
    "benchmark.sh",
    "record.sh",
)
SCRIPTS = [name for name in FILES if name.endswith(".sh")]


SERVER = """
import json, os, sys
json.dump([sys.argv[1:], os.environ.get("SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR")], sys.stdout)
"""


def make_machine(root: Path) -> Path:
    """A machine with an FP8 checkpoint, CPU weights, and a package that stands for sglang-kt 0.7.2."""
    site = root / "site"
    (site / "sglang").mkdir(parents=True)
    (site / "sglang" / "__init__.py").touch()
    (site / "sglang" / "launch_server.py").write_text(SERVER)
    install(root, "0.7.2")
    install(root, "0.7.2", "kt-kernel")
    (root / "fp8 model").mkdir()
    (root / "fp8 model" / "config.json").write_text(json.dumps(CONFIG))
    (root / "weights").mkdir()
    return root


def install(machine: Path, version: str, name: str = "sglang-kt") -> None:
    module = name.replace("-", "_")
    for old in (machine / "site").glob(f"{module}-*.dist-info"):
        shutil.rmtree(old)
    info = machine / "site" / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def launch(
    folder: Path, machine: Path, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    given = {
        "PATH": os.environ["PATH"],
        "PYTHON": sys.executable,
        "PYTHONPATH": str(machine / "site"),
        "MODEL_PATH": str(machine / "fp8 model"),
        "KT_WEIGHT_PATH": str(machine / "weights"),
    }
    return subprocess.run(
        [folder / "launch.sh", *arguments],
        env={name: value for name, value in (given | environment).items() if value},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=machine,
    )


def script(folder: Path, name: str, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A script of the export, with ``folder``'s bin first on the path."""
    given = {"PATH": f"{folder}/bin:{os.environ['PATH']}", **environment}
    return subprocess.run(
        [folder / "out" / name, *words], env=given, capture_output=True, text=True, timeout=60, check=False
    )


def program(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(text)
    (folder / "bin" / name).chmod(0o755)
