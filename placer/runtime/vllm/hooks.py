"""Where the plugin takes hold of vLLM: its settings, its routed experts, and the end of loading."""

import functools
from typing import Any

from placer.runtime.vllm.applied import AppliedPlan
from placer.runtime.vllm.refusal import Refusal
from placer.runtime.vllm.session import Session, open_session, session
from placer.runtime.vllm.settings import read_settings
from placer.runtime.vllm.support import check_engine, check_version

_KEY = "placer_placement"


def install() -> None:
    """Read the placement and take hold of this process's vLLM; once installed, only the placement is read anew.

    Raises
    ------
    Refusal
        When the version of vLLM is not the one this was made for, or the placement cannot be used.
    """
    from vllm.version import __version__, __version_tuple__  # noqa: PLC0415

    check_version(__version_tuple__, __version__)
    open_session(read_settings())

    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415
    from vllm.model_executor.custom_op import op_registry_oot  # noqa: PLC0415
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts  # noqa: PLC0415
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader  # noqa: PLC0415

    from placer.runtime.vllm.routed_experts import PlacedRoutedExperts  # noqa: PLC0415

    other = op_registry_oot.get("RoutedExperts")
    if other is PlacedRoutedExperts:
        return
    if other is not None:
        raise Refusal(
            f"another plugin replaces vLLM's routed experts ({other.__module__})", "remove one of them"
        )
    RoutedExperts.register_oot(PlacedRoutedExperts)
    EngineArgs.create_engine_config = _checked_config(EngineArgs.create_engine_config)
    BaseModelLoader.load_model = _checked_load(BaseModelLoader.load_model)


def _checked_config(create: Any) -> Any:
    """Settings are refused in the first process, before any engine is started."""

    @functools.wraps(create)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = create(self, *args, **kwargs)
        opened = session()
        check_engine(config, opened.placement, opened.settings)
        # vLLM keeps compiled graphs by its configuration: with another plan it must not find this one's.
        config.additional_config = {**config.additional_config, _KEY: _identity(opened)}
        return config

    return create_engine_config


def _checked_load(load: Any) -> Any:
    """Every layer of the plan must be in the loaded model, and in no other form."""

    @functools.wraps(load)
    def load_model(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        opened = session()
        if vllm_config.additional_config.get(_KEY) != _identity(opened):
            raise Refusal("the placement changed while the server started", "start it again")
        model = load(self, vllm_config, *args, **kwargs)
        _finish(model, opened)
        return model

    return load_model


def _identity(opened: Session) -> list[str]:
    return [opened.placement.sha256, opened.settings.cold]


def _finish(model: Any, opened: Session) -> None:
    from vllm.logger import init_logger  # noqa: PLC0415
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts  # noqa: PLC0415

    from placer.runtime.vllm.routed_experts import PlacedRoutedExperts  # noqa: PLC0415

    # Only loggers below vLLM's own are shown as its settings say.
    logger = init_logger("vllm.placer")
    placement, applied = opened.placement, []
    for name, module in model.named_modules():
        if isinstance(module, PlacedRoutedExperts):
            applied.append(module.finish())
        elif isinstance(module, RoutedExperts):
            raise Refusal(f"{name} is a {type(module).__name__}, which the plugin does not replace")
    found = sorted(each.layer for each in applied)
    if found != list(placement.layers):
        absent = sorted(set(placement.layers) - set(found))
        raise Refusal(
            f"the model has no MoE layer {absent}" if absent else f"the model has layers {found} twice"
        )
    if opened.pool is not None and opened.pool.fallback is not None:
        logger.warning("placer: cold experts run on torch: %s", opened.pool.fallback)
    for each in applied:
        logger.info("%s", each.line())
    total = AppliedPlan(len(applied), placement.hot_total, placement.sha256, opened.cold_path)
    logger.info("%s", total.line())
