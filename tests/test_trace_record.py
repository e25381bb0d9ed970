"""`placer trace record` on the bundled example: from texts to a trace, exit codes, one clear line."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_server import FakeServer, serving
from tiny_model import tiny_model

from placer.cli import main
from placer.examples import example_folder
from placer.extra import install_command
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.trace import Phase, TokenTrace

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `placer trace record` with arguments: (exit code, stderr in one line)."""

    def runner(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["placer", "trace", "record", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        err = " ".join(capsys.readouterr().err.split())
        assert "Traceback" not in err
        code = caught.value.code
        return code if isinstance(code, int) else 0, err

    return runner


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "code.py").write_text("def read(self, path):\n    return open(path).read()\n" * 8)
    (folder / "scripture.txt").write_text("And the king said unto them, Go ye forth. " * 12)
    return folder


def test_texts_become_a_trace_with_domains_and_both_phases(
    run: Run, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", minversion="5")
    monkeypatch.chdir(tmp_path)
    path = Path("t.safetensors")
    arguments = ("--output-tokens", 4, "--temperature", 1, "--cut", 200, "--requests", 2, "-o", path)
    code, err = run(
        "--model",
        example_folder("tiny-moe"),
        "--text",
        texts / "code.py",
        f"kjv={texts / 'scripture.txt'}",
        *arguments,
    )
    assert code == 0, err
    trace = read_trace(path)
    assert isinstance(trace, TokenTrace)
    assert trace.header.domains == ("code", "kjv")
    assert trace.header.layers == (0, 1, 2, 3, 4)
    assert np.unique(trace.request).size == 4
    assert set(trace.phase) == {Phase.PREFILL, Phase.DECODE}
    assert f" {path}: 4 of 4 requests, {trace.tokens:,} tokens" in f" {err}"


def test_an_interrupted_recording_says_how_to_go_on_and_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model(tmp_path / "model")
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("\n".join(f'{{"prompt_token_ids": [{at}, 3]}}' for at in range(10, 16)))
    path = tmp_path / "t.safetensors"
    with serving(FakeServer("vLLM")) as server:
        arguments = ("--model", tmp_path / "model", "--server", server.url, "--text", prompts, "-o", path)

        def stop(bar: object, text: str, _share: float) -> None:
            if "3 of 6" in text:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("placer.cli.progress.ProgressBar.__call__", stop)
            code, err = run(*arguments, "--concurrency", 1)
        assert code == 130
        assert "interrupted: " in err
        assert "3 of 6 requests" in err
        assert "--resume" in err
        code, err = run(*arguments, "--resume")
        assert code == 0
        assert "6 of 6 requests" in err


def test_bad_input_is_one_line_and_no_file(run: Run, texts: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    model = example_folder("tiny-moe")
    for arguments, told in (
        (("--model", model), "there is no prompt to record"),
        (("--text", texts / "code.py"), "nothing to record from"),
        (("--model", model, "--text", texts / "nothing.txt"), "no such file"),
        (("--model", tmp_path / "none", "--text", texts), "none"),
        (("--server", "127.0.0.1:9", "--text", texts), "refused"),
        (("--server", "nonsense://", "--text", texts), "is no address"),
        (
            ("--server", "127.0.0.1:9", "--text", texts, "--api-key-env", "NOT_THERE"),
            "no such environment variable",
        ),
        (("--model", model, "--text", texts, "--device", "tpu"), "--device 'tpu' is not known"),
        (("--model", model, "--text", texts, "--temperature", "-1"), "temperature"),
        (("--model", model, "--text", texts, "--temperature", "inf"), "temperature inf is no temperature"),
        (("--model", model, "--text", texts, "--seed", 10**30), "4294967295"),
        (("--server", "127.0.0.1:9", "--text", texts, "--timeout", "inf"), "above 0"),
    ):
        code, err = run(*arguments, "-o", path)
        assert code == 2, arguments
        assert told in err
        assert not path.exists()


def test_without_transformers_the_exit_code_is_4(
    run: Run, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, err = run("--model", example_folder("tiny-moe"), "--text", texts, "-o", tmp_path / "t.safetensors")
    assert code == 4
    assert install_command("hf") in " ".join(err.split())


def test_a_prompt_that_cannot_be_rendered_is_told_before_anything_is_run(
    run: Run, texts: Path, tmp_path: Path
) -> None:
    """The bundled model has no chat template, so its third prompt is no prompt for it."""
    pytest.importorskip("transformers", minversion="5")
    chat = tmp_path / "chat.jsonl"
    chat.write_text(
        '{"prompt": "one"}\n{"prompt": "two"}\n{"messages": [{"role": "user", "content": "hi"}]}\n'
    )
    path = tmp_path / "t.safetensors"
    code, err = run("--model", example_folder("tiny-moe"), "--text", chat, "-o", path)
    assert code == 2
    assert "prompt 3 (chat): the chat template refuses its messages" in err
    assert not path.exists()
