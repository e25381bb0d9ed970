"""Whatever bytes an import meets, it gives a trace or says in words what is wrong, in bounded memory and time."""

import base64
import io
import json
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hostile_pickle import MakesFolder
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import IDS, MODEL, SAMPLES, dump, npy, npz

from placer.errors import BadInputError, PlacerError
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.formats import FORMATS
from placer.profiler.trace.importing import import_trace


def test_every_format_has_a_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(FORMATS)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_told_by_content_whatever_the_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(SAMPLES[name](tmp_path))
    trace = import_trace(path, **MODEL)
    assert trace.header.layers == (0, 1)
    write_trace(trace, tmp_path / "trace")
    assert read_trace(tmp_path / "trace").header == trace.header
    others: list[dict[str, Any]] = [{"layers": (0, 1, 2), "hidden_layers": 3}, {"experts": 3}]
    if name not in ("sglang stat", "csv", "parquet", "imatrix"):  # counts alone do not show top-k
        others.append({"top_k": 3})
    for other in others:
        with pytest.raises(BadInputError, match=r"model|expert 3 of 3|do not fill"):
            import_trace(path, **(MODEL | other))


@pytest.mark.parametrize("name", SAMPLES)
def test_damage_is_told_in_words(name: str, tmp_path: Path) -> None:
    whole = SAMPLES[name](tmp_path)
    path = tmp_path / "damaged"
    told: list[tuple[str, str]] = []

    @settings(max_examples=60, deadline=None, database=None)
    @given(
        at=st.integers(0, len(whole)),
        patch=st.binary(max_size=12) | st.just(b"\xff" * 8) | st.just(bytes(8)),
        keep=st.integers(0, len(whole)) | st.just(len(whole)),
    )
    def damaged(at: int, patch: bytes, keep: int) -> None:
        path.write_bytes((whole[:at] + patch + whole[at + len(patch) :])[:keep])
        for format in ("auto", name.split(maxsplit=1)[0]):
            try:
                trace = import_trace(path, format=format, **MODEL)
            except PlacerError as error:
                told.append((error.what, error.hint))
            else:
                told.append((f"{trace.tokens} tokens", "none"))

    damaged()
    assert all(what and hint and "\n" not in what + hint for what, hint in told)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200))
@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_no_bytes_bring_a_traceback(
    format: str, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "f"
    path.write_bytes(data)
    with pytest.raises(PlacerError):
        import_trace(path, format=format, **MODEL)


def test_code_in_a_pickle_never_runs(tmp_path: Path) -> None:
    hostile = MakesFolder(tmp_path / "ran")
    frame = pd.DataFrame({"layer": [hostile], "expert": [0], "count": [1]})
    objects = np.array([hostile], dtype=object)
    legacy = io.BytesIO()
    torch.save({"logical_count": hostile}, legacy, _use_new_zipfile_serialization=False)
    member = io.BytesIO()
    np.save(member, objects, allow_pickle=True)
    nested = base64.b64encode(member.getvalue()).decode()
    frame.to_pickle(tmp_path / "frame.pkl.gz")
    files = {
        "pickle": pickle.dumps(hostile),
        "pickle 0": pickle.dumps(hostile, protocol=0),
        "pandas": pickle.dumps(frame),
        "pandas gz": (tmp_path / "frame.pkl.gz").read_bytes(),
        "torch": dump({"logical_count": hostile}),
        "torch legacy": legacy.getvalue(),
        "npy": member.getvalue(),
        "npz": npz(topk=objects),
        "npz counts": npz(counts=np.ones((1, 1, 2), dtype=int), top_k=objects),
        "npz domain": npz(topk=IDS, domain=objects),
        "routed": json.dumps({"choices": [{"prompt_token_ids": [1], "routed_experts": nested}]}).encode(),
        "routed pickle": json.dumps(
            {
                "meta_info": {
                    "prompt_tokens": 1,
                    "routed_experts": base64.b64encode(pickle.dumps(hostile)).decode(),
                }
            }
        ).encode(),
    }
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        for format in ("auto", *FORMATS):
            with pytest.raises(PlacerError):
                import_trace(path, format=format, **MODEL)
        assert not (tmp_path / "ran").exists(), name


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\x1f\x8b\x08", "packed with gzip"),
        (b"\x80\x04K\x01.", "bare pickle"),
        (b"PK\x03\x04", "damaged zip"),
        (b"hello", r"no known format; tried .*sglang .*routed .*imatrix .*npz .*npy .*csv .*parquet .*trace"),
        (b"\x00" * 100, "no known format"),
    ],
)
def test_what_is_of_no_format_is_told_with_what_was_tried(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(BadInputError, match=says):
        import_trace(tmp_path / "f")


def test_a_file_name_that_is_no_text_gives_a_trace_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "\udcff\udcfe"
    path.write_bytes(npy(IDS))
    trace = import_trace(path, **MODEL)
    write_trace(trace, tmp_path / "t")
    assert read_trace(tmp_path / "t").header.model == "??"
    answer = {"choices": [{"prompt_token_ids": [1], "token_ids": [2, 3, 4], "routed_experts": IDS.tolist()}]}
    (tmp_path / "a").write_text(json.dumps({**answer, "domain": "\ud800\u0000"}))
    write_trace(import_trace(tmp_path / "a", **MODEL), tmp_path / "t")
    assert read_trace(tmp_path / "t").header.domains == ("?\u0000",)


def _member(shape: tuple[int, ...], descr: str, payload: bytes = b"") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_2_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + payload


def _zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def _pickled(dump: bytes, pickled: bytes) -> bytes:
    """A dump with another pickle inside."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(dump)) as source, zipfile.ZipFile(stream, "w") as target:
        for entry in source.namelist():
            target.writestr(entry, pickled if entry.endswith("data.pkl") else source.read(entry))
    return stream.getvalue()


def _bombs() -> dict[str, bytes]:
    """Small files that claim, or unpack to, a great deal."""
    zeros = bytes(80 * 2**20)
    expanded = torch.ones(1, dtype=torch.int32).expand(10**4, 10**4, 10**3)
    storage = dump({"logical_count": torch.ones((1, 2, 4), dtype=torch.int32)})
    row = "0,0,1\n"
    claims = b'{"counts":{"dtype":"I64","shape":[1099511627776,1,1],"data_offsets":[0,8796093022208]}}'
    return {
        "npy shape": _member((2**40, 2, 2), "<i8"),
        "npy many sides": _member((2,) * 70, "<i8"),
        "npy negative": _member((-1, 2, 2), "<i8", bytes(64)),
        "npy long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"x" * 100,
        "npy deep header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 60_000) + b"(" * 60_000,
        "npz text": _zipped("domain.npy", _member((1,), "<U250000000")),
        "npz zeros": _zipped("topk.npy", _member((80 * 2**20 // 8, 1, 1), "<i8", zeros)),
        "npz claims": _zipped("topk.npy", _member((2**62, 2**62, 2**62), "<i8")),
        "npz experts": npz(counts=np.ones((1, 1, 1), dtype=np.int64), top_k=1, experts=65534, layers=[2**62]),
        "torch packed": _zipped("archive/data.pkl", zeros),
        "torch expanded": dump({"logical_count": expanded}),
        "torch claims": storage.replace(b"K\x01K\x02K\x04", b"K\x01K\xffK\xff"),
        "torch deep": _pickled(storage, b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."),
        "torch long": _pickled(storage, b"\x80\x02X" + struct.pack("<I", 2**31 - 1) + b"a."),
        "torch laughs": _pickled(storage, b"\x80\x02](h\x00" + b"h\x00e](" * 100_000 + b"."),
        "json deep": b'{"a":' * 200_000,
        "json digits": b'{"a": ' + b"9" * 10**6 + b"}",
        "json base64": json.dumps(
            {
                "meta_info": {
                    "prompt_tokens": 1,
                    "routed_experts": base64.b64encode(_member((2**50,), "<i8")).decode(),
                }
            }
        ).encode(),
        "csv wide": b"layer,expert,count" + b",x" * 10**6 + b"\n" + b"0," * 10**6,
        "csv long": b"layer,expert,count\n" + b"0" * (10 * 2**20),
        "csv quote": b'layer,expert,count\n0,0,"' + row.encode() * 10**6,
        "csv ids": b"layer,expert,count\n"
        + b"".join(b"%d,65534,1\n" % (number * 7) for number in range(200_000)),
        "csv counts": b"layer,expert,count\n" + b"0,0,1099511627776\n" * 200_000,
        "gguf array": struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"a", 9, 0, 2**60) + bytes(2**16),
        "gguf tensors": struct.pack("<4sIQQ", b"GGUF", 3, 2**62, 0) + bytes(2**16),
        "trace header": struct.pack("<Q", 99 * 2**20) + b"{" + b" " * 1000,
        "trace shape": struct.pack("<Q", len(claims)) + claims,
        "parquet footer": b"PAR1" + bytes(100) + struct.pack("<I", 2**31) + b"PAR1",
    }


def test_bombs_are_refused_in_bounded_memory_and_time(tmp_path: Path) -> None:
    bombs = _bombs()
    for name, content in bombs.items():
        (tmp_path / name).write_bytes(content)
    # Far less than the bombs claim, beyond what the libraries map by themselves.
    script = textwrap.dedent(
        """
        import resource, sys, time
        from pathlib import Path
        import numpy, pandas, torch
        from placer.errors import PlacerError
        from placer.profiler.trace.importing import import_trace
        try:
            import pyarrow.parquet, gguf
        except ImportError:
            pass
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 768 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for path in sorted(Path(sys.argv[1]).iterdir()):
            started = time.process_time()
            try:
                import_trace(path, layers=(0, 1), hidden_layers=2, experts=4, top_k=2)
                outcome = "imported"
            except PlacerError as error:
                outcome = "refused: " + error.what
            print(f"{path.name}\\t{time.process_time() - started}\\t{outcome}")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    outcomes = {line.split("\t")[0]: line.split("\t")[1:] for line in done.stdout.splitlines()}
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(outcomes) == set(bombs)
    for name, (seconds, outcome) in outcomes.items():
        assert outcome.startswith("refused"), name
        assert float(seconds) < 10, name
