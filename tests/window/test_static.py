"""The files of the page: small, and the same as their authors published where they are others'."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "trainyard" / "window" / "static"
VENDORS = [STATIC / "vendor", Path(__file__).parent / "browser" / "vendor"]
FIRST_LOAD = 150_000  # bytes
LINES = 400


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/** ")
    assert text.count("\n") <= LINES


def test_all_files_fit_into_the_first_load() -> None:
    """Those of vendor/ are loaded when a curve is seen."""
    assert sum(path.stat().st_size for path in STATIC.iterdir() if path.is_file()) <= FIRST_LOAD


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"]
)
def test_no_module_makes_markup_from_text_or_names_another_host(word: str) -> None:
    hosts = ("http://www.w3.org/2000/svg",)  # a namespace, which nothing fetches
    for path in STATIC.glob("*.*"):
        text = path.read_text(encoding="utf-8")
        for host in hosts:
            text = text.replace(host, "")
        assert word not in text, path.name


@pytest.mark.parametrize("folder", VENDORS, ids=["page", "tests"])
def test_vendored_files_are_those_of_their_packages(folder: Path) -> None:
    packages = tomllib.loads((folder / "VENDOR.toml").read_text(encoding="utf-8"))
    listed = {name: digest for package in packages.values() for name, digest in package["files"].items()}
    actual = {path.name for path in folder.iterdir() if path.suffix in (".js", ".css")}
    assert actual <= listed.keys()
    for name, digest in listed.items():
        assert sha256((folder / name).read_bytes()).hexdigest() == digest
