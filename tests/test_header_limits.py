"""Reading headers stays quick and small: on the largest real checkpoints, and on hostile files."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from family_configs import FP8
from sparse_checkpoint import write_checkpoint
from tiny_model import TINY_CONFIG

MAX_SECONDS = 2.0
MAX_BYTES = 300 * 10**6

_READ = """
import json, pathlib, re, sys, time
from placer.errors import BadInputError
from placer.model.spec import read_model
# Seconds of this process alone: other work on the machine is not what is tested.
started, said = time.process_time(), ""
try:
    read_model(sys.argv[1])
except BadInputError as error:
    said = str(error)
seconds = time.process_time() - started
# Not ru_maxrss, which a process inherits from the one that started it.
status = pathlib.Path("/proc/self/status")
peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read_text())[1]) * 1024 if status.exists() else 0
print(json.dumps({"seconds": seconds, "peak_bytes": peak, "said": said}))
"""

KIMI_K2 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "num_hidden_layers": 61,
    "first_k_dense_replace": 1,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 131072,
    "quantization_config": FP8,
}


def measured_read(path: Path) -> dict[str, Any]:
    """Seconds, peak bytes and the refusal of reading ``path`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _READ, str(path)], check=True, capture_output=True, text=True, timeout=60
    )
    return dict(json.loads(done.stdout))


def test_a_thousand_gigabytes_in_160_shards_take_two_seconds(tmp_path: Path) -> None:
    # 139,583 tensors, 1.03 TB of holes.
    folder = write_checkpoint(tmp_path / "kimi-k2", KIMI_K2, shards=160)
    runs = [measured_read(folder) for _ in range(2)]
    assert runs[0]["said"] == ""
    assert min(run["seconds"] for run in runs) < MAX_SECONDS
    assert max(run["peak_bytes"] for run in runs) < MAX_BYTES


def shard(path: Path, header: bytes, *, length: int | None = None, file_bytes: int = 0) -> None:
    """A file with ``header``, which it says is ``length`` bytes long, grown by a hole to ``file_bytes``."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header) if length is None else length) + header)
        file.truncate(max(file_bytes, 8 + len(header)))


def entries(number: int, spell: Callable[[int], bytes]) -> bytes:
    return b"{" + b",".join(spell(index) for index in range(number)) + b"}"


def good_entry(index: int) -> bytes:
    return b'"t%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (index, index, index + 1)


HEADERS: dict[str, Callable[[Path], None]] = {
    # A billion tensors would take a header of 130 GB; the file is large enough for it.
    "a billion tensors": lambda path: shard(path, b"{}", length=130 * 10**9, file_bytes=2**38),
    "a length beyond the file": lambda path: shard(path, b"{}", length=2**63),
    "as many entries as fit": lambda path: shard(path, entries(600_000, good_entry)[: 32 * 2**20]),
    "too many tensors for one file": lambda path: shard(path, entries(340_000, good_entry), file_bytes=2**26),
    "as many tensors as one file may have": lambda path: shard(
        path, entries(200_000, good_entry), file_bytes=2**26
    ),
    "empty objects": lambda path: shard(path, b"[" + b"{}," * (10 * 2**20) + b"{}]"),
    "empty objects, few": lambda path: shard(path, b"[" + b"{}," * (2 * 2**20) + b"{}]"),
    "small numbers": lambda path: shard(path, b'{"a":[' + b"1," * (3 * 2**20) + b"1]}"),
    "distinct objects": lambda path: shard(
        path, entries(300_000, lambda index: b'"%d":{"":%d}' % (index, index))
    ),
    "deep nesting": lambda path: shard(path, b'{"a":' * (4 * 2**20)),
    "open brackets": lambda path: shard(path, b"[" * (32 * 2**20)),
    "one long name": lambda path: shard(path, b'{"' + b"a" * (32 * 2**20 - 16) + b'":1}'),
    "a long metadata string": lambda path: shard(
        path, b'{"__metadata__":{"a":"' + b"\\n" * (15 * 2**20) + b'"},"t":{}}'
    ),
    "many metadata strings": lambda path: shard(
        path, b'{"__metadata__":{' + b'"a":"b",' * (3 * 2**20) + b'"c":7}}'
    ),
    "white space": lambda path: shard(path, b"{" + b" " * (32 * 2**20 - 2)),
    "not a number": lambda path: shard(path, b'{"t":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}'),
    "overlapping": lambda path: shard(
        path,
        entries(100_000, lambda index: b'"t%d":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}' % index),
        file_bytes=2**34,
    ),
    "names with path tricks": lambda path: shard(
        path,
        entries(
            50_000,
            lambda index: (
                b'"../../x/%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (index, index, index + 1)
            ),
        ),
        file_bytes=2**24,
    ),
    "a thousand axes": lambda path: shard(
        path, b'{"t":{"dtype":"U8","shape":[' + b"1," * 10**6 + b'1],"data_offsets":[0,1]}}'
    ),
    "endless digits": lambda path: shard(
        path, b'{"t":{"dtype":"U8","shape":[' + b"9" * 10**6 + b'],"data_offsets":[0,1]}}'
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header_ends_soon_and_small(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**KIMI_K2, "num_hidden_layers": 2}))
    HEADERS[name](tmp_path / "model.safetensors")
    run = measured_read(tmp_path)
    assert run["said"]
    assert "Traceback" not in run["said"]
    assert run["seconds"] < MAX_SECONDS
    assert run["peak_bytes"] < MAX_BYTES


INDEXES: dict[str, Callable[[], bytes]] = {
    "many entries": lambda: b'{"weight_map":' + entries(2_000_000, lambda index: b'"%d":"a"' % index) + b"}",
    "empty objects": lambda: b'{"weight_map":[' + b"{}," * (8 * 2**20) + b"{}]}",
    "long names": lambda: (
        b'{"weight_map":{' + b",".join(b'"%d%s":"a"' % (index, b"x" * (2**20)) for index in range(79)) + b"}}"
    ),
    "not a number": lambda: b'{"weight_map":{"a":NaN}}',
    "many missing shards": lambda: (
        b'{"weight_map":' + entries(300_000, lambda index: b'"%d":"%d.safetensors"' % (index, index)) + b"}"
    ),
}


@pytest.mark.parametrize("name", INDEXES)
def test_a_hostile_index_ends_soon_and_small(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KIMI_K2))
    (tmp_path / "model.safetensors.index.json").write_bytes(INDEXES[name]())
    run = measured_read(tmp_path)
    assert run["said"]
    assert run["seconds"] < MAX_SECONDS
    assert run["peak_bytes"] < MAX_BYTES


CONFIGS: dict[str, Callable[[], bytes]] = {
    "empty objects": lambda: b'{"a":[' + b"{}," * (2**20) + b"{}]}",
    "larger than any": lambda: b" " * (7 * 2**20),
    "deep nesting": lambda: b'{"text_config":' * 300_000,
    "many layers": lambda: json.dumps(
        {**KIMI_K2, "num_hidden_layers": 4096, "n_routed_experts": 65535}
    ).encode(),
    "many experts in MTP layers": lambda: json.dumps(
        {**KIMI_K2, "n_routed_experts": 60_000, "num_nextn_predict_layers": 16}
    ).encode(),
    "many wrappers": lambda: b'{"text_config":' * 900 + b"{}" + b"}" * 900,
    "many groups": lambda: json.dumps(
        {
            **KIMI_K2,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {str(i): {"targets": [f"re:.*a{i}.*b.*"]} for i in range(500)},
            },
        }
    ).encode(),
    "many endings": lambda: json.dumps(
        {
            **KIMI_K2,
            "num_hidden_layers": 1024,
            "quantization_config": {
                **FP8,
                "modules_to_not_convert": [f"model.layers.9{i}*" for i in range(200_000)],
            },
        }
    ).encode(),
    "many patterns": lambda: json.dumps(
        {
            **KIMI_K2,
            "quantization_config": {**FP8, "modules_to_not_convert": [f"*a{i}*" for i in range(9999)]},
        }
    ).encode(),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hostile_config_ends_soon_and_small(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_bytes(CONFIGS[name]())
    run = measured_read(tmp_path)
    assert run["said"]
    assert run["seconds"] < MAX_SECONDS
    assert run["peak_bytes"] < MAX_BYTES


def shards(folder: Path, parts: int, tensors: int, spell: Callable[[int], bytes]) -> None:
    """``parts`` files of ``tensors`` one-byte tensors, each spelled by its number over all files."""
    for part in range(parts):
        header = entries(tensors, lambda index, part=part: spell(part * tensors + index) % (index, index + 1))  # type: ignore[misc]
        shard(folder / f"{part}.safetensors", header, file_bytes=8 + len(header) + tensors)


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "headers that a general parser must read": lambda folder: shards(
        folder,
        6,
        60_000,
        lambda index: (
            b'"model.layers.1.mlp.experts.0.w1.%d":{"shape":[1],"dtype":"U8","data_offsets":[%%d,%%d]}'
            % index
        ),
    ),
    "matrices without end": lambda folder: shards(
        folder,
        4,
        150_000,
        lambda index: (
            b'"model.layers.1.mlp.experts.0.m%d.weight":{"dtype":"U8","shape":[1],"data_offsets":[%%d,%%d]}'
            % index
        ),
    ),
    "five thousand files": lambda folder: shards(folder, 5_000, 0, lambda _: b""),
    "a name that rewrites the terminal": lambda folder: shard(folder / "a\x1b[2J.safetensors", b"{}"),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_hostile_files_together_end_soon_and_small(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**KIMI_K2, "num_hidden_layers": 2}))
    CHECKPOINTS[name](tmp_path)
    run = measured_read(tmp_path)
    assert run["said"].replace("\n", "").isprintable()
    assert run["seconds"] < MAX_SECONDS
    assert run["peak_bytes"] < MAX_BYTES


def small_checkpoint(folder: Path) -> Path:
    config = {**KIMI_K2, "num_hidden_layers": 2, "n_routed_experts": 8, "hidden_size": 128}
    return write_checkpoint(folder, config, shards=2)


def test_shards_may_be_links_that_leave_the_directory(tmp_path: Path) -> None:
    # As in Hugging Face's cache, where a snapshot links to blobs.
    blobs = small_checkpoint(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        os.symlink(path, snapshot / path.name)
    assert measured_read(snapshot)["said"] == ""


@pytest.mark.parametrize("with_index", [True, False])
def test_links_to_nothing_and_to_themselves_are_refused(tmp_path: Path, with_index: bool) -> None:
    folder = small_checkpoint(tmp_path / "model")
    if not with_index:
        (folder / "model.safetensors.index.json").unlink()
    shard_path = folder / "model-00002-of-00002.safetensors"
    for target in (tmp_path / "nowhere", shard_path):
        shard_path.unlink()
        shard_path.symlink_to(target)
        said = measured_read(folder)["said"]
        assert "model-00002-of-00002.safetensors" in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_in_the_place_of_a_shard_is_not_waited_for(tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path / "model")
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00002-of-00002.safetensors").unlink()
    os.mkfifo(folder / "model-00002-of-00002.safetensors")
    assert "not a file" in measured_read(folder)["said"]


def test_a_folder_of_a_hundred_thousand_files_is_read_in_time(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_CONFIG))
    for number in range(100_000):
        os.close(os.open(tmp_path / f"{number}.bin", os.O_CREAT | os.O_WRONLY))
    found = measured_read(tmp_path)
    assert found["said"] == ""
    assert found["seconds"] < MAX_SECONDS
