"""Uniform routing, as it is assumed where no trace is given."""

from pathlib import Path

import numpy as np
from tiny_model import tiny_model

from placer.untraced import uniform_trace


def test_every_token_takes_as_many_experts_as_the_model_says_each_once(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    ids = uniform_trace(model, 0).topk_ids
    assert ids.shape == (8192, len(model.moe_layers), model.top_k)
    assert ids.max() < model.experts
    assert np.all(np.diff(np.sort(ids, axis=2).astype(int), axis=2) > 0)


def test_every_expert_of_every_layer_is_as_likely(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    ids = uniform_trace(model, 0).topk_ids
    for layer in range(len(model.moe_layers)):
        taken = np.bincount(ids[:, layer].ravel(), minlength=model.experts) / len(ids)
        # Five standard deviations of 8,192 draws.
        share = model.top_k / model.experts
        assert np.abs(taken - share).max() < 5 * (share * (1 - share) / len(ids)) ** 0.5
