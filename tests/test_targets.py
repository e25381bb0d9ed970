"""Latency targets: what is advised when none of the settings keeps them."""

import pytest

from placer.prediction import Prediction
from placer.targets import targets_missed
from placer.workload import Workload

SLOW = Prediction(
    decode_step_ms=400.0,
    moe_step_us=300_000.0,
    tpot_ms_mean=400.0,
    tpot_ms_p95=400.0,
    ttft_ms_mean=None,
    ttft_ms_p95=None,
    output_tokens_per_s=2.5,
    cold_share=0.5,
    per_layer_ms=(400.0,),
    output_token_us=400_000.0,
)


@pytest.mark.parametrize(
    ("concurrency", "advice"),
    [
        (1, "relax the target, or give more HBM"),
        (2, "relax the target, lower --concurrency, or give more HBM"),
    ],
)
def test_fewer_clients_are_advised_only_where_there_are_more_than_one(concurrency: int, advice: str) -> None:
    error = targets_missed(Workload(64, 32, concurrency, slo_tpot_ms=300.0), [SLOW])
    assert error.hint == advice
