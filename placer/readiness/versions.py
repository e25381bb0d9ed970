"""The runtime that the server would run: installed, of the checked version, and with its KT wrapper in place."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from placer.readiness.check import Check, Failure, Verdict

CHECKED = "0.7.2"
"""Version of sglang-kt and of kt-kernel that exports are checked against."""
_SECONDS = 240
_RULES = {
    "_init_kt_gpu_experts_masks": "a3ea5214",
    "generate_gpu_experts_masks": "f997957d",
}
"""Functions that turn the ranking into hot experts, by the first digits of the sha256 of their source in 0.7.2."""

_ASK = r"""
import ast, contextlib, hashlib, importlib.util, io, json, os, sys
from importlib import metadata

def version(name):
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)

def source(package, *parts):
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec and spec.submodule_search_locations else []):
        path = os.path.join(folder, *parts)
        if os.path.isfile(path):
            with open(path, encoding="utf-8-sig") as file:
                return file.read()
    return ""

def digest(text, name):
    with contextlib.suppress(SyntaxError):
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return hashlib.sha256(ast.get_source_segment(text, node).encode()).hexdigest()[:8]

said = {
    "python": sys.version.split()[0],
    "executable": sys.executable,
    "versions": {name: version(name) for name in ("sglang-kt", "kt-kernel", "sglang", "torch", "transformers-kt")},
    "rules": {
        "_init_kt_gpu_experts_masks": digest(
            source("sglang", "srt", "layers", "moe", "kt_ep_wrapper.py"), "_init_kt_gpu_experts_masks"),
        "generate_gpu_experts_masks": digest(
            source("kt_kernel", "experts_base.py"), "generate_gpu_experts_masks"),
    },
    "flags": [flag for flag in sys.argv[1:] if '"' + flag + '"' in source("sglang", "srt", "server_args.py")],
    "disabled": os.environ.get("SGLANG_DISABLED_MODEL_ARCHS", ""),
    "wrapper": None,
}
if said["versions"]["sglang-kt"] is not None:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            # As the server does: every model file is imported, and one of them brings in the wrapper.
            import sglang.srt.models.registry
            from sglang.srt.layers.moe.quant_method_registry import _QUANT_WRAPPERS
            if not any(entry[1] == "kt_ep" for entry in _QUANT_WRAPPERS):
                import sglang.srt.models.deepseek_v4
            from sglang.srt.layers.moe.kt_ep_wrapper import KTRANSFORMERS_AVAILABLE
        registered = any(entry[1] == "kt_ep" for entry in _QUANT_WRAPPERS)
        said["wrapper"] = "" if registered and KTRANSFORMERS_AVAILABLE else (
            "the wrapper is not registered" if not registered else "kt_kernel cannot be imported")
    except BaseException as error:
        said["wrapper"] = (type(error).__name__ + ": " + str(error)).splitlines()[0][:160]
print("\n" + json.dumps(said), flush=True)
# Native libraries may crash when the interpreter ends.
os._exit(0)
"""

_FLAGS = (
    "--kt-expert-placement-strategy",
    "--kt-gpu-experts-ratio",
    "--init-expert-location",
    "--max-total-tokens",
)
"""Flags without which a runtime cannot be given the plan."""


@dataclass(frozen=True)
class Installed:
    """What the Python of the server has; ``problem`` says why it could not be asked.

    Attributes
    ----------
    python
        The interpreter that was asked.
    versions
        By distribution; None where it is not installed.
    rules
        Digests of the functions in `_RULES`; None where one is not found.
    flags
        Those of `_FLAGS` that its server knows.
    wrapper
        Why the KT wrapper is not in place, empty where it is, None where that was not asked.
    disabled
        SGLANG_DISABLED_MODEL_ARCHS as it is set.
    """

    python: str
    versions: Mapping[str, str | None]
    rules: Mapping[str, str | None]
    flags: tuple[str, ...]
    wrapper: str | None = None
    disabled: str = ""
    problem: str = ""


def installed(python: str) -> Installed:
    """What the interpreter ``python`` would start a server with, asked in a process of its own."""
    found = shutil.which(python)
    if found is None:
        return Installed(python, {}, {}, (), problem=f"{python} is not found")
    try:
        done = subprocess.run(
            [found, "-c", _ASK, *_FLAGS],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            errors="replace",
            # A working directory of the user's must not stand for a package.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Installed(python, {}, {}, (), problem=f"{python} does not answer: {type(error).__name__}")
    try:
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Installed(python, {}, {}, (), problem=f"{python} fails: {reason:.120}")
    return Installed(
        said["executable"] or found,
        said["versions"],
        said["rules"],
        tuple(said["flags"]),
        said["wrapper"],
        said["disabled"],
    )


def check_versions(here: Installed) -> Iterator[Check]:
    """sglang-kt, kt-kernel, the selection rule, and the wrapper that takes the experts off the GPU."""
    how = f"asked {here.python}"
    if here.problem:
        do = "give the server's interpreter: --python /path/to/python, or PYTHON=... ./preflight.sh"
        yield Check("runtime", Verdict.FAIL, here.problem, f"sglang-kt {CHECKED}", how, do, Failure.MISSING)
        return
    yield _version("sglang-kt", here, how)
    yield _version("kt-kernel", here, how)
    if here.versions.get("sglang-kt") is None:
        return
    yield _rule(here, how)
    yield _wrapper(here, how)


def _version(name: str, here: Installed, how: str) -> Check:
    version = here.versions.get(name)
    install = f"{here.python} -m pip install {name}=={CHECKED}"
    verdict, do = Verdict.OK, ""
    if version is None:
        verdict, do = Verdict.FAIL, f"`{install}`"
        if name == "sglang-kt" and here.versions.get("sglang"):
            do += f" (upstream sglang {here.versions['sglang']}, which is there, ignores the placement)"
    elif version != CHECKED:
        older = _is_older(version)
        verdict = Verdict.FAIL if older else Verdict.WARN
        do = (
            f"older than what exports are checked against: `{install}`"
            if older
            else "newer than what exports are checked against: compare what it runs with 'placer export --check-log'"
        )
    return Check(name, verdict, version or "not installed", CHECKED, how, do, Failure.MISSING)


def _rule(here: Installed, how: str) -> Check:
    missing = [flag for flag in _FLAGS if flag not in here.flags]
    changed = [name for name, digest in _RULES.items() if here.rules.get(name) != digest]
    verdict, found, do = Verdict.OK, "the source of 0.7.2, unchanged", ""
    if missing:
        verdict, found = Verdict.FAIL, f"no flag {missing[0]}"
        do = f"this runtime cannot be given the plan: install sglang-kt=={CHECKED}"
    elif changed:
        gone = [name for name in changed if here.rules.get(name) is None]
        verdict = Verdict.FAIL if gone else Verdict.WARN
        found = f"{changed[0]} is {'not there' if gone else 'another'}"
        do = f"install sglang-kt=={CHECKED} and kt-kernel=={CHECKED}" + (
            "" if gone else ", or compare what it runs with 'placer export --check-log'"
        )
    return Check("selection rule", verdict, found, "the source that was checked", how, do, Failure.MISSING)


def _wrapper(here: Installed, how: str) -> Check:
    verdict, found, do = Verdict.OK, "registered", ""
    if "deepseek_v4" in here.disabled.split(","):
        verdict, found = Verdict.FAIL, "SGLANG_DISABLED_MODEL_ARCHS names deepseek_v4, which brings it in"
        do = "take deepseek_v4 out of SGLANG_DISABLED_MODEL_ARCHS"
    elif here.wrapper is None:
        verdict, found, do = Verdict.UNKNOWN, "not asked", "run this on the server"
    elif here.wrapper:
        verdict, found = Verdict.FAIL, here.wrapper
        do = "without it every expert is loaded to the GPU, silently: import sglang.srt.models.deepseek_v4 must work"
    return Check("KT wrapper", verdict, found, "registered", how, do, Failure.MISSING)


def _is_older(version: str) -> bool:
    try:
        return Version(version) < Version(CHECKED)
    except InvalidVersion:
        # A build that names itself otherwise is unchecked, not old.
        return False
