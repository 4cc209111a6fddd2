"""The files of the page: small, and the same as their authors published where they are others'."""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "trainyard" / "page" / "static"
VENDORS = [STATIC / "vendor", Path(__file__).parent / "browser" / "vendor"]
FIRST_LOAD, ALL_FILES = 75_000, 200_000  # bytes
IMPORT = re.compile(r"^(?:import|\} from|import .* from) '\./([\w.]+)';", re.MULTILINE)
LINES = 400


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/** ")
    assert text.count("\n") <= LINES


def imported_with(name: str) -> set[str]:
    """The files that are loaded before that module runs."""
    names, waiting = set[str](), [name]
    while waiting:
        module = waiting.pop()
        if module not in names:
            names.add(module)
            waiting += IMPORT.findall((STATIC / module).read_text(encoding="utf-8"))
    return names


def test_the_first_load_has_the_list_of_jobs_alone() -> None:
    """What a job, a replica and a comparison need is loaded when one is opened."""
    names = imported_with("app.js")
    assert {"jobs_view.js", "store.js"} <= names and not names & {
        "job_view.js",
        "rank_view.js",
        "compare_view.js",
        "curves.js",
    }
    assert sum((STATIC / name).stat().st_size for name in names | {"index.html", "style.css"}) <= FIRST_LOAD


def test_all_files_are_small() -> None:
    """But for those of vendor/, which are loaded when a curve is seen."""
    assert sum(path.stat().st_size for path in STATIC.iterdir() if path.is_file()) <= ALL_FILES


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
