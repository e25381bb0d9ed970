"""Shared experts: how many a MoE layer has, how wide all of them are together, and where they lie."""

from dataclasses import dataclass

from placer.model.config import MAX_EXPERTS, Config


@dataclass(frozen=True)
class SharedExperts:
    """Experts that every token takes.

    Attributes
    ----------
    count_field
        Field with their number, which may be a list with one number per layer, all alike; None where there is
        always one.
    width_fields
        Fields with the width: the first that is present. The expert width where none is.
    whole_width
        Whether the width is that of all of them together.
    at, matrices
        Their place in a layer, and the names of gate, up and down.
    unless_stated
        Their number where config.json lacks ``count_field``; None refuses such a config, as the classes that
        read it take one for granted.
    gate
        Module [1, H] that weighs their output, where there is one.
    """

    count_field: str | None = "n_shared_experts"
    width_fields: tuple[str, ...] = ()
    whole_width: bool = False
    at: str = "mlp.shared_experts"
    matrices: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    gate: str | None = None
    unless_stated: int | None = None

    def read(self, config: Config, expert_width: int) -> tuple[int, int]:
        """Number of shared experts, and the width of all of them together; (0, 0) where there are none.

        Raises
        ------
        BadInputError
            When config.json does not say: a field that is there and null says that there are none.
        """
        if self.count_field is None:
            config.require(*self.width_fields)
        elif self.unless_stated is None:
            config.require(self.count_field)
        width = next(
            (config.count(name, least=0) for name in self.width_fields if config.has(name)), expert_width
        )
        number = self._number(config)
        if self.count_field is None and self.width_fields and not any(map(config.has, self.width_fields)):
            number = 0
        if not number or not width:
            return 0, 0
        return number, width if self.whole_width else number * width

    def _number(self, config: Config) -> int:
        if self.count_field is None:
            return 1
        if config.has(self.count_field) and isinstance(config.fields[self.count_field], list):
            return config.alike(self.count_field, least=0, most=MAX_EXPERTS)
        return config.count(self.count_field, least=0, most=MAX_EXPERTS, default=self.unless_stated or 0)
