"""The table of gains on held-out requests, and that real routing never makes a plan slower than a baseline."""

from pathlib import Path

import numpy as np
import pytest
from shared_data import SHARED_DATA, needs_shared_data
from tiny_model import tiny_model

from placer.examples.held_out_gains import cases, main
from placer.model.spec import read_model
from placer.profiler.trace.importing import import_trace


def test_the_table_says_what_was_returned_and_how_sure_gains_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model(tmp_path / "model")
    keys = np.random.default_rng(0).random((2000, 4, 8)) * (1 + np.arange(8))
    topk = np.argsort(-keys, axis=2)[:, :, :2].astype(np.uint8)
    np.savez(tmp_path / "ids.npz", topk=topk, offsets=np.arange(0, 2001, 50))
    arguments = [str(tmp_path / "ids.npz"), "--model", str(tmp_path / "model")]
    options = ["--running", "16", "--share", "0.25", "0.5", "--hot-us", "1.5", "-o", str(tmp_path / "t.md")]
    assert main([*arguments, *options]) == 0
    text = (tmp_path / "t.md").read_text()
    assert "slower than a baseline beyond the interval: 0 of 2 cases" in text
    assert "was returned: " in text
    command = "ids.npz --model model --running 16 --share 0.25 0.5 --hot-us 1.5"
    assert f"Made by `python -m placer.examples.held_out_gains {command}`" in text
    rows = [line for line in text.splitlines() if line.startswith("| 1.5 µs")]
    assert [row.split(" | ")[1:3] for row in rows] == [["16", "25%"], ["16", "50%"]]
    # Experts 0 and 1 are the least chosen, and the runtime's default holds them hot.
    assert all("+" in row.split(" | ")[7] for row in rows)
    assert capsys.readouterr().err.count("\n") == 2


@needs_shared_data
def test_on_real_routing_no_baseline_is_faster_beyond_the_interval(tmp_path: Path) -> None:
    """One running request and sixteen, half and most experts hot; the whole table is in docs/held-out-gains.md."""
    (tmp_path / "config.json").write_text((SHARED_DATA / "model_configs" / "gpt-oss-20b.json").read_text())
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    found = list(cases(read_model(tmp_path), trace, (16,), (0.5, 0.8), (1.5,)))
    assert [case.slower_than for case in found] == [(), ()]
    for case in found:
        assert case.solved.gains is not None
        assert case.solved.gains.over["uniform"].excludes_zero
        assert case.solved.convergence is not None
        assert case.solved.convergence.converged
