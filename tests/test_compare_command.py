"""`placer compare` as a user runs it: the table, the JSON document, and its exit codes."""

import json
import time
from pathlib import Path

import pytest
from conftest import Run
from profiles import profile
from small_traces import token_trace
from test_model import QWEN3_CODER_480B
from tiny_model import tiny_model

from placer.profiler.profile import write_profile
from placer.profiler.trace.file import write_trace

TRAFFIC = ("--prompt-tokens", 64, "--output-tokens", 32, "--concurrency", 4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model, a profile of it and a trace."""
    folder = tmp_path_factory.mktemp("compare")
    tiny_model(folder / "model")
    write_profile(profile(), folder / "profile.json")
    trace = token_trace([[[6, 7]] * 4] * 200, experts=8, request=[number // 20 for number in range(200)])
    write_trace(trace, folder / "trace.safetensors")
    return folder


def arguments(tiny: Path, *more: object) -> list[object]:
    return ["compare", "--model", tiny / "model", "--profile", tiny / "profile.json", *TRAFFIC, *more]


def test_the_verdict_comes_first_and_lines_fit(tiny: Path, printed: Run) -> None:
    code, out, err = printed(*arguments(tiny, "--gpus", "1,2"))
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert ": best: " in lines[0]
    assert max(map(len, lines)) <= 100
    for said in ("gpu-only tp1", "streamed bare tp1", "streamed lru tp1", "hot-cold tp1", "sizing rule"):
        assert any(said in line for line in lines)
    # Two GPUs cut the tiny experts' width of 128 to 64.
    assert any("does not fit on 2: hot-cold tp2: tp 2 cuts" in line for line in lines)


def test_json_goes_to_stdout_alone(tiny: Path, run: Run) -> None:
    code, out, err = run(*arguments(tiny, "--gpus", "1", "--trace", tiny / "trace.safetensors", "--json"))
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [row["mode"] for row in document["rows"]] == ["gpu-only", "streamed", "streamed", "hot-cold"]
    assert document["best"]["fits"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--gpu", "h300"), "unknown GPU 'h300'"),
        (("--gpus", "none"), "--gpus is 'none': 'none' is not a number"),
        (("--gpus", "auto"), "numbers of GPUs between commas, 1 to 64"),
        (("--gpus", "1,x"), "--gpus is '1,x': 'x' is not a number"),
        (("--gpus", "1,65"), "numbers of GPUs between commas, 1 to 64"),
        (("--cpu", "xeon-8480+"), "leave out --cpu, or give --gpu NAME in place of --profile"),
        (("--cpu", "xeon-8480+", "--gpu", "h100-sxm"), "leave out --cpu, or leave out --profile"),
        (("--kv-dtype", "int4"), "--kv-dtype 'int4' is not known"),
        (("--kv-dtype", "auto"), "run this with bf16 and with fp8 in turn"),
        (("--hbm-budget", "900GiB"), "--hbm-budget 900GiB is more than"),
        (("--output-tokens", "9000"), "exceeds the model's context"),
        (("--deferred-experts", "3"), "--deferred-experts 3 is more than the 2 experts that a token takes"),
        (("--cpu-method", "torch"), "--cpu-method would change nothing: --profile FILE holds the CPU"),
        (("--trace", "absent.safetensors"), "absent.safetensors"),
    ],
)
def test_bad_input_is_one_clear_line(tiny: Path, run: Run, more: tuple[object, ...], said: str) -> None:
    code, out, err = run(*arguments(tiny, *more))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 480 B model's config.json alone."""
    folder = tmp_path_factory.mktemp("coder")
    (folder / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    return folder


def test_hardware_that_one_does_not_have(coder: Path, run: Run) -> None:
    code, out, _ = run(
        "compare", "--model", coder, "--gpu", "h100-sxm", "--cpu", "xeon-8480+x2", "--gpus", "4", "--concurrency", 2,
        "--json",
    )  # fmt: skip
    assert code == 0
    document = json.loads(out)
    by_mode = {(row["mode"], row["cache"]): row for row in document["rows"] if row["parallelism"] == "tp4"}
    # 109 GiB of experts do not fit four GPUs of 79; the CPU serves what streaming over PCIe cannot as fast.
    assert by_mode["gpu-only", None]["binding_line"] == "hot_experts"
    assert "--gpus 8 (tp8+ep2)" in by_mode["gpu-only", None]["remedies"]
    assert document["best"]["mode"] in ("hot-cold", "streamed")
    bare, cached = by_mode["streamed", "none"], by_mode["streamed", "lru"]
    assert bare["output_tokens_per_s"]["mid"] < cached["output_tokens_per_s"]["mid"]
    rule = document["rule_of_thumb"]["80 GB"]
    assert (rule["rule_gpus"], rule["exact_gpus"], rule["exact_parallelism"]) == (8, 8, "tp8+ep2")
    for row in document["rows"]:
        assert not row["fits"] or "datasheet" in " ".join(row["provenance"].values())


@pytest.mark.slow
def test_four_numbers_of_gpus_of_the_480b_model_take_half_a_minute_at_most(coder: Path, run: Run) -> None:
    started = time.process_time()
    code, _, _ = run(
        "compare", "--model", coder, "--gpu", "h100-sxm", "--cpu", "xeon-8480+x2", "--concurrency", 64
    )
    assert code == 0
    assert time.process_time() - started < 30.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--gpu", "h100-sxm", "--cpu", "xeon-9999"), "xeon-9999"),
        (("--cpu", "xeon-8480+"), "it goes with --gpu NAME"),
        (("--cpu", "xeon-8480+", "--gpu", "h100-sxm", "--cpu-method", "FP4"), "--cpu-method 'FP4'"),
        (("--gpu", "h100-sxm", "--cores", "8"), "none is named"),
    ],
)
def test_datasheets_are_named_in_full(coder: Path, run: Run, more: tuple[object, ...], said: str) -> None:
    code, out, err = run("compare", "--model", coder, *more)
    assert (code, out) == (2, "")
    assert said in err


def test_a_cpu_is_needed(tiny: Path, run: Run) -> None:
    code, _, err = run("compare", "--model", tiny / "model", "--gpu", "h100-sxm")
    assert code == 2
    assert "--cpu NAME" in err
    assert "--profile FILE" in err


def test_nothing_fits_names_the_lines(tiny: Path, run: Run) -> None:
    code, out, err = run(*arguments(tiny, "--gpus", "1", "--hbm-budget", "1GiB"))
    assert (code, out) == (3, "")
    assert "nothing fits on 1 GPU: it breaks at " in err
    code, out, _ = run(*arguments(tiny, "--gpus", "1", "--hbm-budget", "1GiB", "--json"))
    assert code == 3
    document = json.loads(out)
    assert document["best"] is None
    assert document["null_reasons"]["best"] == document["verdict"]
    assert all(row["binding_line"] for row in document["rows"])
    assert document["advice"] in err.replace("\n", " ")
    assert document["advice"].startswith("--hbm-budget of at least ")


def test_a_number_of_gpus_that_does_not_divide_the_model_names_those_that_do(tiny: Path, run: Run) -> None:
    code, out, err = run(*arguments(tiny, "--gpus", "3"), "-q")
    assert (code, out) == (3, "")
    assert err.endswith("  do: --gpus 1,2,4, for gpu-only\n")
    code, out, _ = run(*arguments(tiny, "--gpus", "3", "--json"))
    assert code == 3
    for row in json.loads(out)["rows"]:
        # Cut over two GPUs, an expert of 128 is no whole block of the CPU path; groups of GPUs share out whole experts.
        # SGLang's paged experts run on one GPU only.
        alone = row["mode"] == "hot-cold" or row["cache"] == "lru"
        assert row["remedies"] == ["--gpus 1" if alone else "--gpus 1,2,4"]
        # Of a row that cannot be spread nothing is known, and a sum over rows meets no half of it.
        for value in (row["runs"], row["hbm"]["ledger"], row["host"]["ledger"], row["host"]["total_bytes"]):
            assert value is None
        for path in ("runs", "runs_reason", "hbm.ledger", "host.ledger", "host.total_bytes"):
            assert row["null_reasons"][path] == row["reason"]


def test_targets_that_nothing_keeps_are_infeasible(tiny: Path, run: Run) -> None:
    code, _, err = run(*arguments(tiny, "--gpus", "1", "--slo-tpot", "0.001"))
    assert code == 3
    assert "no way keeps the targets: the closest is " in err


def test_an_interrupt_exits_130(tiny: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placer.modes.search.play", interrupted)
    code, out, err = run(*arguments(tiny, "--gpus", "1"))
    assert (code, out) == (130, "")
    assert "interrupted" in err
