"""The small kernels between projections: that a layer's rows come out normed, with and without routing."""

import pytest
import torch

from placer.kernels.layer_glue import LayerGlue


@pytest.mark.parametrize("glue", [LayerGlue(64, 96, 8, 2, 32), LayerGlue(64, 0, 0, 0, 0)])
def test_glue_ends_in_normed_rows(glue: LayerGlue) -> None:
    out = glue.bound(3, device="cpu", seed=0)()
    assert out.shape == (3, 64)
    # An RMS norm leaves a mean square of one.
    assert out.to(torch.float32).square().mean(dim=1).tolist() == pytest.approx([1.0] * 3, rel=0.02)
