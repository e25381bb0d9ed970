"""Where tests find the shared data folder that lies beside a checkout, and how they skip without it."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

needs_shared_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(), reason="the shared data folder (../shared/data) is not beside this checkout"
)
