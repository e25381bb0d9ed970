"""benchmark.sh: the plan and today's flags, measured by the same client with the same requests."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_documents import rules_of
from jsonschema import Draft202012Validator
from kt_export import CONFIG, plan, script

from placer.exports.sglang_kt import export_sglang_kt

CLIENT = """
import json, os, sys
words = sys.argv[1:]
given = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
seed, side = int(given["--seed"]), given["--tag"].split("-")[0]
speed = (200.0 if side == "plan" else 100.0) + seed
completed = int(os.environ.get("COMPLETED", given["--num-prompts"]))
line = {"tag": given["--tag"], "completed": completed, "output_throughput": speed, "words": words}
line |= {name: 1000 / speed for name in ("mean_tpot_ms", "p99_tpot_ms", "mean_ttft_ms", "p99_ttft_ms")}
with open(given["--output-file"], "a") as file:
    file.write(json.dumps(line) + "\\n")
"""
HTTP_SERVER = """
import http.server, sys
print("server", *sys.argv[1:], flush=True)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""


@pytest.fixture
def bench(tmp_path: Path, machine: Path) -> Path:
    """An export beside a machine whose server answers and whose client measures twice the baseline's speed."""
    if shutil.which("curl") is None or shutil.which("setsid") is None:
        pytest.skip("needs curl and setsid")
    export_sglang_kt(plan(), tmp_path / "out", config=CONFIG)
    (machine / "site" / "sglang" / "launch_server.py").write_text(HTTP_SERVER)
    (machine / "site" / "sglang" / "bench_serving.py").write_text(CLIENT)
    return tmp_path


def measure(bench: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    machine = bench / "machine"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(machine / "site"),
        "MODEL_PATH": str(machine / "fp8 model"),
        "KT_WEIGHT_PATH": str(machine / "weights"),
        "PLACER": "none-here",
        "PORT": port,
        "OUT": str(bench / "results"),
        "BASELINE": 'exec "$PYTHON" -m sglang.launch_server --baseline --port "$PORT"',
    }
    return script(bench, "benchmark.sh", *words, **given | environment)


def summary_of(bench: Path) -> dict[str, Any]:
    """summary.json, which keeps its schema."""
    summary: dict[str, Any] = json.loads((bench / "results" / "summary.json").read_text())
    Draft202012Validator(rules_of("benchmark")).validate(summary)
    return summary


def test_the_benchmark_measures_plan_and_baseline_with_the_same_requests(bench: Path) -> None:
    done = measure(bench)
    assert done.returncode == 0, done.stderr
    runs = {
        side: [json.loads(line) for line in (bench / "results" / f"{side}.jsonl").read_text().splitlines()]
        for side in ("plan", "baseline")
    }
    assert [len(lines) for lines in runs.values()] == [3, 3]
    for plan_run, baseline_run in zip(*runs.values(), strict=True):
        own = ("--tag", "--output-file")
        words = [
            [
                word
                for before, word in zip(["", *run["words"]], run["words"], strict=False)
                if before not in own
            ]
            for run in (plan_run, baseline_run)
        ]
        assert words[0] == words[1]
    # What was planned for is what is sent: 8 clients, 512 prompt and 128 output tokens.
    text = " ".join(runs["plan"][0]["words"])
    for words_ in (
        "--max-concurrency 8",
        "--num-prompts 64",
        "--random-input-len 512",
        "--random-output-len 128",
    ):
        assert words_ in text
    summary = summary_of(bench)
    figures = summary["sides"]["plan"]["figures"]["output_throughput"]
    assert (figures["mean"], figures["stdev"], figures["runs"]) == (202, 1, [201, 202, 203])
    ratio = summary["ratio"]["output_throughput"]
    assert ratio["plan_over_baseline"] == pytest.approx(202 / 102)
    assert ratio["differs"] is True
    assert "plan 202.00 ± 1.00, baseline 102.00 ± 1.00, plan / baseline 1.980" in done.stdout
    # Both servers are gone, and each was started with its own flags.
    assert "--config" in (bench / "results" / "plan.log").read_text()
    assert "--baseline" in (bench / "results" / "baseline.log").read_text()


def test_the_benchmark_measures_a_server_that_runs_and_a_dataset(bench: Path) -> None:
    (bench / "prompts.jsonl").write_text("{}")
    data = {"SERVER_URL": "http://127.0.0.1:9", "DATASET": str(bench / "prompts.jsonl")}
    done = measure(bench, "plan", **data, BASELINE="")
    assert done.returncode == 0, done.stderr
    line = json.loads((bench / "results" / "plan.jsonl").read_text().splitlines()[0])
    assert "--dataset-name custom --dataset-path" in " ".join(line["words"])
    assert "random" not in done.stderr
    assert not (bench / "results" / "baseline.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "environment", "reason"),
    [
        (["all"], {}, "usage: benchmark.sh"),
        ([], {"RUNS": "2"}, "at least 3 runs"),
        ([], {"MODEL_PATH": ""}, "set MODEL_PATH"),
        ([], {"DATASET": "/none"}, "DATASET=/none is not a file"),
        ([], {"SERVER_URL": "http://x"}, "say whose server"),
        (["baseline"], {"BASELINE": ""}, "set BASELINE"),
        (["baseline"], {"BASELINE": "exit 1"}, "the server of the baseline ended"),
        (["plan"], {"PLACER": "false"}, "does not run the plan"),
        (["plan", "baseline"], {}, "usage: benchmark.sh"),
        ([], {"RUNS": "three"}, "RUNS=three is not a whole number of 1 or more"),
        ([], {"PROMPTS": "0"}, "PROMPTS=0 is not a whole number of 1 or more"),
        (
            ["plan"],
            {"SERVER_URL": "http://x", "COMPLETED": "0"},
            "no request of the plan completed in run 1 of 3",
        ),
    ],
)
def test_the_benchmark_refuses_what_would_measure_nothing(
    bench: Path, words: list[str], environment: dict[str, str], reason: str
) -> None:
    done = measure(bench, *words, **environment)
    assert done.returncode == 2
    assert reason in done.stderr
    assert not (bench / "results" / "summary.json").exists()


def test_runs_are_never_mixed_with_those_of_an_earlier_benchmark(bench: Path) -> None:
    running = {"SERVER_URL": "http://127.0.0.1:9"}
    assert measure(bench, "plan", **running).returncode == 0
    again = measure(bench, "plan", **running)
    assert (again.returncode, "holds runs of the plan already" in again.stderr) == (2, True)
    assert len((bench / "results" / "plan.jsonl").read_text().splitlines()) == 3
    # The other side may follow, into the same summary.
    assert measure(bench, "baseline", **running).returncode == 0
    assert set(summary_of(bench)["sides"]) == {"plan", "baseline"}


def test_one_token_an_answer_leaves_no_ratio_of_times_between_tokens(bench: Path) -> None:
    client = bench / "machine" / "site" / "sglang" / "bench_serving.py"
    client.write_text(
        CLIENT.replace("with open", "line |= {'mean_tpot_ms': 0.0, 'p99_tpot_ms': 0.0}\nwith open")
    )
    assert measure(bench).returncode == 0
    ratio = summary_of(bench)["ratio"]
    assert set(ratio) == {"output_throughput", "mean_ttft_ms", "p99_ttft_ms"}


def test_the_plan_of_a_recording_export_is_measured_without_the_recorder(bench: Path) -> None:
    export_sglang_kt(plan(), bench / "out", config=CONFIG, record=True)
    assert measure(bench, "plan").returncode == 0
    assert "recorder" not in (bench / "results" / "plan.log").read_text()
    assert "recorder" not in (bench / "out" / "config.yaml").read_text()
    assert "`RECORD=0 ./launch.sh` starts without it" in (bench / "out" / "README.md").read_text()
