"""Prompts from texts and JSON-lines: what becomes a request, of which domain, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.profiler.trace.prompt import Prompt, _pieces, prompts_digest, read_prompts


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_text_is_one_prompt_and_its_file_names_the_domain(tmp_path: Path) -> None:
    path = written(tmp_path, "prose.txt", "A short text.")
    assert read_prompts([str(path)]) == (Prompt("prose", text="A short text."),)
    assert read_prompts([f"speech={path}"]) == (Prompt("speech", text="A short text."),)


def test_a_long_text_is_cut_at_white_space(tmp_path: Path) -> None:
    path = written(tmp_path, "t.txt", "aaaa bbbb cccc dddd")
    assert [one.text for one in read_prompts([str(path)], cut_characters=10)] == [
        "aaaa bbbb ",
        "cccc dddd",
    ]


@given(st.text(alphabet="ab \n", min_size=1, max_size=60), st.integers(1, 12))
def test_pieces_hold_the_whole_text_but_blank_ones(text: str, most: int) -> None:
    pieces = _pieces(text, most)
    assert all(0 < len(piece) <= most and piece.strip() for piece in pieces)
    assert "".join(pieces).split() == text.split() or "".join(pieces).replace(" ", "").replace(
        "\n", ""
    ) == text.replace(" ", "").replace("\n", "")


def test_a_folder_stands_for_its_files_and_gives_them_its_name(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    written(tmp_path / "code", "b.py", "b")
    written(tmp_path / "code", "a.py", "a")
    written(tmp_path / "code", ".hidden", "h")
    assert read_prompts([str(tmp_path / "code")]) == (Prompt("code", text="a"), Prompt("code", text="b"))


def test_lines_of_json_hold_texts_conversations_or_tokens(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"prompt": "one\u2028line"},
        {"text": "two", "domain": "chat"},
        {"messages": [{"role": "user", "content": "hi"}]},
        {"prompt_token_ids": [3, 4]},
    ]
    path = written(tmp_path, "mixed.jsonl", "\n".join(json.dumps(one, ensure_ascii=False) for one in lines))
    assert read_prompts([str(path)]) == (
        Prompt("mixed", text="one\u2028line"),
        Prompt("chat", text="two"),
        Prompt("mixed", messages=({"role": "user", "content": "hi"},)),
        Prompt("mixed", token_ids=(3, 4)),
    )


def test_of_a_large_domain_evenly_spaced_prompts_are_taken(tmp_path: Path) -> None:
    many = written(tmp_path, "many.jsonl", "\n".join(json.dumps({"prompt": str(at)}) for at in range(11)))
    few = written(tmp_path, "few.txt", "few")
    texts = [one.text for one in read_prompts([str(many), str(few)], most_per_domain=3)]
    assert texts == ["0", "5", "10", "few"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "not an object"),
        ('{"prompt": ""}', "holds no prompt"),
        ('{"prompt": 5}', "holds no prompt"),
        ('{"messages": []}', "holds no prompt"),
        ('{"prompt_token_ids": [-1]}', "holds no prompt"),
        ('{"prompt_token_ids": [true]}', "holds no prompt"),
        ('{"prompt": "x", "domain": 3}', "'domain' is no text"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = written(tmp_path, "bad.jsonl", '{"prompt": "good"}\n' + line)
    with pytest.raises(BadInputError, match=told) as caught:
        read_prompts([str(path)])
    assert "bad.jsonl, line 2" in caught.value.what


def test_a_folder_stands_for_its_files_that_hold_text(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for name, text in (("a.py", "a = 1"), ("py.typed", ""), ("blank.py", "\n \n"), (".hidden", "b = 2")):
        written(folder, name, text)
    assert [prompt.text for prompt in read_prompts([str(folder)])] == ["a = 1"]
    (folder / "a.py").unlink()
    with pytest.raises(BadInputError, match="code: it holds no text"):
        read_prompts([str(folder)])


def test_unusable_sources_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "empty").mkdir()
    written(tmp_path, "blank.txt", " \n ")
    for source, told in (
        (str(tmp_path / "none.txt"), "no such file"),
        (str(tmp_path / "latin.txt"), "not UTF-8 text .byte 3."),
        (str(tmp_path / "empty"), "a folder without files"),
        (str(tmp_path / "blank.txt"), "it holds no text"),
        ("", "a text has an empty name"),
        ("=x", "lacks a domain or a file"),
    ):
        with pytest.raises(BadInputError, match=told):
            read_prompts([source])
    with pytest.raises(BadInputError, match="there is no prompt"):
        read_prompts([])


def test_the_digest_tells_prompts_their_order_and_domains_apart() -> None:
    one, two = Prompt("a", text="1"), Prompt("a", text="2")
    digests = {
        prompts_digest(prompts)
        for prompts in ([one], [one, two], [two, one], [Prompt("b", text="1")], [Prompt("a", token_ids=(1,))])
    }
    assert len(digests) == 5
