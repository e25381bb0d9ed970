"""Token traces of many shards joined into one trace file, in the memory of one shard."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from placer.errors import BadInputError
from placer.output import write_cure
from placer.profiler.trace.file import trace_metadata
from placer.profiler.trace.safetensors_file import StreamedTensor, write_safetensors
from placer.profiler.trace.trace import TokenTrace, TraceHeader

_TYPES = {
    "request": np.int32,
    "position": np.int32,
    "topk_ids": np.uint16,
    "domain": np.int16,
    "phase": np.uint8,
}
_PIECE_BYTES = 2**20


class TokenJoin:
    """Appends traces to a file per tensor in ``folder``, then writes these as one trace file.

    Requests are numbered on; domains are matched by name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {name: (folder / name).open("wb") for name in _TYPES}
        self._domains: dict[str, int] = {}
        self._known_domains = False
        self.requests = 0
        self.tokens = 0

    def add(self, trace: TokenTrace, where: str) -> None:
        """Append a sound trace.

        Raises
        ------
        BadInputError
            When requests or domains become too many to number.
        """
        starts = np.diff(trace.request, prepend=trace.request[0]) != 0
        request = np.cumsum(starts) + self.requests
        names = trace.header.domains
        index = np.array(
            [self._domains.setdefault(name, len(self._domains)) for name in names], dtype=np.int64
        )
        if request[-1] > np.iinfo(np.int32).max or len(self._domains) > np.iinfo(np.int16).max:
            raise BadInputError(
                f"{where}: with it the trace has {request[-1] + 1} requests and {len(self._domains)} domains",
                "keep counts (--keep counts), or import fewer shards at a time",
            )
        domain = np.full(trace.tokens, -1, dtype=np.int16)
        if trace.domain is not None:
            self._known_domains = True
            known = trace.domain >= 0
            domain[known] = index[trace.domain[known]]
        arrays = {
            "request": request.astype(np.int32),
            "position": trace.position,
            "topk_ids": trace.topk_ids,
            "domain": domain,
            "phase": trace.phase,
        }
        try:
            for name, array in arrays.items():
                self._files[name].write(np.ascontiguousarray(array).data)
        except OSError as error:
            raise BadInputError(
                f"cannot write in {self._folder.parent}: {error.strerror or error}",
                f"{write_cure(error, 'another path with -o')}, or keep counts (--keep counts)",
            ) from None
        self.requests = int(request[-1]) + 1
        self.tokens += trace.tokens

    def close(self) -> None:
        """Close the files of the tensors."""
        for file in self._files.values():
            file.close()

    def header(self, header: TraceHeader) -> TraceHeader:
        """``header`` with the domains of all shards."""
        return replace(header, domains=tuple(self._domains))

    def write(self, path: Path, header: TraceHeader) -> None:
        """Write the trace file; all shards must have been added."""
        self.close()
        shapes = {"topk_ids": (self.tokens, len(header.layers), header.top_k)}
        tensors = {
            name: StreamedTensor(np.dtype(dtype), shapes.get(name, (self.tokens,)), self._pieces(name))
            for name, dtype in _TYPES.items()
            if name != "domain" or self._known_domains
        }
        write_safetensors(path, tensors, trace_metadata(header))

    def _pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a tensor; its file goes as soon as they are read."""
        path = self._folder / name
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
        path.unlink()
