"""Each file that a page, a docstring or a comment of the repository names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import filter as fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tests.support.repository import ROOT, tracked_files

PACKAGE = "src/trainyard"
_FOLDERS = "src|tests|docs|tools|testdata|bench|config|deploy|charts|examples|requirements"
# From the root of the repository. A path with a placeholder, `tests/{name}.py` or `testdata/CASE.yaml`, names no file.
_FROM_ROOT = re.compile(rf"(?<![\w/.\-])(?:{_FOLDERS})/[\w.*{{}}/\-]*[\w*}}]")
_PLACEHOLDER = re.compile(r"[{}]|\b[A-Z]+\.\w+$")
# As the pages cite a module, from the package, and a test, from `tests`. A file of an example does not count.
_MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)\b")


@cache
def paths() -> frozenset[str]:
    """The files and folders of the repository that git tracks or would track, from its root."""
    files = {str(path.relative_to(ROOT)) for path in tracked_files()}
    return frozenset(files | {str(folder) for path in files for folder in PurePosixPath(path).parents})


def cited(text: str, modules: bool) -> Iterator[str]:
    """The paths from the root that a text cites; with `modules` also those of modules from the package."""
    for path in _FROM_ROOT.findall(text):
        if not _PLACEHOLDER.search(path):
            yield path
    packages = {path.name for path in (ROOT / PACKAGE).iterdir() if path.is_dir()}
    for module in _MODULE.findall(text) if modules else ():
        if module.split("/")[0] in packages:
            yield f"{'tests' if '/test_' in module else PACKAGE}/{module}"


def exists(path: str) -> bool:
    # `*` matches slashes, too, so that `**/` needs nothing more.
    return bool(fnmatch(paths(), path.replace("**/", ""))) if "*" in path else path in paths()


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of each page and each file of code."""
    for path in sorted(paths()):
        if path.endswith((".md", ".py", ".toml", ".yml")) and path != "CHANGELOG.md":
            yield path, (ROOT / path).read_text(encoding="utf-8")


def test_every_cited_path_exists() -> None:
    own = str(Path(__file__).relative_to(ROOT))
    missing = {
        path: lacking
        for path, text in texts()
        if path != own and (lacking := [place for place in cited(text, path.endswith(".md")) if not exists(place)])
    }
    assert not missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see tests/docs/test_site.py, and docs/ too", ["tests/docs/test_site.py"]),
        ("all of tests/docs/test_*.py", ["tests/docs/test_*.py"]),
        ("written to charts/{chart}/values.yaml, testdata/CASE.yaml", []),
        ("`core/status.py` and `sub/train.py`", ["src/trainyard/core/status.py"]),
        ("in /work/src/thing and node/src/thing", []),
    ],
)
def test_cited_paths_are_recognized(text: str, expected: list[str]) -> None:
    assert list(cited(text, modules=True)) == expected


def test_a_missing_file_is_reported() -> None:
    assert not exists("docs/no-such-page.md")
    assert not exists("tests/docs/no_such_*.py")
    assert exists("docs")
    assert exists("tests/docs/test_cited_*.py")
