"""The export for vLLM with placer's plugin: the plan itself, flags, a start that cannot go past it, and its log."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from placements import placement_dict
from typer.testing import CliRunner

from placer.cli import app
from placer.errors import BadInputError
from placer.exports.runtimes import export_placement
from placer.exports.vllm_log import check_vllm_log
from placer.runtime import load
from placer.runtime.vllm.applied import AppliedLayer, AppliedPlan, hot_digest

HOT = {1: [2, 0], 3: []}


def plan(folder: Path, **changes: Any) -> Path:
    """Layers 1 and 3 of 4 experts of a model class that the plugin runs."""
    content = placement_dict(HOT, layers=[1, 3], experts=4, **changes)
    content["model"]["architecture"] = "Qwen3MoeForCausalLM"
    path = folder / "plan.json"
    path.write_text(json.dumps(content))
    return path


def export(path: Path, out: Path) -> None:
    export_placement(path, out, runtime="vllm-plugin")


def test_the_plan_goes_along_byte_for_byte_with_the_flags_it_depends_on(tmp_path: Path) -> None:
    path = plan(tmp_path)
    export(path, tmp_path / "out")
    assert (tmp_path / "out" / "placement.json").read_bytes() == path.read_bytes()
    flags = yaml.safe_load((tmp_path / "out" / "vllm.yaml").read_text())
    # 5,120 tokens are 320 blocks of 16, and vLLM keeps one for itself; nothing is offloaded by vLLM.
    assert flags["kv-cache-memory-bytes"] == 321 * 16 * 64
    assert not [name for name in flags if "offload" in name]
    launch = (tmp_path / "out" / "launch.sh").read_text()
    assert 'PLACER_COLD="${PLACER_COLD:-kt}"' in launch
    assert 'PLACER_COLD_THREADS="${PLACER_COLD_THREADS:-32}"' in launch
    assert "@" not in launch.replace('"$@"', "")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cpu_method": "AMXINT4"}, "timed with AMXINT4"),
        ({"tp": 2}, "for tp 2"),
    ],
)
def test_what_the_plugin_would_refuse_is_not_exported(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadInputError, match=says):
        export(plan(tmp_path, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_class_that_the_plugin_does_not_know_is_not_exported(tmp_path: Path) -> None:
    path = plan(tmp_path)
    path.write_text(path.read_text().replace("Qwen3MoeForCausalLM", "OtherForCausalLM"))
    with pytest.raises(BadInputError, match="does not run OtherForCausalLM"):
        export(path, tmp_path / "out")


def start(out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What launch.sh does with this Python, which has placer and its entry point but no vLLM."""
    (out / "config.json").write_text("{}")
    command = ["bash", str(out / "launch.sh"), "--port", "1"]
    settings = {"PYTHON": sys.executable, "MODEL_PATH": str(out), **environment}
    kept = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
    return subprocess.run(command, env=kept | settings, capture_output=True, text=True, check=False)


def test_launch_does_not_start_a_server_that_would_not_call_the_plugin(tmp_path: Path) -> None:
    export(plan(tmp_path), tmp_path / "out")
    left_out = start(tmp_path / "out", VLLM_PLUGINS="other")
    assert (left_out.returncode, left_out.stderr) == (
        2,
        "launch.sh: VLLM_PLUGINS leaves placer out: add it, or unset the variable\n",
    )
    lacking = start(tmp_path / "out", MODEL_PATH="/none")
    assert (lacking.returncode, "MODEL_PATH=/none is not a directory" in lacking.stderr) == (2, True)
    if find_spec("vllm") is None:
        unserved = start(tmp_path / "out")
        assert (unserved.returncode, "vllm is not installed for" in unserved.stderr) == (2, True)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    without = start(tmp_path / "out", PYTHON=str(bare))
    assert without.returncode == 2
    assert "launch.sh: placer is not installed for" in without.stderr
    (tmp_path / "out" / "placement.json").unlink()
    missing = start(tmp_path / "out")
    assert missing.returncode == 2
    assert "placement.json is missing" in missing.stderr


def log(path: Path, *, hot: dict[int, list[int]], sha256: str | None = None, applied: bool = True) -> str:
    """What a server says that holds these experts."""
    layers = [AppliedLayer(n, 4, len(ids), 4 - len(ids), 10, 10, hot_digest(ids)) for n, ids in hot.items()]
    last = AppliedPlan(
        len(hot), sum(map(len, hot.values())), sha256 or load(path).sha256, "kt RAWINT4, 3 threads"
    )
    return "\n".join(each.line() for each in (*layers, *([last] if applied else [])))


def test_a_log_of_the_plan_passes(tmp_path: Path) -> None:
    path, server = plan(tmp_path), tmp_path / "server.log"
    server.write_text("INFO starting\n" + log(path, hot={1: [0, 2], 3: []}) + "\nINFO ready\n")
    applied = check_vllm_log(path, server)
    assert applied.same
    assert [row.planned for row in applied.rows[1:-1]] == ["2 of 4 experts hot", "0 of 4 experts hot"]
    command = ["export", str(path), "--runtime", "vllm-plugin", "--check-log", str(server)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "the server runs the plan: 3 checks agree" in result.output


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"applied": False}, [("placement applied", None)]),
        (
            {"sha256": "0" * 64},
            [("placement applied", f"sha256 {'0' * 12}, cold experts by kt RAWINT4, 3 threads")],
        ),
        ({"hot": {1: [0, 2]}}, [("layer 3", None)]),
        ({"hot": {1: [0, 1], 3: []}}, [("layer 1", "2 of 4 experts hot, other ones")]),
        ({"hot": {1: [0, 2], 3: [1]}}, [("layer 3", "1 of 4 experts hot")]),
    ],
)
def test_a_log_of_anything_else_does_not(
    tmp_path: Path, changes: dict[str, Any], says: list[tuple[str, str | None]]
) -> None:
    path, server = plan(tmp_path), tmp_path / "server.log"
    server.write_text(log(path, **{"hot": {1: [0, 2], 3: []}, **changes}))
    applied = check_vllm_log(path, server)
    assert [(row.what, row.found) for row in applied.rows if row.same is False] == says
    command = ["export", str(path), "--runtime", "vllm-plugin", "--check-log", str(server)]
    assert CliRunner().invoke(app, command).exit_code == 1


START = "INFO vLLM API server version 0.33.0\n"


def test_the_last_start_of_a_log_counts(tmp_path: Path) -> None:
    path, server = plan(tmp_path), tmp_path / "server.log"
    good, other = log(path, hot={1: [0, 2], 3: []}), log(path, hot={1: [0, 1], 3: [1]}, sha256="0" * 64)
    for text, same in (
        (START + other + "\n" + START + good, True),
        (START + good + "\n" + START + other, False),
        (other + "\n" + good, True),
        # A restart that did not come far: the earlier start does not answer for it.
        (START + good + "\n" + START, False),
    ):
        server.write_text(text)
        assert check_vllm_log(path, server).same is same


def test_kv_tokens_are_compared_where_the_log_shows_them(tmp_path: Path) -> None:
    path, server = plan(tmp_path), tmp_path / "server.log"
    good = log(path, hot={1: [0, 2], 3: []})
    for said, same in (("5,136", True), ("5,104", False)):
        server.write_text(f"{good}\n\x1b[36mINFO\x1b[0m GPU KV cache size: {said} tokens\n")
        row = check_vllm_log(path, server).rows[-1]
        assert (row.what, row.planned, row.found, row.same) == ("KV tokens", "5,120", said, same)
    server.write_text(good)
    assert check_vllm_log(path, server).rows[-1].same is None


@pytest.mark.parametrize(
    ("text", "says"),
    [("hello\n", "no line of a vLLM server"), ("x server_args=ServerArgs(tp_size=1)\n", "a log of SGLang")],
)
def test_a_file_that_is_no_log_of_vllm_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path, server = plan(tmp_path), tmp_path / "server.log"
    server.write_text(text)
    with pytest.raises(BadInputError, match=says):
        check_vllm_log(path, server)


def test_the_readme_installs_what_the_cold_path_imports(tmp_path: Path) -> None:
    export(plan(tmp_path), tmp_path / "out")
    assert (
        "pip install --no-deps moe-placer kt-kernel==0.7.2 gguf "
        in (tmp_path / "out" / "README.md").read_text()
    )


def test_an_export_says_where_to_write(tmp_path: Path) -> None:
    for flags in ([], ["--check-log", "server.log"]):
        with pytest.raises(BadInputError):
            CliRunner().invoke(app, ["export", str(plan(tmp_path)), *flags], catch_exceptions=False)
