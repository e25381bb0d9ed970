"""What a placement cannot be honoured in does not start, and says why on one line."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from placements import placement_dict
from vllm_server import PYTHON, needs_plugin, vllm_server

from placer.examples import example_folder
from placer.exports.runtimes import export_placement
from placer.exports.vllm_log import check_vllm_log

pytestmark = [pytest.mark.runtime, needs_plugin]

HERE = Path(__file__).resolve().parent
TINY = example_folder("tiny-moe")
HOT = {0: [1, 2], 4: [0]}


def plan(
    folder: Path, name: str, *, model: Path = TINY, experts: int = 16, layers: int = 5, tp: int = 1
) -> str:
    content = placement_dict(HOT, layers=range(layers), experts=experts, top_k=4, tp=tp)
    content["model"]["architecture"] = "Qwen3MoeForCausalLM"
    content["model"]["config_sha256"] = hashlib.sha256((model / "config.json").read_bytes()).hexdigest()
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


def other_model(folder: Path, **changes: Any) -> Path:
    """The example's checkpoint under a changed config.json."""
    folder.mkdir()
    for file in TINY.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    config = json.loads((TINY / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("start")
    good = plan(folder, "good.json")
    (folder / "damaged.json").write_text(Path(good).read_text()[:500])
    seven = other_model(folder / "seven", num_experts_per_tok=7)
    phi = other_model(folder / "phi", architectures=["PhiMoEForCausalLM"])
    starts: list[dict[str, Any]] = []

    def start(name: str, path: str, *, model: Path = TINY, **rest: Any) -> None:
        arguments = {"model": str(model), "dtype": "float32", **rest.pop("arguments", {})}
        environment = {"PLACER_PLACEMENT": path, **rest.pop("environment", {})}
        starts.append({"name": name, "environment": environment, "arguments": arguments, **rest})

    start("no path", "")
    start("no file", str(folder / "none.json"))
    start("damaged", str(folder / "damaged.json"))
    start("another model", good, model=seven)
    start("other layers", plan(folder, "layers.json", layers=7))
    start("fewer layers", plan(folder, "fewer.json", layers=5, experts=15))
    start("other experts per token", plan(folder, "seven.json", model=seven), model=seven)
    start("tp plan", plan(folder, "tp.json", tp=2))
    start("unknown model class", plan(folder, "phi.json", model=phi), model=phi)
    start("no kt-kernel", good, environment={"PLACER_COLD": "kt"}, without="kt_kernel")
    start("unknown cold path", good, environment={"PLACER_COLD": "gpu"})
    start("no threads", good, environment={"PLACER_COLD_THREADS": "0"})
    start("too many threads", good, environment={"PLACER_COLD": "kt", "PLACER_COLD_THREADS": "999"})
    start("another version", good, version=(0, 33, 0))
    start("lora", good, arguments={"enable_lora": True})
    start("tensor parallel", good, arguments={"tensor_parallel_size": 2})
    start("random weights", good, arguments={"load_format": "dummy"})
    start("offload", good, arguments={"cpu_offload_gb": 1})
    start("transformers", good, arguments={"model_impl": "transformers"})
    job, out, log = folder / "job.json", folder / "out.json", folder / "vllm.log"
    job.write_text(json.dumps(starts))
    environment = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    with log.open("w") as file:
        command = [str(PYTHON), str(HERE / "vllm_start.py"), str(job), str(out)]
        code = subprocess.run(
            command, env=environment, stdout=file, stderr=file, check=False, timeout=300
        ).returncode
    if code:
        sys.stderr.write(log.read_text()[-6000:])
        raise AssertionError(f"exit code {code}; the end of its log is above")
    reasons: dict[str, dict[str, str]] = json.loads(out.read_text())
    return reasons


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("no path", "PLACER_PLACEMENT is empty"),
        ("no file", "none.json: No such file or directory"),
        ("damaged", "damaged.json is damaged"),
        ("another model", "was made for tiny-moe with a config.json of sha256"),
        ("other layers", "the model has no MoE layer [5, 6]"),
        ("fewer layers", "MoE layer 0 has 16 experts, and the plan 15"),
        ("other experts per token", "MoE layer 0 has 7 experts per token, and the plan 4"),
        ("tp plan", "the plan is for tp 2"),
        ("unknown model class", "the plugin does not know PhiMoEForCausalLM"),
        ("no kt-kernel", "PLACER_COLD is kt, and kt-kernel is not installed"),
        ("unknown cold path", "PLACER_COLD is 'gpu'"),
        ("no threads", "PLACER_COLD_THREADS is '0'"),
        ("too many threads", "999 threads were asked for"),
        ("another version", "the plugin works with 0.32 alone"),
        ("lora", "--enable-lora does not go with a placement"),
        ("tensor parallel", "--tensor-parallel-size is 2"),
        ("random weights", "--load-format dummy is not read expert by expert"),
        ("offload", "--cpu-offload-gb does not go with a placement"),
        ("transformers", "--model-impl transformers goes round vLLM's own layers"),
    ],
)
def test_a_start_is_refused_on_one_line(reasons: dict[str, dict[str, str]], start: str, says: str) -> None:
    reason = reasons[start]
    assert reason["kind"] == "Refusal", reason
    assert reason["message"].startswith("placer refuses to start vLLM: ")
    assert says in reason["message"]
    assert "\n" not in reason["message"]


def test_an_exported_script_starts_a_server_that_holds_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(plan(tmp_path, "plan.json"))
    export_placement(path, tmp_path / "out", runtime="vllm-plugin")
    monkeypatch.setenv("PLACER_COLD", "torch")
    # The plan's KV numbers are made up; what is given to the script wins over its file.
    flags = ("--kv-cache-memory-bytes", str(2**26), "--max-model-len", "512")
    with vllm_server(TINY, tmp_path, *flags, launch=tmp_path / "out" / "launch.sh") as url:
        body = json.dumps({"model": "tiny-moe", "prompt": "import os", "max_tokens": 4}).encode()
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
    applied = check_vllm_log(path, tmp_path / "vllm.log")
    assert applied.same, applied
    assert str(applied.rows[0].found).endswith("cold experts by torch INT4")


def test_a_server_with_a_damaged_plan_ends_with_that_line(tmp_path: Path) -> None:
    (tmp_path / "damaged.json").write_text("{")
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(TINY)]
    environment = os.environ | {"PLACER_PLACEMENT": str(tmp_path / "damaged.json"), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 1
    assert "placer refuses to start vLLM: placement" in ended.stderr.splitlines()[-1]
