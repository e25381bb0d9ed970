"""The section ``dynamic`` of placement.json: the plan beside moving hot sets of as many experts."""

from pydantic import Field

from placer.section import Section


class LinkSection(Section):
    """The link that experts are loaded over."""

    bytes_per_s: float = Field(gt=0)
    origin: str


class DynamicSection(Section):
    """The plan beside moving hot sets of as many experts, on the same decode steps; fields as in `Dynamic`."""

    steps: int = Field(ge=1)
    running_requests: int = Field(ge=1)
    slots_per_layer: int = Field(ge=0)
    hit_share: dict[str, float]
    loads_per_step: float = Field(ge=0)
    step_us: dict[str, float | None]
    link: LinkSection | None
    assumptions: tuple[str, ...]
    verdict: str
    matters: bool
