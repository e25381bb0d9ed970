"""The file formats that become traces, and by what in its content each is told apart."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A format of `placer trace import`.

    Attributes
    ----------
    holds
        What such a file holds.
    told_by
        How its content gives it away.
    """

    holds: str
    told_by: str


FORMATS = {
    "sglang": Format(
        "dump of SGLang's expert-distribution recorder (stat, stat_approx, per_pass, per_token)",
        "zip archive with data.pkl",
    ),
    "routed": Format(
        "SGLang or vLLM answers with routed experts: a JSON document, or one per line",
        "text that starts with { or [",
    ),
    "imatrix": Format("llama.cpp importance matrix with expert counts, GGUF", "starts with GGUF"),
    "npz": Format(
        "numpy arrays: topk [T, L, K] (offsets [R+1], domain [R]) or counts [W, L, E] (tokens [W]); "
        "top_k, experts, layers",
        "zip archive with .npy members",
    ),
    "npy": Format("one numpy array of expert ids [T, L, K], -1 for an unused slot", "starts with \\x93NUMPY"),
    "csv": Format(
        "table with columns layer, expert, count, and if known request, phase, domain (only its name is kept)",
        "text whose first line names layer and expert",
    ),
    "parquet": Format("the same table as Parquet", "starts and ends with PAR1"),
    "trace": Format("a trace file of placer", "safetensors header"),
}
"""Formats by the name that ``--format`` takes."""


def formats_help() -> str:
    """What `placer trace import --help` says of the formats, a paragraph each."""
    lines = ["Formats, told apart by content and never by file name:"]
    lines += [f"{name}: {one.holds} ({one.told_by})." for name, one in FORMATS.items()]
    lines.append(
        "Several files, or folders of them, are shards of one trace: see --keep, --windows, --broken, --dask. "
        "A shard that repeats another's content, as every rank of a tensor-parallel server does, counts once."
    )
    return "\n\n".join(lines)
