"""`placer solve` under traffic of all kinds: what placement.json and the answer say of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiles import profile
from tiny_model import tiny_model

from placer.doubt import SLOW_END
from placer.placement import read_placement
from placer.profiler.profile import write_profile
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokens like low experts, and a profile of 10 + 2m µs per expert on either side."""
    folder = tmp_path_factory.mktemp("job")
    model = tiny_model(folder / "model")
    random = np.random.default_rng(0)
    requests, tokens, L = 30, 20, len(model.moe_layers)
    keys = random.random((requests * tokens, L, 8)) + np.arange(8) / 8
    trace = TokenTrace(
        header=TraceHeader(model.name, model.moe_layers, 8, 2, "made up"),
        topk_ids=np.argsort(keys, axis=2)[:, :, :2].astype(np.uint16),
        request=np.repeat(np.arange(requests, dtype=np.int32), tokens),
        position=np.tile(np.arange(tokens, dtype=np.int32), requests),
        phase=np.tile(np.array([Phase.PREFILL] * 8 + [Phase.DECODE] * 12, dtype=np.uint8), requests),
    )
    write_trace(trace, folder / "trace.safetensors")
    write_profile(profile(), folder / "profile.json")
    return folder


LENGTHS: tuple[object, ...] = ("--prompt-tokens", 64, "--output-tokens", 32)


def solved(
    job: Path, printed: Run, tmp_path: Path, *more: object, lengths: tuple[object, ...] = LENGTHS
) -> tuple[dict[str, Any], str]:
    output = tmp_path / "p.json"
    code, _, err = printed(
        "solve",
        *("--model", job / "model", "--trace", job / "trace.safetensors", "--profile", job / "profile.json"),
        *("--hbm-budget", "4GiB", "--max-hot-per-layer", 3, *lengths),
        *("--concurrency", 4, "--max-running", 4, "--chunk", 64, "-o", output),
        *more,
    )
    assert code == 0, err
    read_placement(output)
    assert all(len(line) <= 100 for line in err.splitlines() if str(tmp_path) not in line)
    return json.loads(output.read_text()), err


def total(split: dict[str, Any]) -> float:
    lists = sum(sum(split[name]) for name in ("hot", "cold_wait", "transfer"))
    return float(split["base"] + split["attention_kv"] + lists)


def test_a_closed_loop(job: Path, printed: Run, tmp_path: Path) -> None:
    document, err = solved(job, printed, tmp_path)
    predicted = document["predicted"]
    for latency in ("tpot_ms", "ttft_ms"):
        found = predicted[latency]
        assert found["p50"] <= found["p95"] <= found["p99"]
        for name in ("p50", "p95"):
            band = predicted["band"][latency][name]
            assert band["low"] <= band["mid"] <= band["high"]
            assert band["mid"] == found[name]
    rate = predicted["band"]["output_tokens_per_s"]
    assert rate["low"] < rate["mid"] == predicted["output_tokens_per_s"] < rate["high"]
    assert set(predicted["band"]["rests_on"]) == {"cold", "hot", "base"}
    assert total(predicted["time_split"]) == pytest.approx(predicted["decode_step_ms"], rel=1e-12)
    assert predicted["requests_per_s"] == pytest.approx(predicted["output_tokens_per_s"] / 32, rel=0.05)
    assert predicted["kv_tokens"]["peak"] <= document["kv"]["tokens"]
    assert predicted["retractions_per_request"] == 0
    assert predicted["queue_ms"]["p50"] == 0
    assert "open_loop" not in predicted
    assert document["runtime"] == {"scheduler": "sglang", "deferred_experts": 0, "skip_idle_cold": False}
    assert "of a decode step:" in err
    assert "closed loop of 4 clients" in predicted["provenance"]["latencies"]


def test_requests_that_arrive_by_themselves(job: Path, printed: Run, tmp_path: Path) -> None:
    document, err = solved(job, printed, tmp_path, "--rate", 2)
    predicted = document["predicted"]
    assert predicted["output_tokens_per_s"] == pytest.approx(64)
    assert predicted["requests_per_s"] == 2
    assert not predicted["open_loop"]["falls_behind"]
    assert document["workload"]["rate_per_s"] == 2
    assert "2.00 requests/s arrive" in err


def test_a_server_that_keeps_up_but_for_the_slow_end_is_told_even_when_little_is_printed(
    job: Path, printed: Run, tmp_path: Path
) -> None:
    document, _ = solved(job, printed, tmp_path, "--rate", 1)
    assert not any(note.startswith(SLOW_END) for note in document["notes"])
    # At 0.95 of what it finishes, a server that is slower by its cold side's error falls behind.
    rate = 0.95 * document["predicted"]["open_loop"]["capacity_per_s"]
    document, err = solved(job, printed, tmp_path, "--rate", rate, "-q")
    predicted = document["predicted"]
    assert not predicted["open_loop"]["falls_behind"]
    assert predicted["band"]["ttft_ms"]["p95"]["high"] is None
    (note,) = (note for note in document["notes"] if note.startswith(SLOW_END))
    assert note in " ".join(err.split())
    low, high = (predicted["band"]["output_tokens_per_s"][name] for name in ("low", "high"))
    assert f"tokens/s ({low:,.1f} to {high:,.1f})" in " ".join(err.split())


def test_a_server_that_falls_behind_is_told_plainly(job: Path, printed: Run, tmp_path: Path) -> None:
    document, err = solved(job, printed, tmp_path, "--rate", 1e5)
    predicted = document["predicted"]
    assert "the server falls behind: 100,000 requests/s arrive" in " ".join(err.split())
    assert "TTFT grows for as long as they arrive" in err
    assert predicted["ttft_ms"]["p95"] is None
    assert predicted["queue_ms"]["mean"] is None
    assert "faster than the server finishes" in document["null_reasons"]["predicted.ttft_ms"]
    assert predicted["band"]["ttft_ms"]["p95"] == {"low": None, "mid": None, "high": None}
    # Tokens per second are what the server can do.
    capacity = predicted["open_loop"]["capacity_per_s"]
    assert predicted["output_tokens_per_s"] == pytest.approx(32 * capacity, rel=0.05)


def test_a_server_that_falls_behind_is_told_even_when_little_is_printed(
    job: Path, printed: Run, tmp_path: Path
) -> None:
    _, err = solved(job, printed, tmp_path, "--rate", 1e5, "-q")
    assert "the server falls behind: 100,000 requests/s arrive" in " ".join(err.split())
    _, err = solved(job, printed, tmp_path, "--rate", 1, "-q")
    assert "requests/s arrive" not in err


def test_a_file_of_arrivals_and_lengths(job: Path, printed: Run, tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,10\n0.5,40,20\n9,60,30\n")
    document, err = solved(job, printed, tmp_path, "--arrivals", path, lengths=())
    assert document["workload"]["arrivals"] == {"requests": 3, "span_s": 9.0}
    assert (document["workload"]["prompt_tokens"], document["workload"]["output_tokens"]) == (40, 20)
    assert document["predicted"]["open_loop"]["arrivals_per_s"] == pytest.approx(2 / 9)
    assert "3 requests at given times, lengths as given" in document["predicted"]["provenance"]["latencies"]
    assert "requests/s arrive" in err


@pytest.mark.parametrize(
    "option", [("--prompt-tokens", 64), ("--output-tokens", 32), ("--length-variation", 0.5)]
)
def test_lengths_beside_a_file_of_lengths_are_refused(
    job: Path, run: Run, tmp_path: Path, option: tuple[object, ...]
) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,10\n0.5,40,20\n")
    asked = (
        "--model",
        job / "model",
        "--trace",
        "none",
        "--profile",
        job / "profile.json",
        "--arrivals",
        path,
    )
    code, _, err = run("solve", *asked, "--hbm-budget", "4GiB", "-o", tmp_path / "p.json", *option)
    assert code == 2
    assert f"{option[0]} would change nothing" in err
    assert not (tmp_path / "p.json").exists()


def test_the_scheduler_is_a_choice(job: Path, printed: Run, tmp_path: Path) -> None:
    document, _ = solved(job, printed, tmp_path, "--scheduler", "vllm")
    assert document["runtime"]["scheduler"] == "vllm"
    assert "vLLM's scheduler" in document["predicted"]["provenance"]["latencies"]


def test_half_of_each_prompt_in_the_cache(job: Path, printed: Run, tmp_path: Path) -> None:
    plain, _ = solved(job, printed, tmp_path, "--max-running", 1, "--concurrency", 1)
    cached, err = solved(job, printed, tmp_path, "--max-running", 1, "--concurrency", 1, "--prefix-hit", 0.5)
    assert cached["predicted"]["ttft_ms"]["p50"] < plain["predicted"]["ttft_ms"]["p50"]
    assert cached["kv"]["tokens"] == plain["kv"]["tokens"]
    assert "charged KV of its own" in err


def test_lengths_that_vary_make_room_for_the_longest(job: Path, printed: Run, tmp_path: Path) -> None:
    document, _ = solved(
        job, printed, tmp_path, "--max-running", 1, "--concurrency", 1, "--length-variation", 1
    )
    assert document["kv"]["tokens"] > 5 * 96
    predicted = document["predicted"]
    assert predicted["ttft_ms"]["p99"] > 1.5 * predicted["ttft_ms"]["p50"]


def test_deferral_is_predicted_and_warned_of(job: Path, printed: Run, tmp_path: Path) -> None:
    document, err = solved(job, printed, tmp_path, "--deferred-experts", 1, "--skip-idle-cold")
    assert document["runtime"] == {"scheduler": "sglang", "deferred_experts": 1, "skip_idle_cold": True}
    assert "changes what the model computes" in " ".join(err.split())
    assert any("no weights of the selections" in note for note in document["notes"])
    predicted = document["predicted"]
    assert total(predicted["time_split"]) == pytest.approx(predicted["decode_step_ms"], rel=1e-12)


@pytest.mark.parametrize(
    "more", [("--prefill-from", "none"), ("--deferred-experts", 1), ("--skip-idle-cold",)], ids=str
)
def test_a_plan_is_evaluated_as_it_was_solved(
    job: Path, printed: Run, tmp_path: Path, more: tuple[object, ...]
) -> None:
    document, _ = solved(job, printed, tmp_path, *more)
    code, out, err = printed(
        "evaluate",
        *(tmp_path / "p.json", "--model", job / "model", "--trace", job / "trace.safetensors"),
        *("--profile", job / "profile.json", "--json"),
    )
    assert code == 0, err
    evaluated = json.loads(out)
    told = {name: gain["mean"] for name, gain in document["heldout"]["gains"].items()}
    assert {name: gain["mean"] for name, gain in evaluated["gains"].items()} == pytest.approx(told)
    # Deferred experts are in the predicted steps alone, and that is said.
    deferred = any("no expert is deferred here" in note for note in evaluated["notes"])
    assert deferred == ("--deferred-experts" in more)
    same = evaluated["step_us"]["plan"] == pytest.approx(document["predicted"]["moe_step_us"])
    assert same != deferred
    assert evaluated["dynamic"] == document["dynamic"]
    left_out = any("prompts are left out" in note for note in evaluated["notes"])
    assert left_out == ("none" in more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--rate", 0), "--rate is 0"),
        (("--rate", "nan"), "--rate is nan"),
        (("--length-variation", -1), "--length-variation is -1"),
        (("--length-variation", 3.9), "--length-variation"),
        (("--prefix-hit", 1), "--prefix-hit is 1"),
        (("--deferred-experts", 3), "chooses 2 experts"),
        (("--deferred-experts", -1), "--deferred-experts is -1"),
        (("--scheduler", "orca"), "--scheduler 'orca' is not known"),
        (("--arrivals", "nothing.csv"), "no such file"),
    ],
)
def test_traffic_that_cannot_be_is_refused(
    job: Path, printed: Run, tmp_path: Path, more: tuple[object, ...], said: str
) -> None:
    code, _, err = printed(
        "solve",
        *("--model", job / "model", "--trace", job / "trace.safetensors", "--profile", job / "profile.json"),
        *("--hbm-budget", "4GiB", "--prompt-tokens", 1000, "--output-tokens", 32, "-o", tmp_path / "p.json"),
        *more,
    )
    assert code == 2
    assert said in " ".join(err.split())
    assert not (tmp_path / "p.json").exists()
