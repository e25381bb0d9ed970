"""constraints.txt: everything that placer is tested with is pinned there, and its licence is one that we accept."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).resolve().parents[1] / "constraints.txt"

# By SPDX expression, by the classifier, or as the License field has it: packages name theirs in one of three ways.
ALLOWED = {
    *(
        "0BSD",
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
    ),
    *("ISC", "MIT", "MIT-CMU", "PSF-2.0", "Zlib"),
    *("Apache Software License", "BSD License", "ISC License (ISCL)", "MIT License"),
    "Python Software Foundation License",
    *("Apache 2.0", "Apache 2.0 License", "BSD"),
}
# Of tools that are run and never shipped.
ALLOWED_OF_TOOLS = ALLOWED | {
    "MPL-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)",
    "CNRI-Python",
    "Public Domain",
}
# docutils' GPL part is a mode for Emacs.
LOOKED_INTO = {"docutils": ["GNU General Public License (GPL)"]}


def pinned() -> dict[str, str]:
    """Versions by package, as constraints.txt pins them."""
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    pins = [line.partition("==") for line in lines]
    assert all(sign for _, sign, _ in pins), "a line of constraints.txt pins no version"
    return {canonicalize_name(name): version for name, _, version in pins}


def closure(root: str) -> dict[str, importlib.metadata.Distribution]:
    """What ``root`` (a requirement) brings on this machine, by name, without itself."""
    found: dict[str, importlib.metadata.Distribution] = {}
    open_requirements, seen = [Requirement(root)], set[str]()
    while open_requirements:
        requirement = open_requirements.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        distribution = importlib.metadata.distribution(requirement.name)
        found[canonicalize_name(requirement.name)] = distribution
        for text in distribution.requires or []:
            needed = Requirement(text)
            extras = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                open_requirements.append(needed)
    del found["moe-placer"]
    return found


def licences(distribution: importlib.metadata.Distribution) -> list[str]:
    """A package's licences, all of which apply; alternatives stand in one, between ``OR``."""
    metadata = distribution.metadata
    if expression := metadata.get("License-Expression"):
        return re.split(r"\s+AND\s+", expression.replace("(", "").replace(")", ""))
    classifiers = [text.split(" :: ") for text in metadata.get_all("Classifier", [])]
    named = [parts[-1] for parts in classifiers if parts[0] == "License" and len(parts) > 2]
    return named or re.split(r"\s+AND\s+", metadata.get("License") or "none named")


def refused(distribution: importlib.metadata.Distribution, allowed: set[str]) -> list[str]:
    return [text for text in licences(distribution) if not allowed.intersection(re.split(r"\s+OR\s+", text))]


@pytest.fixture(scope="module")
def shipped() -> dict[str, importlib.metadata.Distribution]:
    return closure("moe-placer")


@pytest.fixture(scope="module")
def tools() -> dict[str, importlib.metadata.Distribution]:
    try:
        return closure("moe-placer[dev]")
    except importlib.metadata.PackageNotFoundError as error:
        pytest.skip(f"not all of the dev extra is installed: {error}")


def test_the_closure_is_followed_through_extras_and_markers(
    shipped: dict[str, importlib.metadata.Distribution],
) -> None:
    # torch's own requirements, and theirs.
    assert {"torch", "sympy", "mpmath", "jinja2", "markupsafe", "pydantic-core"} <= set(shipped)
    assert "pytest" not in shipped


def test_everything_that_is_brought_is_pinned_at_the_version_that_is_tested(
    tools: dict[str, importlib.metadata.Distribution],
) -> None:
    pins = pinned()
    missing = sorted(set(tools) - set(pins))
    assert not missing, f"not in constraints.txt: {', '.join(missing)}; make lock writes it again"
    # A local version ("+cpu") names a build of the same release.
    other = {
        name: f"{distribution.version}, pinned {pins[name]}"
        for name, distribution in tools.items()
        if distribution.version.partition("+")[0] != pins[name]
    }
    assert not other


def test_nothing_is_pinned_that_nothing_brings(tools: dict[str, importlib.metadata.Distribution]) -> None:
    assert sorted(set(pinned()) - set(tools)) == []


def test_what_placer_brings_has_a_permissive_licence(
    shipped: dict[str, importlib.metadata.Distribution],
) -> None:
    assert {name: found for name, one in shipped.items() if (found := refused(one, ALLOWED))} == {}


def test_what_tools_bring_has_an_accepted_licence(tools: dict[str, importlib.metadata.Distribution]) -> None:
    found = {name: refused(one, ALLOWED_OF_TOOLS) for name, one in tools.items()}
    assert {name: texts for name, texts in found.items() if texts} == LOOKED_INTO


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("License-Expression: MIT AND GPL-3.0-only", ["GPL-3.0-only"]),
        ("License-Expression: GPL-3.0-only OR MIT", []),
        ("Classifier: License :: OSI Approved :: MIT License", []),
        (
            "Classifier: License :: OSI Approved :: GNU Affero General Public License v3",
            ["GNU Affero General Public License v3"],
        ),
        ("License: BSD", []),
        ("Summary: says nothing", ["none named"]),
    ],
)
def test_a_licence_is_read_where_a_package_names_it(fields: str, expected: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "one-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: one\nVersion: 1\n{fields}\n")
    assert refused(importlib.metadata.Distribution.at(folder), ALLOWED) == expected
