"""`placer solve` and `placer evaluate` on a trace with domains: mixes, the worst domain, and how sure gains are."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiles import profile
from tiny_model import tiny_model

from placer.level import levels
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import read_model
from placer.placement import read_placement
from placer.profiler.cost import Provenance, SideCost
from placer.profiler.profile import write_profile
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader
from placer.workload import Workload

Run = Callable[..., tuple[int, str, str]]
LONG = "prose " * 20_000
DATASHEET = Provenance.DATASHEET


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty requests of code, which prefers experts 0 to 3, and thirty of prose, which prefers 4 to 7."""
    folder = tmp_path_factory.mktemp("job")
    model = tiny_model(folder / "model")
    random = np.random.default_rng(0)
    requests, tokens, L = 90, 20, len(model.moe_layers)
    domain = np.repeat(np.arange(requests) >= 60, tokens).astype(np.int16)
    liked = np.where(domain[:, None] == 0, np.arange(8) < 4, np.arange(8) >= 4)
    keys = random.random((requests * tokens, L, 8)) + 1.5 * liked[:, None]
    trace = TokenTrace(
        header=TraceHeader(model.name, model.moe_layers, 8, 2, "made up", ("code", LONG)),
        topk_ids=np.argsort(-keys, axis=2)[:, :, :2].astype(np.uint16),
        request=np.repeat(np.arange(requests, dtype=np.int32), tokens),
        position=np.tile(np.arange(tokens, dtype=np.int32), requests),
        phase=np.tile(np.array([Phase.PREFILL] * 4 + [Phase.DECODE] * 16, dtype=np.uint8), requests),
        domain=domain,
    )
    write_trace(trace, folder / "trace.safetensors")
    plain = TokenTrace(trace.header, trace.topk_ids, trace.request, trace.position, trace.phase)
    write_trace(plain, folder / "plain.safetensors")
    slow_cpu = profile()
    hot = SideCost(
        (replace(slow_cpu.gpu.hot.regimes[0], fixed_us=1.0, expert_us=1.0, tile_us=0.1),), DATASHEET
    )
    write_profile(replace(slow_cpu, gpu=replace(slow_cpu.gpu, hot=hot)), folder / "profile.json")
    return folder


def room_for(job: Path, experts: int) -> str:
    """The budget that leaves room for so many hot experts."""
    model, whole = read_model(job / "model"), 8 * 2**30
    (level,) = levels(
        model,
        Workload(64, 32, 16),
        tp=1,
        budget_bytes=whole,
        max_running=16,
        min_kv_tokens=0,
        kv_dtypes=("bf16",),
        chunk_tokens=64,
    )
    return f"{whole - level.ledger.unused_bytes + experts * expert_share_bytes(model, 1)}B"


def solve(job: Path, output: Path, *more: object, trace: str = "trace.safetensors") -> list[object]:
    return [
        "solve",
        *("--model", job / "model", "--trace", job / trace, "--profile", job / "profile.json"),
        *("--hbm-budget", room_for(job, 12), "--prompt-tokens", 64, "--output-tokens", 32),
        *("--concurrency", 16, "--max-running", 16, "--chunk", 64, "-o", output),
        *more,
    ]


def placed(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    read_placement(path)
    return document


def test_a_solve_says_on_how_many_steps_and_how_sure_its_gains_are(
    job: Path, printed: Run, tmp_path: Path
) -> None:
    code, _, err = printed(*solve(job, tmp_path / "p.json"))
    assert code == 0, err
    held = placed(tmp_path / "p.json")["heldout"]
    assert held["requests"] == 27
    assert set(held["gains"]) == {"frequency", "frequency_per_layer", "uniform", "front_loading", "random"}
    for gain in held["gains"].values():
        assert gain["low"] <= gain["high"]
        assert gain["distinct"] == (not gain["low"] <= 0 <= gain["high"])
    assert held["steps"]["decode_steps"][:2] == [64, 128]
    assert held["steps"]["used"] in held["steps"]["decode_steps"]
    assert "bootstrap over 27 reported requests" in err
    assert "solved on 64 decode steps" in err
    assert all(len(line) <= 100 for line in err.splitlines() if str(tmp_path) not in line)


def test_a_mix_moves_the_plan_to_the_domain_that_is_served(job: Path, run: Run, tmp_path: Path) -> None:
    def liked_by_prose(path: Path) -> int:
        return sum(expert >= 4 for ids in placed(path)["hot"].values() for expert in ids)

    hot = {}
    for share in (0.05, 0.95):
        path = tmp_path / f"{share}.json"
        code, _, err = run(*solve(job, path, "--mix", f"code={1 - share:g},{LONG}={share:g}"))
        assert code == 0, err
        assert placed(path)["mix"] == pytest.approx({"code": 1 - share, LONG: share})
        hot[share] = liked_by_prose(path)
        # The long name is printed cut.
        assert "mix of the tokens: code" in err
        assert LONG not in err
    assert hot[0.05] < hot[0.95]


def test_a_mix_is_judged_as_a_mix(job: Path, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    assert run(*solve(job, path, "--mix", "code=1"))[0] == 0
    options = [
        "--model",
        job / "model",
        "--trace",
        job / "trace.safetensors",
        "--profile",
        job / "profile.json",
    ]
    own = json.loads(run("evaluate", path, *options, "--mix", "code=1", "--json")[1])
    other = json.loads(run("evaluate", path, *options, "--mix", f"{LONG}=1", "--json")[1])
    assert own["coverage"]["plan"] > own["coverage"]["uniform_null"] > other["coverage"]["plan"]
    assert set(own["gains"]["uniform"]) == {"mean", "low", "high"}
    assert own["gains"]["frequency"]["high"] > other["gains"]["frequency"]["high"]
    code, _, err = run("evaluate", path, *options)
    assert code == 0
    assert "the plan was made for a mix of its own (--mix)" in err
    assert LONG not in err


@pytest.mark.parametrize("criterion", ["time", "regret"])
def test_a_robust_plan_helps_the_worst_domain(
    job: Path, printed: Run, tmp_path: Path, criterion: str
) -> None:
    code, _, err = printed(*solve(job, tmp_path / "p.json", "--robust", criterion, "--frontier"))
    assert code == 0, err
    document = placed(tmp_path / "p.json")
    (row,) = (point for point in document["frontier"] if point["chosen"])
    assert row["hot_experts"] == document["hot_total"]
    assert row["objective_us"] == document["solver"]["objective_us"]
    assert row["output_tokens_per_s"] == document["predicted"]["output_tokens_per_s"]
    robust = document["robust"]
    assert robust["criterion"] == criterion
    assert set(robust["domains"]) == {"code", LONG}
    assert robust["bound"] <= robust["value"] * (1 + 1e-9)
    if document["heldout"]["chosen"] == "plan":
        worst = max if criterion == "time" else None
        if worst is not None:
            times = robust["domains"].values()
            assert worst(each["plan_us"] for each in times) <= 1.05 * worst(each["mix_us"] for each in times)
    assert "by domain" in err
    assert "<- worst" in err
    assert "at these settings no plan is below" in " ".join(err.split())
    assert all(len(line) <= 100 for line in err.splitlines() if str(tmp_path) not in line)


@pytest.mark.parametrize(
    ("options", "trace", "says"),
    [
        (["--mix", "law=1"], "trace.safetensors", "'law', which the trace does not hold"),
        (["--mix", "code=0.5"], "trace.safetensors", "sum to 0.5"),
        (["--mix", "code=1,x=0"], "trace.safetensors", "the share 0"),
        (["--mix", "code=1"], "plain.safetensors", "the trace names none"),
        (["--mix", "code=1", "--robust", "time"], "trace.safetensors", "needs two domains of at least 8"),
        (["--robust", "time"], "plain.safetensors", "the trace names none"),
        (["--robust", "best"], "trace.safetensors", "use one of: time, regret"),
    ],
)
def test_what_cannot_be_mixed_is_refused(
    job: Path, run: Run, tmp_path: Path, options: list[str], trace: str, says: str
) -> None:
    code, _, err = run(*solve(job, tmp_path / "p.json", *options, trace=trace))
    assert code == 2
    assert says in err
    assert len(err) < 1000
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("options", [["--mix", "code=1"], ["--robust", "time"]])
def test_domains_need_a_trace(job: Path, run: Run, tmp_path: Path, options: list[str]) -> None:
    arguments = solve(job, tmp_path / "p.json", *options)
    arguments[arguments.index("--trace") + 1] = "none"
    code, _, err = run(*arguments)
    assert code == 2
    assert f"{options[0]} needs a trace" in err
