"""The flags for stock vLLM: exact KV bytes, whole layers in order, the loss and every trap by name."""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from layerwise import layerwise
from typer.testing import CliRunner
from vllm_server import PYTHON, needs_vllm

from placer.cli import app
from placer.errors import BadInputError
from placer.exports.vllm import export_vllm
from placer.exports.vllm_flags import kv_cache_bytes, layer_offload, offload_gib
from placer.placement import write_placement
from placer.units import GIB
from placer.written_files import LIST


def flags(folder: Path) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((folder / "vllm.yaml").read_text())
    return loaded


def test_the_kv_pool_is_the_plans_in_whole_blocks(tmp_path: Path) -> None:
    # 5,120 tokens are 320 blocks of 16; vLLM keeps one block for itself. 64 bytes a token.
    plan = layerwise(room=170)
    assert kv_cache_bytes(plan) == 321 * 16 * 64
    export_vllm(plan, tmp_path / "out")
    written = flags(tmp_path / "out")
    assert written["kv-cache-memory-bytes"] == 321 * 16 * 64
    assert written["max-num-seqs"] == 8
    assert written["max-num-batched-tokens"] == 2048
    assert "gpu-memory-utilization" not in written


def test_the_first_layers_leave_the_gpu() -> None:
    # Room for two of four layers of 80 bytes: the first two go, though layers 2 and 4 save more when hot.
    offload = layer_offload(layerwise(room=170))
    assert offload.layers == (1, 2)
    assert offload.choice.hot_layers == (3, 4)
    assert offload.bytes_per_gpu == 160
    # Gate and up: 53 bytes, pinned as 64; down: 26, pinned as 32.
    assert offload.pinned_bytes == 2 * (64 + 32)


def test_the_loss_is_the_bytes_in_use_over_the_host_link() -> None:
    # An H100 reads 63 GB/s at 75 %: experts of 1e9 bytes take 21.16 ms each, 4 and 5 of them are in use.
    big = {"checkpoint_expert_bytes": 10**9}
    offload = layer_offload(layerwise(room=16 * 10**9, whole_layers=big, hbm={"expert_bytes": None}))
    assert offload.layers == (1, 2)
    read_ms = 1e9 / (63e9 * 0.75) * 1e3
    assert offload.choice.decode_step_ms == pytest.approx(12 + 9 * read_ms + 2 * 1.0)


@pytest.mark.parametrize("size", [1, 80, 10**9, 123_456_789_012])
def test_the_budget_never_reaches_into_the_next_tensor(size: int) -> None:
    # vLLM goes on while what it has offloaded is below the budget.
    budget = int(offload_gib(size) * GIB)
    assert budget < size
    assert size - budget <= GIB / 1e6 + 1


def test_every_note_has_its_cause(tmp_path: Path) -> None:
    def notes(**changes: object) -> str:
        return "\n".join(export_vllm(layerwise(**{"room": 170, **changes}), tmp_path / "out").notes)  # type: ignore[arg-type]

    plain = notes()
    assert "places experts by the layer" in plain
    assert "from layer 1 to layer 2" in plain
    assert "powers of two" in plain
    assert "predicted decode step" in plain
    assert "repacked" not in plain
    assert "every expert fits" in notes(room=320)
    assert "repacked" in notes(whole_layers={"checkpoint_format": "mxfp4"})
    assert "not stated: no datasheet says how fast 'unknown'" in notes(
        hardware={"gpu": {"name": "unknown", "provenance": "measured"}}
    )
    assert "not stated: the placement holds no per-layer times" in notes(predicted={"per_layer_ms": None})


def test_a_plan_that_drafts_is_refused(tmp_path: Path) -> None:
    plan = layerwise(room=170)
    speculation = {"draft_tokens": 2, "kv_bytes_per_token_per_gpu": 0}
    drafting = plan.model_copy(update={"kv": plan.kv.model_copy(update={"speculation": speculation})})
    with pytest.raises(BadInputError, match="drafting"):
        export_vllm(drafting, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_the_folder_and_refuses_flags_of_another_runtime(tmp_path: Path) -> None:
    write_placement(layerwise(room=170), tmp_path / "placement.json")
    command = ["export", str(tmp_path / "placement.json"), "--runtime", "vllm", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        LIST,
        "README.md",
        "launch.sh",
        "vllm.yaml",
    ]
    assert "Total CPU offloaded parameters" in (tmp_path / "out" / "README.md").read_text()
    subprocess.run(["bash", "-n", str(tmp_path / "out" / "launch.sh")], check=True)
    with pytest.raises(BadInputError, match="--record is for --runtime sglang-kt"):
        CliRunner().invoke(app, [*command, "--record"], catch_exceptions=False)


@pytest.mark.runtime
@needs_vllm
def test_vllms_own_parser_takes_every_flag(tmp_path: Path) -> None:
    export_vllm(layerwise(room=170), tmp_path / "out")
    script = f"""
import json
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
parser.add_argument("--config")
args = parser.parse_args(["--model", "m", "--config", {str(tmp_path / "out" / "vllm.yaml")!r}])
names = ["kv_cache_memory_bytes", "cpu_offload_gb", "cpu_offload_params", "offload_backend", "max_num_seqs"]
print(json.dumps({{name: str(getattr(args, name)) for name in names}}))
"""
    answer = subprocess.run(
        [str(PYTHON), "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"},
    )
    parsed = json.loads(answer.stdout.splitlines()[-1])
    assert int(parsed["kv_cache_memory_bytes"]) == 321 * 16 * 64
    assert parsed["offload_backend"] == "uva"
    assert "experts" in parsed["cpu_offload_params"]
    assert parsed["max_num_seqs"] == "8"
    assert math.isclose(float(parsed["cpu_offload_gb"]), offload_gib(160), abs_tol=1e-9)
