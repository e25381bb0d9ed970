"""The command that installs an extra where placer runs."""

import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError

import pytest

from placer import extra
from placer.extra import install_command


class Installed(Distribution):
    """moe-placer, installed from ``origin``: what pip writes to direct_url.json."""

    def __init__(self, origin: str | None) -> None:
        self._origin = origin

    def read_text(self, filename: str) -> str | None:
        return self._origin if filename == "direct_url.json" else None

    def locate_file(self, path: object) -> None:  # type: ignore[override]
        raise AssertionError(path)


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        ({"url": "file:///home/me/placer", "dir_info": {"editable": True}}, "-e '/home/me/placer[report]'"),
        ({"url": "file:///home/my%20clone", "dir_info": {"editable": True}}, "-e '/home/my clone[report]'"),
        ({"url": "file:///wheels/moe.whl", "archive_info": {}}, "'moe-placer[report]'"),
        (None, "'moe-placer[report]'"),
    ],
)
def test_a_clone_is_named_where_placer_was_installed_from_one(
    monkeypatch: pytest.MonkeyPatch, origin: object, what: str
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(extra, "distribution", lambda _name: Installed(text))
    monkeypatch.setattr(sys, "executable", "/my/bin/python")
    assert install_command("report") == f"/my/bin/python -m pip install {what}"


def test_without_any_installation_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> Distribution:
        raise PackageNotFoundError

    monkeypatch.setattr(extra, "distribution", missing)
    assert install_command("hf").endswith(" -m pip install 'moe-placer[hf]'")
