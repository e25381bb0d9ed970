"""The arguments that an sglang-kt server must print of itself for the plan to be what it runs."""

from placer.exports.kt_flags import left_unset, server_flags
from placer.exports.kt_ranking import planned_ratio
from placer.exports.kt_selection import kt_layout
from placer.placement import PlacementDocument

OFF = ("None", "0", "False", "none")
"""What the runtime prints of a flag that is not set."""

_FIELDS = {"tensor-parallel-size": "tp_size"}
"""Fields of server_args.py that are not named as their flag."""
_PATHS_AND_ROOM = ("init-expert-location", "mem-fraction-static")
"""A path differs from machine to machine, and the README lets the fraction be raised: the pool's tokens are capped."""
_OTHER_NAMES = {
    "kv-cache-dtype": {"bf16": ("bfloat16",)},
    "speculative-algorithm": {"EAGLE": ("NEXTN",)},
}
"""What the runtime takes for the same as the planned value."""
_NEED_CONFIG = ("kt-gpu-experts-ratio", "context-length")


def planned_arguments(placement: PlacementDocument) -> dict[str, tuple[str, ...]]:
    """By field of the server's arguments, the values that keep the plan; the first is the planned one.

    They are the flags of config.yaml, and those that must stay unset. Where the placement carries no model config,
    the two that depend on it are left out.

    Raises
    ------
    BadInputError
        When the plan is one that cannot be exported.
    """
    config = placement.model.config
    flags = server_flags(
        placement,
        config or {},
        ratio=0.0 if config is None else planned_ratio(placement, kt_layout(config)),
        mem_fraction_static=placement.mem_fraction_static or 0.5,
        model_path=None,
        kt_weight_path=None,
    )
    left_out = _PATHS_AND_ROOM if config is not None else (*_PATHS_AND_ROOM, *_NEED_CONFIG)
    expected: dict[str, tuple[str, ...]] = {name_of_field(name): OFF for name in left_unset(placement)}
    # A block-FP8 checkpoint is recognised by itself, and the server may print what it found.
    expected["quantization"] = ("fp8", "None")
    for flag in flags:
        if flag.name not in left_out:
            value = list(flag.value) if isinstance(flag.value, tuple) else flag.value
            same = _OTHER_NAMES.get(flag.name, {}).get(str(value), ())
            expected[name_of_field(flag.name)] = (str(value), *same)
    return expected


def name_of_field(flag: str) -> str:
    """The field of the server's arguments that ``flag`` (without dashes) sets."""
    return _FIELDS.get(flag, flag.replace("-", "_"))


def agrees(found: str, accepted: tuple[str, ...]) -> bool:
    """Whether a printed value is one of ``accepted``; numbers are compared as such (0.5 is 0.500)."""
    if found in accepted:
        return True
    try:
        return abs(float(found) - float(accepted[0])) < 1e-9
    except ValueError:
        return False
