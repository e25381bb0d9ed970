"""Attention whose query heads share KV heads, over the whole context or a window of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from placer.errors import BadInputError
from placer.model.config import MAX_TOKENS, Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split


@dataclass(frozen=True)
class Heads:
    """Counts and widths of heads.

    Attributes
    ----------
    query, kv
        How many.
    key, value
        Width of a query or key head, and of a value head.
    """

    query: int
    kv: int
    key: int
    value: int


@dataclass(frozen=True)
class HeadFields:
    """Where config.json has the heads.

    Attributes
    ----------
    query, kv, key
        Fields of the counts and of the width of keys; several names of one count must agree.
    section
        Object of config.json that holds them, where they are not at the top.
    value
        Field of the width of values, where it differs from that of keys.
    derived
        Whether an absent ``key`` means hidden_size / query heads.
    """

    query: str = "num_attention_heads"
    kv: tuple[str, ...] = ("num_key_value_heads",)
    key: str = "head_dim"
    value: str | None = None
    derived: bool = False
    section: str | None = None

    def read(self, config: Config) -> Heads:
        """The heads of ``config``.

        Raises
        ------
        BadInputError
            When a field is missing or the KV heads do not divide the query heads.
        """
        if self.section is not None:
            config = config.section(self.section)
        query, kv = config.count(self.query), config.count(*self.kv)
        if query % kv:
            raise config.error(self.kv[0], kv, f"a divisor of the {query} attention heads")
        key = self._key(config, query)
        value = config.count(self.value) if self.value is not None else key
        return Heads(query, kv, key, value)

    def _key(self, config: Config, query: int) -> int:
        if not self.derived or config.has(self.key):
            return config.count(self.key)
        hidden = config.count("hidden_size")
        if hidden % query:
            raise BadInputError(
                f"{config.path}: without {self.key}, {query} attention heads must divide hidden_size "
                f"{hidden}",
                "give the config.json that came with the checkpoint",
            )
        return hidden // query


def _never(config: Config) -> bool:
    del config
    return False


@dataclass(frozen=True)
class GroupedQuery:
    """Query heads that share KV heads; multi-head attention where there are as many.

    Attributes
    ----------
    heads
        Where config.json has the heads.
    heads_unless_stated
        The same, where config.json lacks the section that ``heads`` names.
    at, names
        Its place in a layer and the names of its q, k, v and o.
    packed
        Name of the one matrix that holds q, k and v, where they are one.
    biased, bias_field, bias_unless_stated
        Projections that hold a bias when the field is true, and what its absence means.
    norm, norm_field, norm_unless_stated, norm_names
        What the norms of queries and keys span: "head", "projection" (all heads), or None for no norms; the
        field that switches them on (always on when None) and what its absence means; and their names.
    sinks
        Whether a learned sink per query head exists.
    gated
        Whether q also yields a gate of its own width (q_proj has twice the rows).
    gate, gate_field
        Name of a separate matrix with one gate per query head, where there is one, and the field that
        switches it on.
    window
        Tokens that a layer keeps, None for the whole context.
    """

    heads: HeadFields = HeadFields()
    heads_unless_stated: HeadFields | None = None
    at: str = "self_attn"
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj")
    packed: str | None = None
    biased: tuple[str, ...] = ()
    bias_field: str = "attention_bias"
    bias_unless_stated: bool = False
    norm: str | None = None
    norm_field: str | None = None
    norm_unless_stated: bool = False
    norm_names: tuple[str, str] = ("q_norm", "k_norm")
    sinks: Callable[[Config], bool] = _never
    gated: Callable[[Config], bool] = _never
    gate: str | None = None
    gate_field: str | None = None
    window: Callable[[Config], int | None] = lambda _config: None

    def modules(self, config: Config, layer: str) -> list[Module]:
        """q, k, v and o, the norms, the sinks and the gate."""
        heads, hidden = self._heads(config), config.count("hidden_size")
        biased = (
            self.biased
            if self.biased and config.flag(self.bias_field, default=self.bias_unless_stated)
            else ()
        )
        at = f"{layer}.{self.at}"
        modules = [
            Module(f"{at}.{name}", "attention", shape, split, bias=name in biased, linear=True)
            for name, shape, split in self._matrices(config, heads, hidden)
        ]
        modules = [replace(module, heads=(heads.query, heads.kv)) for module in modules]
        if self.norm and (
            self.norm_field is None or config.flag(self.norm_field, default=self.norm_unless_stated)
        ):
            one = self.norm == "head"
            widths = (
                heads.key if one else heads.query * heads.key,
                heads.key if one else heads.kv * heads.key,
            )
            modules += [
                Module(f"{at}.{name}", "norms", (width,))
                for name, width in zip(self.norm_names, widths, strict=True)
            ]
        if self.sinks(config):
            modules.append(Module(at, "attention", (heads.query,), Split.OUTPUT, parameter="sinks"))
        if self.gate is not None and (self.gate_field is None or config.flag(self.gate_field, default=True)):
            shape = (heads.query, hidden)
            modules.append(Module(f"{at}.{self.gate}", "attention", shape, Split.OUTPUT))
        return modules

    def _heads(self, config: Config) -> Heads:
        fields, section = self.heads, self.heads.section
        if section is not None and self.heads_unless_stated is not None and not config.has(section):
            fields = self.heads_unless_stated
        return fields.read(config)

    def _matrices(
        self, config: Config, heads: Heads, hidden: int
    ) -> list[tuple[str, tuple[int, int], Split]]:
        q, k, v, o = self.names
        queries = heads.query * heads.key * (2 if self.gated(config) else 1)
        out = (o, (hidden, heads.query * heads.value), Split.INPUT)
        if self.packed is not None:
            return [(self.packed, (queries + 2 * heads.kv * heads.key, hidden), Split.PACKED_HEADS), out]
        return [
            (q, (queries, hidden), Split.OUTPUT),
            (k, (heads.kv * heads.key, hidden), Split.KV_HEADS),
            (v, (heads.kv * heads.value, hidden), Split.KV_HEADS),
            out,
        ]

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """None."""
        del config, layer
        return []

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """A key and a value per KV head and token."""
        heads = self._heads(config)
        width = heads.key + heads.value
        return (CacheGroup(layers, heads.kv, 2 * width, width, self.window(config)),)

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """None."""
        del config, layers
        return ()

    def kv_heads(self, config: Config) -> int:
        """KV heads."""
        return self._heads(config).kv


def window_of(field: str, default: int | None = None) -> Callable[[Config], int]:
    """The window in tokens under ``field``."""
    return lambda config: config.count(field, most=MAX_TOKENS, default=default)
