"""The headers of a checkpoint's safetensors files: names, types and shapes, never a weight."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from placer.errors import BadInputError
from placer.file_kind import file_kind
from placer.model.dtype import BITS
from placer.model.module import StoredTensor

INDEX_NAME = "model.safetensors.index.json"
MAX_HEADER_BYTES = 32 * 2**20
MAX_TENSORS = 200_000
"""Of one file: a whole model of a trillion parameters has 140,000, in many files and 18 MB of headers."""
MAX_UNUSUAL_BYTES = 8 * 2**20
"""All headers of a checkpoint that a general parser has to read, as known writers spell them otherwise."""
MAX_SHARDS = 4096
MAX_INDEX_BYTES = 80 * 2**20
MAX_INDEX_ENTRIES = 700_000
"""Kimi-K3, the largest published model, has half a million tensors and an index of 65 MB."""
_MAX_INDEX_BRACKETS = 256
MAX_NAME = 512
MAX_DIMENSIONS = 8
_MAX_SIDE = 2**48
_LENGTH_BYTES = 8
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")
_NAME = re.compile(r"[A-Za-z0-9_.\-]+\.safetensors")
_DOWNLOAD = "download the checkpoint again, or give its config.json alone to size it by formula"

# A header as every safetensors writer spells it: no escapes in names, the three keys in this order.
_NUMBER = r"0|[1-9][0-9]{0,14}"
_ENTRY = re.compile(
    r'\s*+"(?:'
    rf'([^"\\\x00-\x1f]{{1,{MAX_NAME}}}+)"\s*+:\s*+\{{\s*+'
    r'"dtype"\s*+:\s*+"([A-Z0-9_]++)"\s*+,\s*+'
    r'"shape"\s*+:\s*+\[([0-9,\s]*+)\]\s*+,\s*+'
    rf'"data_offsets"\s*+:\s*+\[\s*+({_NUMBER})\s*+,\s*+({_NUMBER})\s*+\]\s*+\}}'
    r'|__metadata__"\s*+:\s*+\{(?:\s*+"(?:[^"\\\x00-\x1f]|\\["\\/bfnrtu])*+"\s*+:'
    r'\s*+"(?:[^"\\\x00-\x1f]|\\["\\/bfnrtu])*+"\s*+,?+)*+\s*+\}'
    r")\s*+([,}])"
)


def has_headers(directory: Path) -> bool:
    """Whether ``directory`` holds safetensors files or an index of them."""
    return (directory / INDEX_NAME).exists() or any(_weight_files(directory))


def read_headers(directory: Path) -> Iterator[StoredTensor]:
    """Every tensor of the checkpoint in ``directory``, one file's header in memory at a time.

    The index decides which files belong to the checkpoint; without one, every safetensors file does. Files
    may be links that leave the directory, as in Hugging Face's cache.

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
    unusual_bytes = 0
    for shard in shards:
        tensors, unusual = _read(directory / shard, MAX_UNUSUAL_BYTES - unusual_bytes)
        unusual_bytes += unusual
        names = [tensor.name for tensor in tensors]
        if not seen.keys().isdisjoint(names):
            name = next(name for name in names if name in seen)
            raise BadInputError(
                f"{directory}: {seen[name]} and {shard} both hold {name!r:.120}",
                "keep the files of one checkpoint in the directory",
            )
        seen.update(dict.fromkeys(names, shard))
        if len(seen) > MAX_INDEX_ENTRIES:
            raise BadInputError(
                f"{directory} holds more than {MAX_INDEX_ENTRIES:,} tensors", "check the files"
            )
        yield from tensors
    if expected is None or expected == seen:
        return
    for name, shard in expected.items():
        if seen.get(name) != shard:
            raise BadInputError(
                f"{directory / shard} lacks {name!r:.120}, which {INDEX_NAME} puts there", _DOWNLOAD
            )


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file.

    Raises
    ------
    BadInputError
        As `read_headers`.
    """
    return _read(path, MAX_UNUSUAL_BYTES)[0]


def _read(path: Path, most_unusual_bytes: int) -> tuple[list[StoredTensor], int]:
    """The tensors of one file, and the length of its header where the general parser had to read it."""
    text, data_bytes = _read_text(path)
    if text.count('"data_offsets"') > MAX_TENSORS:
        raise BadInputError(f"{path}: the header names more than {MAX_TENSORS:,} tensors", "check the file")
    plain = _plain_entries(path, text)
    tensors, spans = plain or _unusual_entries(path, text, most_unusual_bytes)
    spans.sort()
    reached = 0
    for begin, end, place in spans:
        name = tensors[place].name
        if begin != reached:
            fault = "overlaps another tensor" if begin < reached else "leaves a gap before it"
            raise BadInputError(f"{path}: {name!r:.120} {fault} in the file", _DOWNLOAD)
        if end > data_bytes:
            raise BadInputError(
                f"{path}: {name!r:.120} ends at byte {end:,} of {data_bytes:,}: the file is cut short",
                _DOWNLOAD,
            )
        reached = end
    return tensors, 0 if plain else len(text)


Spans = list[tuple[int, int, int]]
"""First byte, end, and place in the list of tensors."""


def _plain_entries(path: Path, text: str) -> tuple[list[StoredTensor], Spans] | None:
    """The entries of a header that is spelled as writers do; None when it is spelled another way."""
    if not text.startswith("{"):
        return None
    tensors: list[StoredTensor] = []
    spans: Spans = []
    reached, closed = 1, False
    # Anchored at every entry: a search would try each place of a header that is spelled another way.
    while not closed:
        match = _ENTRY.match(text, reached)
        if match is None:
            return None
        reached = match.end()
        name, dtype, sides, first, last, after = match.groups()
        closed = after == "}"
        if name is None:
            continue
        tensor_bytes, shape = _extent(dtype, sides)
        begin, end = int(first), int(last)
        if end - begin != tensor_bytes:
            return None
        spans.append((begin, end, len(tensors)))
        tensors.append(StoredTensor(name, dtype, shape))
    if text[reached:].strip(" \n\r\t"):
        return None
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise BadInputError(f"{path}: the header is not valid JSON: a name appears twice", _DOWNLOAD)
    return tensors, spans


@lru_cache(maxsize=4096)
def _extent(dtype: str, sides: str) -> tuple[int, tuple[int, ...]]:
    """Bytes and shape of a tensor; -1 bytes when its type or shape is none that the plain reading takes."""
    parts = [part.strip() for part in sides.split(",")] if sides.strip() else []
    if dtype not in BITS or len(parts) > MAX_DIMENSIONS or not all(map(_is_number, parts)):
        return -1, ()
    shape = tuple(int(part) for part in parts)
    bits = prod(shape) * BITS[dtype]
    return (bits // 8 if bits % 8 == 0 else -1), shape


def _is_number(text: str) -> bool:
    """Whether ``text`` is a whole number below `_MAX_SIDE`, spelled as JSON has it."""
    return (
        len(text) < 16
        and text.isascii()
        and text.isdigit()
        and (text[0] != "0" or len(text) == 1)
        and int(text) < _MAX_SIDE
    )


def _unusual_entries(path: Path, text: str, most_bytes: int) -> tuple[list[StoredTensor], Spans]:
    """The entries of any other header, or the error that says what is wrong with it."""
    if len(text) > most_bytes:
        raise BadInputError(
            f"{path}: the header is not valid, or spelled as no safetensors writer does", _DOWNLOAD
        )
    try:
        header = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: the header is not valid JSON: {str(error)[:120]}", _DOWNLOAD) from None
    if not isinstance(header, dict):
        raise BadInputError(f"{path}: the header is not a JSON object", _DOWNLOAD)
    tensors: list[StoredTensor] = []
    spans: Spans = []
    for name, entry in header.items():
        if name != "__metadata__":
            tensor, begin, end = _tensor(path, name, entry)
            spans.append((begin, end, len(tensors)))
            tensors.append(tensor)
    return tensors, spans


def _read_index(directory: Path) -> dict[str, str] | None:
    path = directory / INDEX_NAME
    if not path.exists():
        return None
    if not path.is_file() or path.stat().st_size > MAX_INDEX_BYTES:
        raise BadInputError(f"{path} is no file, or larger than {MAX_INDEX_BYTES:,} bytes", "check the file")
    raw = path.read_bytes()
    # What a parser makes of brackets and commas takes many times their bytes: count them before it does.
    if raw.count(b"{") + raw.count(b"[") > _MAX_INDEX_BRACKETS or raw.count(b",") > MAX_INDEX_ENTRIES:
        raise BadInputError(
            f"{path} holds more than {MAX_INDEX_ENTRIES:,} entries, or is nested", "check the file"
        )
    try:
        text = raw.decode("utf-8")
        del raw
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not valid JSON: {str(error)[:120]}", _DOWNLOAD) from None
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadInputError(f"{path}: weight_map is not a non-empty object", _DOWNLOAD)
    _check_number(directory, len({shard for shard in weight_map.values() if isinstance(shard, str)}))
    for shard in {shard if isinstance(shard, str) else "" for shard in weight_map.values()}:
        # A plain name, so that an index cannot point outside its directory.
        if not _NAME.fullmatch(shard):
            raise BadInputError(
                f"{path}: weight_map names {shard!r:.80}, not a safetensors file of this directory", _DOWNLOAD
            )
        if not (directory / shard).is_file():
            raise BadInputError(f"{directory / shard} is missing, {INDEX_NAME} lists it", _DOWNLOAD)
    return weight_map


def _check_number(directory: Path, shards: int) -> None:
    if shards > MAX_SHARDS:
        raise BadInputError(
            f"{directory}: {shards:,} safetensors files, more than {MAX_SHARDS:,}", "check the files"
        )


def _weight_files(directory: Path) -> Iterator[Path]:
    """The safetensors files of ``directory`` without traces, which are recorded beside a checkpoint by default."""
    return (path for path in directory.glob("*.safetensors") if file_kind(path) != "trace")


def _glob(directory: Path) -> list[str]:
    shards = sorted(path.name for path in _weight_files(directory))
    _check_number(directory, len(shards))
    if strange := next((shard for shard in shards if not _NAME.fullmatch(shard)), None):
        raise BadInputError(f"{directory} holds {strange!r:.80}, no name of a checkpoint's file", "rename it")
    parts = [match for shard in shards if (match := _PART.search(shard))]
    if parts:
        total = max(int(part[2]) for part in parts)
        present = {int(part[1]) for part in parts}
        if len(present) != total:
            missing = next(number for number in range(1, total + 1) if number not in present)
            raise BadInputError(f"{directory}: part {missing:05d} of {total:05d} is missing", _DOWNLOAD)
    return shards


def _read_text(path: Path) -> tuple[str, int]:
    """The header of ``path`` as text, and the bytes that follow it."""
    try:
        if not path.is_file():
            raise BadInputError(f"{path} is not a file", _DOWNLOAD)
        with path.open("rb") as file:
            file_bytes = path.stat().st_size
            prefix = file.read(_LENGTH_BYTES)
            length = int.from_bytes(prefix, "little")
            if prefix == b"version ":
                raise BadInputError(
                    f"{path} is a Git LFS pointer, not a safetensors file", "run 'git lfs pull' there"
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
        return raw.decode("utf-8"), file_bytes - _LENGTH_BYTES - length
    except UnicodeDecodeError:
        raise BadInputError(f"{path}: the header is not valid JSON: it is not UTF-8", _DOWNLOAD) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name appears twice")
    return entries


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


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
        isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < _MAX_SIDE for entry in value
    )
