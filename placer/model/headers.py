"""The headers of a checkpoint's safetensors files: names, types and shapes, never a weight."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from placer.document import read_document
from placer.errors import BadInputError
from placer.model.dtype import BITS
from placer.model.module import StoredTensor

INDEX_NAME = "model.safetensors.index.json"
MAX_HEADER_BYTES = 32 * 2**20
"""A tensor's entry takes about 130 bytes: a quarter of a million tensors in one file, more than any has."""
MAX_INDEX_BYTES = 128 * 2**20
MAX_NAME = 512
MAX_DIMENSIONS = 8
_LENGTH_BYTES = 8
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")
_NAME = re.compile(r"[A-Za-z0-9_.\-]+\.safetensors")
_DOWNLOAD = "download the checkpoint again, or give its config.json alone to size it by formula"


def has_headers(directory: Path) -> bool:
    """Whether ``directory`` holds safetensors files or an index of them."""
    return (directory / INDEX_NAME).exists() or any(directory.glob("*.safetensors"))


def read_headers(directory: Path) -> Iterator[StoredTensor]:
    """Every tensor of the checkpoint in ``directory``, one file's header in memory at a time.

    The index decides which files belong to the checkpoint; without one, every safetensors file does.

    Raises
    ------
    BadInputError
        When a shard is missing, an index entry leaves the directory or names a tensor that its shard lacks,
        two shards hold the same tensor, or a header breaks the format: a length beyond the file or absurd,
        an unknown type, offsets out of range, overlapping, or of the wrong size for the shape.
    """
    expected = _read_index(directory)
    shards = sorted(set(expected.values())) if expected is not None else _glob(directory)
    seen: dict[str, str] = {}
    for shard in shards:
        for tensor in read_header(directory / shard):
            if tensor.name in seen:
                raise BadInputError(
                    f"{directory}: {seen[tensor.name]} and {shard} both hold {tensor.name!r}",
                    "keep the files of one checkpoint in the directory",
                )
            seen[tensor.name] = shard
            yield tensor
    for name, shard in (expected or {}).items():
        if seen.get(name) != shard:
            raise BadInputError(
                f"{directory / shard} lacks {name!r}, which {INDEX_NAME} puts there", _DOWNLOAD
            )


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file.

    Raises
    ------
    BadInputError
        As `read_headers`.
    """
    header, data_bytes = _read_json(path)
    tensors: list[StoredTensor] = []
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor, begin, end = _tensor(path, name, entry)
        if end > data_bytes:
            raise BadInputError(
                f"{path}: {name!r} ends at byte {end:,} of {data_bytes:,}: the file is cut short", _DOWNLOAD
            )
        tensors.append(tensor)
        spans.append((begin, end, name))
    spans.sort()
    reached = 0
    for begin, end, name in spans:
        if begin != reached:
            fault = "overlaps another tensor" if begin < reached else "leaves a gap before it"
            raise BadInputError(f"{path}: {name!r} {fault} in the file", _DOWNLOAD)
        reached = end
    return tensors


def _read_index(directory: Path) -> dict[str, str] | None:
    path = directory / INDEX_NAME
    if not path.exists():
        return None
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise BadInputError(f"{path} is larger than {MAX_INDEX_BYTES:,} bytes", "check the file")
    weight_map = read_document(path, what="safetensors index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadInputError(f"{path}: weight_map is not a non-empty object", _DOWNLOAD)
    for shard in {shard if isinstance(shard, str) else "" for shard in weight_map.values()}:
        # A plain name, so that an index cannot point outside its directory.
        if not _NAME.fullmatch(shard):
            raise BadInputError(
                f"{path}: weight_map names {shard!r:.80}, not a safetensors file of this directory", _DOWNLOAD
            )
        if not (directory / shard).is_file():
            raise BadInputError(f"{directory / shard} is missing, {INDEX_NAME} lists it", _DOWNLOAD)
    return weight_map


def _glob(directory: Path) -> list[str]:
    shards = sorted(path.name for path in directory.glob("*.safetensors"))
    parts = [match for shard in shards if (match := _PART.search(shard))]
    if parts:
        total = max(int(part[2]) for part in parts)
        present = {int(part[1]) for part in parts}
        if len(present) != total:
            missing = next(number for number in range(1, total + 1) if number not in present)
            raise BadInputError(f"{directory}: part {missing:05d} of {total:05d} is missing", _DOWNLOAD)
    return shards


def _read_json(path: Path) -> tuple[Mapping[str, Any], int]:
    """The header of ``path`` and the bytes that follow it."""
    try:
        if not path.is_file():
            raise BadInputError(f"{path} is not a file", _DOWNLOAD)
        with path.open("rb") as file:
            file_bytes = path.stat().st_size
            prefix = file.read(_LENGTH_BYTES)
            length = int.from_bytes(prefix, "little")
            if prefix == b"version ":
                raise BadInputError(
                    f"{path} is a Git LFS pointer, not a safetensors file", "run: git lfs pull"
                )
            if len(prefix) < _LENGTH_BYTES or not 2 <= length <= file_bytes - _LENGTH_BYTES:
                raise BadInputError(
                    f"{path}: a header of {length:,} bytes does not fit a file of {file_bytes:,} bytes",
                    _DOWNLOAD,
                )
            if length > MAX_HEADER_BYTES:
                raise BadInputError(
                    f"{path}: a header of {length:,} bytes is above {MAX_HEADER_BYTES:,}", "check the file"
                )
            raw = file.read(length)
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: the header is not valid JSON: {str(error)[:120]}", _DOWNLOAD) from None
    if not isinstance(header, dict):
        raise BadInputError(f"{path}: the header is not a JSON object", _DOWNLOAD)
    return header, file_bytes - _LENGTH_BYTES - length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name appears twice")
    return entries


def _tensor(path: Path, name: str, entry: object) -> tuple[StoredTensor, int, int]:
    if isinstance(entry, dict) and len(name) <= MAX_NAME:
        dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        if (
            isinstance(dtype, str)
            and dtype in BITS
            and _naturals(shape)
            and len(shape) <= MAX_DIMENSIONS
            and _naturals(offsets)
            and len(offsets) == 2
        ):
            tensor = StoredTensor(name, dtype, tuple(shape))
            begin, end = offsets
            if (end - begin) * 8 != tensor.elements * BITS[dtype]:
                raise BadInputError(
                    f"{path}: {name!r:.120} of shape {shape} in {dtype} does not take {end - begin:,} bytes",
                    _DOWNLOAD,
                )
            return tensor, begin, end
    raise BadInputError(
        f"{path}: the header's entry {name!r:.120} has no known dtype, shape and data_offsets", _DOWNLOAD
    )


def _naturals(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < 2**48 for entry in value
    )
