"""Which experts a transformers model ran: ids taken from the calls of the modules that run or choose them."""

import inspect
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from placer.errors import BadInputError

_ID_ARGUMENTS = ("top_k_index", "router_indices", "selected_experts")
"""What transformers' expert modules call the ids int [tokens, top-k] that they are given."""
_ROUTERS = ("gate", "router")
"""What modules are called that choose experts and return the ids among their outputs."""


class ExpertHook:
    """Collects the expert ids of every forward pass while it is entered as a context.

    An experts module is given the ids that it runs, whatever rule chose them: softmax top-k, sigmoid with
    correction bias and groups, or a table of token ids. Where experts are a plain list (models with code of
    their own), the ids that the router returns are taken instead.

    Attributes
    ----------
    layers
        Checkpoint indices of the MoE layers, ascending.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Find the modules.

        Raises
        ------
        BadInputError
            When the model has no module that is given or returns expert ids, or two in one layer.
        """
        found = _expert_modules(model) or _routers(model)
        if not found:
            raise BadInputError(
                f"{type(model).__name__}: no module takes or returns expert ids in this version of transformers",
                "record from a running server instead (--server URL)",
            )
        self._modules = dict(sorted(found.items()))
        self.layers = tuple(self._modules)
        self._taken: dict[int, list[NDArray[np.uint16]]] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> "ExpertHook":
        self._taken = {layer: [] for layer in self.layers}
        for layer, (module, argument) in self._modules.items():
            if argument:
                before = self._before(layer, argument, inspect.signature(type(module).forward))
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            else:
                self._handles.append(module.register_forward_hook(self._after(layer)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def take(self) -> NDArray[np.uint16]:
        """Ids of all tokens since the last call: uint16 [tokens, layers, top-k]. A batch must hold one request.

        Raises
        ------
        BadInputError
            When layers ran different numbers of tokens, so that rows would not be tokens.
        """
        layers = [np.concatenate(ids) if ids else None for ids in self._taken.values()]
        self._taken = {layer: [] for layer in self.layers}
        whole = [ids for ids in layers if ids is not None]
        shapes = {ids.shape for ids in whole}
        if len(whole) != len(layers) or len(shapes) != 1:
            raise BadInputError(
                f"MoE layers ran different tokens: {[None if ids is None else ids.shape for ids in layers]}",
                "record from a running server instead (--server URL)",
            )
        return np.stack(whole, axis=1)

    def _before(
        self, layer: int, argument: str, signature: inspect.Signature
    ) -> Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def take(module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._keep(layer, signature.bind(module, *positional, **named).arguments[argument])

        return take

    def _after(self, layer: int) -> Callable[[torch.nn.Module, tuple[Any, ...], object], None]:
        def take(module: torch.nn.Module, _inputs: tuple[Any, ...], outputs: object) -> None:
            listed = outputs if isinstance(outputs, tuple | list) else [outputs]
            ids = [one for one in listed if isinstance(one, torch.Tensor) and not one.is_floating_point()]
            if len(ids) != 1:
                raise BadInputError(
                    f"{type(module).__name__} in layer {layer} returns no expert ids",
                    "record from a running server instead (--server URL)",
                )
            self._keep(layer, ids[0])

        return take

    def _keep(self, layer: int, ids: torch.Tensor) -> None:
        flat = ids.detach().reshape(-1, ids.shape[-1])
        # -1, an unused slot, becomes 65535, the padding id, by two's complement.
        self._taken[layer].append(flat.to("cpu").numpy().astype(np.uint16))


def _expert_modules(model: torch.nn.Module) -> Mapping[int, tuple[torch.nn.Module, str]]:
    found: dict[int, tuple[torch.nn.Module, str]] = {}
    for name, module in model.named_modules():
        parameters = inspect.signature(type(module).forward).parameters
        argument = next((one for one in _ID_ARGUMENTS if one in parameters), "")
        if argument:
            _claim(found, name, module, argument)
    return found


def _routers(model: torch.nn.Module) -> Mapping[int, tuple[torch.nn.Module, str]]:
    found: dict[int, tuple[torch.nn.Module, str]] = {}
    for name, module in model.named_modules():
        # A plain linear layer is a router whose caller chooses: its output holds no ids.
        if name.rpartition(".")[2] in _ROUTERS and not isinstance(module, torch.nn.Linear):
            _claim(found, name, module, "")
    return found


def _claim(
    found: dict[int, tuple[torch.nn.Module, str]], name: str, module: torch.nn.Module, argument: str
) -> None:
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    if len(numbers) != 1 or numbers[0] in found:
        raise BadInputError(
            f"{name}: it is not told which layer these experts belong to, or another module claims it",
            "record from a running server instead (--server URL)",
        )
    found[numbers[0]] = (module, argument)
