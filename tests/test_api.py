"""The Python API: every command as a function, with the same names and the same errors."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import placer
from placer.cli import app

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "qwen3-30b-a3b"
FUNCTIONS = [name for name in placer.__all__ if not name.endswith("Error")]
COMMANDS = {
    "bench_growth": "bench",
    "bench_instances": "bench",
    "export_check": "export",
    "hardware_list": "hardware",
    "trace": "trace import",
    "verify_kt_log": "verify",
}
"""Commands that are more than one function; the others are called like their function."""
ONLY_COMMANDS = {
    "bench": {"growth": "bench_growth"},
    "trace record": {"texts": "further texts", "api_key_env": "api_key is the key itself"},
    "hardware": {"list": "hardware_list"},
    "export": {"dumps": "check_dump takes any number"},
}
"""Options that no function takes, and what there is in their place."""
ONLY_FUNCTIONS = {"trace": {"source"}, "trace_record": {"api_key"}}
SAID_IN_THE_HELP = {("verify", "layer_steps"), ("verify", "max_seconds")}
"""Options whose default is stated in their help, because with --kt-log they may not be given."""


def parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(placer, name)).parameters)


def options(command: str) -> dict[str, Any]:
    """Options and arguments of ``command``, by Python name."""
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    named = {max(each.opts, key=len).lstrip("-").replace("-", "_"): each for each in found.params}
    return {name: each for name, each in named.items() if name not in ("json", "help", "quiet", "verbose")}


def nothing_as_none(default: Any) -> Any:
    """A default as one spelling: on the command line nothing is "", and None "auto" or "none"; lists have commas."""
    if isinstance(default, tuple | list):
        default = ",".join(map(str, default))
    return None if default in ("", "auto", "none") else default


def command_of(function: str) -> str:
    return COMMANDS.get(function, function.replace("_", " "))


# --- what there is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_its_command_takes_and_says_what_it_does(name: str) -> None:
    function = getattr(placer, name)
    assert callable(function)
    assert function.__module__ == f"placer.api.{name}"
    assert function.__doc__
    assert (
        parameters(name).keys() - {"progress"} - ONLY_FUNCTIONS.get(name, set())
        <= options(command_of(name)).keys()
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_does_by_default_what_its_command_does(name: str) -> None:
    """But that it writes nothing it is not asked to, and asks for what the command names when it is missing."""
    command = options(command_of(name))
    for parameter, given in parameters(name).items():
        if parameter in command.keys() - {"output"} and given.default is not inspect.Parameter.empty:
            option = command[parameter]
            if (name, parameter) in SAID_IN_THE_HELP:
                assert f"default: {given.default:g})" in option.help
            else:
                assert nothing_as_none(given.default) == nothing_as_none(option.default), parameter


@pytest.mark.parametrize("command", sorted({command_of(name) for name in FUNCTIONS}))
def test_no_option_of_a_command_is_missing(command: str) -> None:
    taken = set().union(*(parameters(name) for name in FUNCTIONS if command_of(name) == command))
    assert options(command).keys() - set(ONLY_COMMANDS.get(command, ())) <= taken


def test_importing_placer_loads_none_of_it() -> None:
    code = "import sys, placer; assert 'inspect' in dir(placer); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.split(".")[0] == "placer"} == {
        "placer",
        "placer.errors",
    }


@pytest.mark.parametrize("name", ["compare", "solve", "evaluate", "explain"])
def test_what_times_no_kernel_loads_no_torch(name: str) -> None:
    """Loading it takes longer than many an answer."""
    code = f"import sys, placer; placer.{name}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_no_module_takes_the_place_of_a_function() -> None:
    import pkgutil

    modules = {each.name for each in pkgutil.iter_modules(placer.__path__)}
    assert not modules & set(FUNCTIONS)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'solved_it'"):
        placer.solved_it  # type: ignore[attr-defined]  # noqa: B018


# --- the same errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: placer.inspect("/nowhere"), "/nowhere"),
        (lambda: placer.inspect(EXAMPLE, tp=0), "--tp is 0"),
        (lambda: placer.inspect(EXAMPLE, plan=4), "--plan needs to know the GPU"),
        (lambda: placer.inspect(EXAMPLE, plan=4, hbm_budget=-1), "--hbm-budget"),
        (lambda: placer.inspect(3), "model is 3"),
        (lambda: placer.inspect(EXAMPLE, tp="2"), "--tp is '2'"),
        (lambda: placer.inspect(EXAMPLE, plan=2, hbm_budget=7.5e9), "--hbm-budget is 7500000000.0"),
        (lambda: placer.inspect(EXAMPLE, plan=2, hbm_budget=2**34, kv_dtype=None), "--kv-dtype is None"),
        (lambda: placer.bench("instance.npz"), "instances is 'instance.npz'"),
        (lambda: placer.bench(family="balance"), "family 'balance' is not known"),
        (lambda: placer.compare(EXAMPLE, gpus=2, cpu="epyc-9654", gpu="rtx-4090"), "--gpus is 2"),
        (lambda: placer.compare(EXAMPLE, gpus=(0,), cpu="epyc-9654", gpu="rtx-4090"), "--gpus is 0"),
        (lambda: placer.evaluate("p", model="m", trace="t", profile="q", mix={"code": "1"}), "mix is"),
        (lambda: placer.explain("p", layer=True), "layer is True"),
        (lambda: placer.solve(EXAMPLE, trace=None, profile="p", progress=True), "progress is True"),
        (lambda: placer.trace_info(EXAMPLE), "is a directory"),
        (placer.trace_synth, "from a preset or by Zipf's law"),
        (lambda: placer.trace_synth("olmoe", seed=-1), "--seed is -1"),
        (
            lambda: placer.profile(EXAMPLE, cpu="epyc-9654", gpu="rtx-4090", quick=True),
            "--quick would change",
        ),
        (lambda: placer.profile(EXAMPLE, cores=4), "none is named"),
        (lambda: placer.compare(EXAMPLE), "compare needs a CPU"),
        (
            lambda: placer.solve(EXAMPLE, trace=None, profile="p", mix={"code": 2.0}),
            "shares of --mix sum to 2",
        ),
        (lambda: placer.export_check("placement.json"), "nothing to check"),
        (
            lambda: placer.calibrate("p", placement="p", model="m", trace=None, benchmark=["b"], factors=[]),
            "--factors names no factor",
        ),
        (lambda: placer.explain("a\0b", layer=1), "placement holds a NUL character"),
        (lambda: placer.bench(["a\0b"]), "instances holds a NUL character"),
        (lambda: placer.trace_synth("olmoe", output="\0"), "--output holds a NUL character"),
        (
            lambda: placer.trace_synth("olmoe", requests=10**30),
            "a trace of 1000000000000000000000000000000 requests",
        ),
        (
            lambda: placer.trace_synth(
                "olmoe", requests=40_000, prompt_tokens=0, output_tokens=1, domains=40_000
            ),
            "40000 domains",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_and_what_to_do(call: Callable[[], object], what: str) -> None:
    with pytest.raises(placer.BadInputError) as caught:
        call()
    assert what in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize("gpus", ["1,2", 3])
def test_a_list_is_shown_by_an_example(gpus: Any) -> None:
    with pytest.raises(placer.BadInputError) as caught:
        placer.compare(EXAMPLE, gpus=gpus, cpu="epyc-9654", gpu="rtx-4090")
    assert (caught.value.what, caught.value.hint) == (f"--gpus is {gpus!r}", "give a list such as [1, 2]")
