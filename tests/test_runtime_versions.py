"""What a server's interpreter has: versions, the selection rule, the KT wrapper."""

import sys
from pathlib import Path
from typing import Any

import pytest

from placer.readiness.check import Verdict
from placer.readiness.versions import Installed, check_versions, installed

RULES = {"_init_kt_gpu_experts_masks": "a3ea5214", "generate_gpu_experts_masks": "f997957d"}
FLAGS = (
    "--kt-expert-placement-strategy",
    "--kt-gpu-experts-ratio",
    "--init-expert-location",
    "--max-total-tokens",
)


def environment(**changes: Any) -> Installed:
    """An interpreter with everything that is needed, but for ``changes``."""
    versions = {"sglang-kt": "0.7.2", "kt-kernel": "0.7.2", "sglang": None} | changes.pop("versions", {})
    rules = RULES | changes.pop("rules", {})
    return Installed("python", versions, rules, **{"flags": FLAGS, "wrapper": "", **changes})


def verdicts(here: Installed) -> dict[str, str]:
    return {check.name: check.verdict.value for check in check_versions(here)}


def test_the_checked_versions_are_ready() -> None:
    names = ("sglang-kt", "kt-kernel", "selection rule", "KT wrapper")
    assert verdicts(environment()) == dict.fromkeys(names, "ok")


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("0.7.2", "ok"),
        ("0.7.1", "fail"),
        ("0.7.2rc1", "fail"),
        ("0.6.10", "fail"),
        ("0.7.2.post1", "warn"),
        ("0.7.10", "warn"),
        ("0.10.0", "warn"),
        ("1.0", "warn"),
        ("0.7.2+cu130", "warn"),
        ("main-deadbeef", "warn"),
        (None, "fail"),
    ],
)
def test_older_ones_are_refused_and_newer_ones_named_as_unchecked(version: str | None, verdict: str) -> None:
    for name in ("sglang-kt", "kt-kernel"):
        assert verdicts(environment(versions={name: version}))[name] == verdict


def test_upstream_sglang_is_not_taken_for_the_fork() -> None:
    here = environment(versions={"sglang-kt": None, "sglang": "0.5.23"})
    check = next(check_versions(here))
    assert check.verdict is Verdict.FAIL
    assert "upstream sglang 0.5.23" in check.do


def test_another_selection_rule_is_unchecked_and_a_missing_one_refused() -> None:
    name = "_init_kt_gpu_experts_masks"
    assert verdicts(environment(rules={name: "00000000"}))["selection rule"] == "warn"
    assert verdicts(environment(rules={name: None}))["selection rule"] == "fail"
    assert verdicts(environment(flags=FLAGS[1:]))["selection rule"] == "fail"


@pytest.mark.parametrize(
    ("changes", "verdict", "found"),
    [
        ({"wrapper": "ModuleNotFoundError: No module named 'deep_gemm'"}, "fail", "deep_gemm"),
        ({"disabled": "grok,deepseek_v4"}, "fail", "SGLANG_DISABLED_MODEL_ARCHS"),
        ({"wrapper": None}, "unknown", "not asked"),
    ],
)
def test_a_wrapper_that_is_not_in_place_is_named(changes: dict[str, Any], verdict: str, found: str) -> None:
    check = next(check for check in check_versions(environment(**changes)) if check.name == "KT wrapper")
    assert (check.verdict.value, found in check.found) == (verdict, True)


def site(folder: Path, wrapper: str) -> Path:
    """A folder of packages that stand for sglang-kt and kt-kernel."""
    files = {
        "sglang/__init__.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/server_args.py": "\n".join(f'add("{flag}")' for flag in FLAGS),
        "sglang/srt/models/__init__.py": "",
        "sglang/srt/models/registry.py": (
            "try:\n    import sglang.srt.models.deepseek_v4\nexcept Exception:\n    pass\n"
        ),
        "sglang/srt/models/deepseek_v4.py": wrapper,
        "sglang/srt/layers/__init__.py": "",
        "sglang/srt/layers/moe/__init__.py": "",
        "sglang/srt/layers/moe/kt_ep_wrapper.py": (
            "KTRANSFORMERS_AVAILABLE = True\ndef _init_kt_gpu_experts_masks(args):\n    pass\n"
        ),
        "sglang/srt/layers/moe/quant_method_registry.py": "_QUANT_WRAPPERS = []\n",
        "kt_kernel/__init__.py": "raise RuntimeError('not to be imported')",
        "kt_kernel/experts_base.py": "def generate_gpu_experts_masks(a, b):\n    pass\n",
        "sglang_kt-0.7.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang-kt\nVersion: 0.7.9\n",
        "kt_kernel-0.7.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: kt-kernel\nVersion: 0.7.2\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


REGISTERS = (
    "from sglang.srt.layers.moe.quant_method_registry import _QUANT_WRAPPERS\n"
    "_QUANT_WRAPPERS.append((20, 'kt_ep', None, None))\nprint('noise')\n"
)


@pytest.mark.parametrize(
    ("wrapper", "found"),
    [
        (REGISTERS, ""),
        ("", "the wrapper is not registered"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit('gone')", "SystemExit: gone"),
    ],
)
def test_an_interpreter_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapper: str, found: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site(tmp_path, wrapper)))
    here = installed(sys.executable)
    assert (here.versions["sglang-kt"], here.flags, here.wrapper) == ("0.7.9", FLAGS, found)
    assert here.rules["_init_kt_gpu_experts_masks"] not in (None, RULES["_init_kt_gpu_experts_masks"])


@pytest.mark.parametrize(
    ("script", "problem"), [("exit 3", "exit code 3"), ("echo hello", "fails"), (None, "not found")]
)
def test_an_interpreter_that_does_not_answer_is_named(
    tmp_path: Path, script: str | None, problem: str
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    here = installed(str(python))
    assert problem in here.problem
    (check,) = check_versions(here)
    assert (check.verdict, check.failure.value) == (Verdict.FAIL, 4)
