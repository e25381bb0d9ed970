"""Values that are one of a few names."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from placer.errors import BadInputError
from placer.host import CPU_FORMATS
from placer.known_name import unknown_value
from placer.model.kv import KV_DTYPES
from placer.profiler.cold_kernel import COLD_KERNELS

Chosen = TypeVar("Chosen")
Member = TypeVar("Member", bound=Enum)


def choice(text: str, choices: Mapping[str, Chosen], flag: str) -> Chosen:
    """What ``text`` stands for among ``choices``.

    Raises
    ------
    BadInputError
        When it is none of them.
    """
    if text not in choices:
        raise unknown_value(flag, text, choices)
    return choices[text]


def one_of(text: str, known: Iterable[str], flag: str) -> str:
    """``text`` where it is one of ``known``.

    Raises
    ------
    BadInputError
        When it is not.
    """
    return choice(text, {name: name for name in known}, flag)


def member(text: str, kind: type[Member], flag: str) -> Member:
    """The member of ``kind`` whose value is ``text``.

    Raises
    ------
    BadInputError
        When there is none.
    """
    return choice(text, {each.value: each for each in kind}, flag)


def cpu_method(text: str) -> str:
    """How kt-kernel or torch holds cold experts: "RAWINT4", "AMXINT8" and so on."""
    return one_of(text, CPU_FORMATS, "--cpu-method")


def datasheet_method(text: str) -> str:
    """As `cpu_method`, where the times of cold experts are a datasheet's: "VLLM-BF16" has none."""
    return one_of(text, (name for name in COLD_KERNELS if name in CPU_FORMATS), "--cpu-method")


def kv_dtype(text: str) -> str:
    """How keys and values are held: "bf16" or "fp8"; "auto", which ``solve`` decides, is told what to do instead."""
    if text == "auto":
        raise BadInputError(
            "--kv-dtype auto is decided by solve alone",
            f"run this with {' and with '.join(KV_DTYPES)} in turn",
        )
    return one_of(text, KV_DTYPES, "--kv-dtype")


def prefill_side(text: str) -> str:
    """Whether decode tokens stand in for missing prompts: "decode" or "none"."""
    return one_of(text, ("decode", "none"), "--prefill-from")


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """``given``, or its parts where it is one text with commas between names."""
    return tuple(name for name in given.split(",") if name) if isinstance(given, str) else tuple(given)
