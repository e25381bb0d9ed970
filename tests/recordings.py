"""Small sound recordings in every format that becomes a trace."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_traces import count_trace, token_trace

from placer.profiler.trace.file import write_trace
from placer.profiler.trace.trace import CountTrace, TokenTrace

IDS = np.array([[[0, 1], [2, 3]], [[1, 2], [3, 0]], [[2, 0], [1, 3]]], dtype=np.uint8)
COUNTS = np.array([[[2, 2, 1, 1], [1, 1, 2, 2]]])


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def dump(content: object) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def per_token() -> bytes:
    ids = torch.full((2, 3, 8), -1, dtype=torch.int32)
    ids[:, :, :2] = torch.from_numpy(IDS.astype(np.int32)).permute(1, 0, 2)
    record = {
        "gatherer_key": "primary",
        "input_ids": [5, 6, 7],
        "positions": [0, 1, 2],
        "extend_seq_lens": [3],
        "forward_mode": 1,
        "topk_ids_of_layer": ids,
        "global_physical_count": torch.zeros((2, 4), dtype=torch.int32),
    }
    return dump({"records": [record], "last_physical_to_logical_map": torch.arange(4).repeat(2, 1)})


def _answers() -> bytes:
    meta = {"prompt_tokens": 2, "completion_tokens": 2}
    raw = base64.b64encode(IDS.astype("<i4").tobytes()).decode()
    choice = {
        "prompt_token_ids": [1, 2],
        "token_ids": [3, 4],
        "routed_experts": base64.b64encode(npy(IDS)).decode(),
    }
    return "\n".join(
        [
            json.dumps({"meta_info": {**meta, "routed_experts": raw}}),
            json.dumps({"choices": [choice], "domain": "a"}),
        ]
    ).encode()


def _table() -> pd.DataFrame:
    layer, expert = np.divmod(np.arange(8), 4)
    return pd.DataFrame({"layer": layer, "expert": expert, "count": COUNTS.ravel(), "request": ["r"] * 8})


def _parquet() -> bytes:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    stream = io.BytesIO()
    _table().to_parquet(stream)
    return stream.getvalue()


def _imatrix(folder: Path) -> bytes:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    writer = gguf.GGUFWriter(folder / "m", arch="")
    writer.add_type("imatrix")
    for layer in range(2):
        writer.add_tensor(
            f"blk.{layer}.ffn_down_exps.weight.counts", COUNTS[0, layer].astype(np.float32).reshape(-1, 1)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (folder / "m").read_bytes()


def _trace(folder: Path, trace: TokenTrace | CountTrace) -> bytes:
    write_trace(trace, folder / "t")
    return (folder / "t").read_bytes()


SAMPLES: dict[str, Callable[[Path], bytes]] = {
    "npz ids": lambda _folder: npz(topk=IDS, offsets=np.array([0, 1, 3]), domain=np.array(["a", "b"])),
    "npz counts": lambda _folder: npz(counts=COUNTS, top_k=2, layers=np.array([0, 1])),
    "npy": lambda _folder: npy(IDS),
    "sglang stat": lambda _folder: dump({"logical_count": torch.from_numpy(COUNTS)}),
    "sglang per_token": lambda _folder: per_token(),
    "routed": lambda _folder: _answers(),
    "csv": lambda _folder: _table().to_csv(index=False).encode(),
    "parquet": lambda _folder: _parquet(),
    "imatrix": _imatrix,
    "trace tokens": lambda folder: _trace(folder, token_trace(IDS, experts=4)),
    "trace counts": lambda folder: _trace(folder, count_trace(COUNTS, top_k=2)),
}
MODEL: dict[str, Any] = {"layers": (0, 1), "hidden_layers": 2, "experts": 4, "top_k": 2}
