"""What a placement document says beside its figures."""

from pathlib import Path

import pytest
from tiny_model import tiny_model

from placer.hbm import ServerSettings
from placer.planning import _length_notes
from placer.workload import Workload


@pytest.mark.parametrize(
    ("kv_tokens", "variation", "said"),
    [
        (100, 0.0, True),
        (191, 0.0, True),
        # Twice the mean request of 64 + 32 tokens is roomy, and lengths that vary were planned for.
        (192, 0.0, False),
        (191, 0.5, False),
    ],
)
def test_a_pool_that_cuts_requests_is_said(
    tmp_path: Path, kv_tokens: int, variation: float, said: bool
) -> None:
    settings = ServerSettings(1, kv_tokens, 64, "bf16")
    workload = Workload(prompt_tokens=64, output_tokens=32, concurrency=1, length_variation=variation)
    notes = _length_notes(tiny_model(tmp_path), settings, 1, workload)
    assert bool(notes) == said
    if said:
        assert f"more than {kv_tokens} tokens, prompt and output together" in notes[0]
