"""The recorded ids are the experts that ran: each family's published rule, written again, chooses the same."""

from typing import Any

import numpy as np
import pytest
import torch
from routing_rules import FAMILIES, RoutedFamily

from placer.errors import BadInputError
from placer.profiler.trace.expert_hook import ExpertHook

pytest.importorskip("transformers", minversion="5")

TOKENS = np.random.default_rng(0).integers(1, 64, 40)


def routers(model: Any, layers: tuple[int, ...]) -> dict[int, torch.nn.Module]:
    named = dict(model.named_modules())
    return {
        layer: next(
            named[at] for kind in ("gate", "router") if (at := f"model.layers.{layer}.mlp.{kind}") in named
        )
        for layer in layers
    }


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_ids_are_those_that_the_family_s_rule_selects(family: RoutedFamily) -> None:
    model = family.model()
    inputs: dict[int, np.ndarray[Any, Any]] = {}
    for layer, router in routers(model, family.layers).items():

        def keep(_module: object, given: tuple[torch.Tensor, ...], layer: int = layer) -> None:
            inputs[layer] = given[0].reshape(-1, given[0].shape[-1]).double().numpy()

        router.register_forward_pre_hook(keep)
    hook = ExpertHook(model)
    assert hook.layers == family.layers
    with hook, torch.inference_mode():
        model(input_ids=torch.from_numpy(TOKENS)[None])
        ids = hook.take()
    for row, (layer, router) in enumerate(routers(model, family.layers).items()):
        tensors = {name: tensor.double().numpy() for name, tensor in router.state_dict().items()}
        expected = family.rule(inputs[layer], tensors, TOKENS)
        found = np.zeros_like(expected)
        np.put_along_axis(found, ids[:, row].astype(int), True, axis=1)
        assert np.array_equal(found, expected), f"layer {layer}"


def test_a_correction_bias_decides_and_is_not_lost() -> None:
    """Without the bias the same inputs choose otherwise: a top-k of plain scores would not pass above."""
    family = FAMILIES["DeepSeek-V3"]
    model = family.model()
    with ExpertHook(model) as hook, torch.inference_mode():
        model(input_ids=torch.from_numpy(TOKENS)[None])
        corrected = hook.take()
        for router in routers(model, family.layers).values():
            router.get_buffer("e_score_correction_bias").zero_()
        model(input_ids=torch.from_numpy(TOKENS)[None])
        plain = hook.take()
    assert not np.array_equal(np.sort(corrected), np.sort(plain))


def test_passes_follow_each_other_and_the_hook_leaves_no_trace() -> None:
    model = FAMILIES["Mixtral"].model()
    hook = ExpertHook(model)
    with hook, torch.inference_mode():
        model(input_ids=torch.tensor([[1, 2, 3]]))
        model(input_ids=torch.tensor([[4]]))
        assert hook.take().shape == (4, 3, 2)
    assert not any(module._forward_pre_hooks for module in model.modules())


class Listed(torch.nn.Module):
    """Experts in a plain list behind a router that returns ids, as checkpoints with code of their own have."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Router()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids, weights = self.gate(x)
        rows = [
            sum((weights[at, k] * self.experts[ids[at, k]](x[at]) for k in range(2)), torch.zeros(4))
            for at in range(len(x))
        ]
        return torch.stack(rows)


class Router(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (found := x[:, :3].topk(2)).indices, found.values


def test_ids_come_from_the_router_where_experts_are_a_plain_list() -> None:
    model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Identity(), Listed()])})
    with ExpertHook(model) as hook:
        model["layers"][1](torch.tensor([[1.0, 3.0, 2.0, 0.0]]))
        assert hook.layers == (1,)
        assert hook.take().tolist() == [[[1, 2]]]


def test_a_model_without_ids_is_refused() -> None:
    with pytest.raises(BadInputError, match="no module takes or returns expert ids"):
        ExpertHook(torch.nn.Linear(2, 2))
