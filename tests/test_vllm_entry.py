"""The plugin's switch: without its variable nothing happens, and a wrong one stops the start."""

import subprocess
import sys
from pathlib import Path

import pytest

import placer
from placer.runtime.vllm.applied import AppliedLayer, AppliedPlan, hot_digest, read_applied
from placer.runtime.vllm.refusal import Refusal
from placer.runtime.vllm.settings import Settings, read_settings

ROOT = Path(placer.__file__).resolve().parents[1]


def test_without_a_placement_nothing_is_imported() -> None:
    code = (
        "import os, sys; os.environ.pop('PLACER_PLACEMENT', None); sys.path.insert(0, sys.argv[1])\n"
        "from placer.runtime.vllm.entry import register; register()\n"
        "print(*sorted(n for n in sys.modules if n.partition('.')[0] not in sys.stdlib_module_names))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(ROOT)], check=True, capture_output=True, text=True
    )
    assert ran.stdout.split() == [
        "__main__",
        "placer",
        "placer.errors",
        "placer.runtime",
        "placer.runtime.load",
        "placer.runtime.vllm",
        "placer.runtime.vllm.entry",
    ]


def test_the_environment_is_read() -> None:
    assert read_settings({"PLACER_PLACEMENT": "p.json"}) == Settings("p.json", "auto", None, False)
    asked = {"PLACER_COLD": "kt", "PLACER_COLD_THREADS": "12", "PLACER_CUDA": "experimental"}
    assert read_settings({"PLACER_PLACEMENT": "p.json", **asked}) == Settings("p.json", "kt", 12, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PLACER_PLACEMENT", ""),
        ("PLACER_COLD", "gpu"),
        ("PLACER_COLD", ""),
        ("PLACER_COLD_THREADS", "0"),
        ("PLACER_COLD_THREADS", "-1"),
        ("PLACER_COLD_THREADS", "two"),
        ("PLACER_CUDA", "1"),
    ],
)
def test_a_value_that_a_variable_cannot_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(Refusal, match=f"placer refuses to start vLLM: {name} is ") as caught:
        read_settings({"PLACER_PLACEMENT": "p.json", name: value})
    assert "\n" not in str(caught.value)


def test_what_is_logged_is_what_is_read_back() -> None:
    layers = [AppliedLayer(n, 8, 3, 5, 300, 200, hot_digest([7, 0, n])) for n in (3, 4)]
    plan = AppliedPlan(2, 6, "a" * 64, "kt RAWINT4, 3 threads")
    lines = [f"(EngineCore pid=7) INFO 11-29 [hooks.py:9] {each.line()}" for each in (*layers, plan)]
    assert read_applied("INFO started\n" + "\n".join(lines)) == (layers, plan)
    assert read_applied("\n".join(lines[:2])) == (layers, None)


def test_the_digest_is_of_the_ids_in_any_order() -> None:
    assert hot_digest([2, 10, 1]) == hot_digest((1, 2, 10)) != hot_digest([1, 2, 11])
    # printf '1,2,10' | sha256sum
    assert hot_digest([2, 10, 1]).startswith("19bc041f")
