"""Changes to zip archives: their members, names, packing and claims of size; .npz files and torch.save's dumps."""

import io
import struct
import warnings
import zipfile
import zlib
from functools import lru_cache
from random import Random

from fuzzing.byte_mutation import mutated_bytes
from fuzzing.header_mutation import mutated_npy

_NAMES = (
    "",
    "a.npy",
    "topk.npy",
    "counts.npy",
    "rows.npy",
    "../x.npy",
    "/etc/x.npy",
    "data.pkl",
    "x/",
    "\u00e9.npy",
)
_OPCODES = (
    *(
        b"N",
        b"]",
        b"}",
        b")",
        b"a",
        b"e",
        b"s",
        b"u",
        b"0",
        b"2",
        b"(",
        b"R",
        b"b",
        b"Q",
        b"\x85",
        b"\x86",
        b"\x87",
        b"\x81",
    ),
    *(
        b"K\x00",
        b"K\xff",
        b"M\xff\xff",
        b"J\xff\xff\xff\xff",
        b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00",
        b"\x88",
        b"\x89",
    ),
    *(
        b"X\x01\x00\x00\x00a",
        b"h\x00",
        b"h\x05",
        b"q\x00",
        b"cos\nsystem\n",
        b"cbuiltins\neval\n",
        b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    ),
    *(
        b"ccollections\nOrderedDict\n",
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ctorch\nFloatStorage\n",
        b"ctorch\nSize\n",
    ),
)


def mutated_archive(data: bytes, random: Random) -> bytes:
    """``data`` with a member changed, renamed, added, removed or packed; or with any byte changed."""
    kind = random.randrange(10)
    if kind == 0:
        return mutated_bytes(data, random)
    if kind == 1:
        return _claiming(data, random)
    members = [*_members(data)]
    if not members:
        return mutated_bytes(data, random)
    at = random.randrange(len(members))
    name, content = members[at]
    packing = zipfile.ZIP_STORED
    if kind == 2:
        del members[at]
    elif kind == 3:
        members[at] = (random.choice((*_NAMES, name + "x", members[0][0])), content)
    elif kind == 4:
        members.insert(random.randint(0, len(members)), (random.choice((name, *_NAMES)), content))
    elif kind == 5:
        packing = random.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    else:
        members[at] = (name, _mutated_member(name, content, random))
    return _archive(members, packing)


@lru_cache(maxsize=64)
def _members(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """Names and contents of an archive's members; none of what is no archive any more."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return tuple((entry.filename, archive.read(entry)) for entry in archive.infolist())
    except Exception:  # the zip reader raises many kinds for what earlier changes left
        return ()


def _mutated_member(name: str, content: bytes, random: Random) -> bytes:
    if name.endswith(".npy"):
        return mutated_npy(content, random)
    if name.endswith(".pkl") and random.random() < 0.6:
        at = random.randint(2, max(2, len(content)))
        width = random.choice((0, 0, 1, 2, 5))
        return content[:at] + random.choice(_OPCODES) + content[at + width :]
    return mutated_bytes(content, random)


def _archive(members: list[tuple[str, bytes]], packing: int) -> bytes:
    if packing == zipfile.ZIP_STORED:
        return _stored(members)
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", packing) as archive:
        warnings.simplefilter("ignore")  # that two members have one name
        for name, content in members:
            # A date of its own, so that equal members give equal bytes.
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=packing)
    return stream.getvalue()


def _stored(members: list[tuple[str, bytes]]) -> bytes:
    """An archive of members as they are (APPNOTE.TXT 4.3), which zipfile takes ten times as long to write."""
    files, directory = bytearray(), bytearray()
    for name, content in members:
        named, size = name.encode(), len(content)
        facts = struct.pack("<HHHHIIIH", 0x800, 0, 0, 0x21, zlib.crc32(content), size, size, len(named))
        directory += struct.pack("<4sHH", b"PK\x01\x02", 20, 20) + facts
        directory += struct.pack("<HHHHII", 0, 0, 0, 0, 0, len(files)) + named
        files += struct.pack("<4sH", b"PK\x03\x04", 20) + facts + b"\x00\x00" + named + content
    end = struct.pack(
        "<4sHHHHIIH", b"PK\x05\x06", 0, 0, len(members), len(members), len(directory), len(files), 0
    )
    return bytes(files + directory) + end


def _claiming(data: bytes, random: Random) -> bytes:
    """``data`` with a number in the records of its directory changed."""
    found = [at for mark in (b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04") for at in _each(data, mark)]
    if not found:
        return mutated_bytes(data, random)
    at = random.choice(found) + random.choice((4, 6, 8, 10, 12, 16, 18, 20, 22, 24, 26, 28, 30, 42))
    number = random.choice((0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 20))
    width, code = random.choice(((2, "<H"), (4, "<I")))
    return data[:at] + struct.pack(code, number % 2 ** (8 * width)) + data[at + width :]


def _each(data: bytes, mark: bytes) -> list[int]:
    places, at = [], data.find(mark)
    while at >= 0:
        places.append(at)
        at = data.find(mark, at + 1)
    return places
