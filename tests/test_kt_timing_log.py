"""sglang-kt's timing log: the runtime's own format, what else a log holds, and what is refused."""

import ast
from pathlib import Path

import pytest
from kt_log import LINE, line
from sglang_kt_source import source

from placer.errors import BadInputError
from placer.profiler.kt_timing_log import read_kt_timing_log


def test_stages_are_read_in_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "[2026-11-29 12:00:00] server_args=...\n"
        + line(layer=5, step=17, tokens=8, submit=0.12, mask=0.03, gpu=0.4, sync=0.01, merge=1.5)
        + "\n[2026-11-29 12:00:01 TP0] Decode batch, #running-req: 8\n"
    )
    (call,) = read_kt_timing_log(path).calls
    assert (call.layer, call.step, call.tokens) == (5, 17, 8)
    assert call.submit_us == pytest.approx(120)
    assert call.gpu_us == pytest.approx(400)
    assert call.total_us == pytest.approx(2060)
    assert call.after_submit_us == pytest.approx(1940)
    assert call.cold_ends_last


@pytest.mark.runtime
def test_the_format_is_the_runtimes() -> None:
    tree = ast.parse(source("srt/layers/moe/kt_ep_wrapper.py").read_text(encoding="utf-8"))
    formats = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    ]
    assert LINE in formats


def test_a_side_that_is_hidden_behind_the_other_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(line(gpu=2.0, merge=0.1))
    assert not read_kt_timing_log(path).calls[0].cold_ends_last


def test_one_mangled_line_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("\n".join([line(), line()[:-60], line()]))
    log = read_kt_timing_log(path)
    assert (len(log.calls), log.unreadable) == (2, 1)
    assert any("1 line " in note for note in log.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no line of"),
        ("[2026-11-29 12:00:00 TP0] Decode batch\n", "holds no line of"),
        (line().replace("total=", "total=-"), "1 of 1 lines"),
        (line().replace("gpu=0.40", "gpu=nan"), "1 of 1 lines"),
        (line(tokens=0), "1 of 1 lines"),
        ("\n".join([line()] * 3 + [line()[:60]] * 2), "2 of 5 lines"),
        # 0.12 + 0.03 + 0.40 + 0.01 + 1.50 is 2.06 ms.
        (line().replace("total=2.06", "total=20.60"), "20.60 ms in all, 2.060 ms in stages"),
        (line().replace("total=2.06", "total=0.50"), "in 1 of 1 calls the stages do not add up"),
    ],
)
def test_what_is_no_timing_log_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(text)
    with pytest.raises(BadInputError, match=said) as caught:
        read_kt_timing_log(path)
    assert "SGLANG_KT_HYBRID_TIMING_DEEP=1" in caught.value.hint


def test_a_line_without_end_is_no_reason_to_run_out_of_memory(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"x" * (1 << 22) + b"\n" + line().encode())
    assert len(read_kt_timing_log(path).calls) == 1


def test_a_log_that_is_not_there_says_to_check_its_path(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file") as caught:
        read_kt_timing_log(tmp_path / "nope.log")
    assert caught.value.hint.startswith("check the path")
