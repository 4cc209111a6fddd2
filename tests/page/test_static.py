"""The files of the page: small, and the same as their authors published where they are others'."""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "trainyard" / "page" / "static"
VENDORS = [STATIC / "vendor", Path(__file__).parent / "browser" / "vendor"]
FIRST_LOAD, ALL_FILES = 75_000, 208_000  # bytes
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


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`, after WCAG 2.2."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    dark, light = sorted(map(luminance, (first, second)))
    return (light + 0.05) / (dark + 0.05)


TONES = ("run", "done", "bad", "wait", "idle", "accent")
LINES_OF_RUNS = tuple(f"run-{number}" for number in range(8))
# What is drawn on a canvas, which axe does not see: texts, and shapes or borders without which nothing is understood.
TEXTS = [
    *(("surface", tone) for tone in TONES),  # the index of a rank on its cell, an exit code on its bar
    *((text, back) for text in ("text", "muted") for back in ("page", "surface", "sunken")),
    *((tone, "surface") for tone in TONES),
]
SHAPES = [*((tone, "sunken") for tone in TONES), *((line, "surface") for line in LINES_OF_RUNS)]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_drawn_has_the_contrast_of_wcag_2_2_aa(theme: str) -> None:
    blocks = (STATIC / "style.css").read_text(encoding="utf-8").split(":root {")[1:]
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block.split("}")[0])) for block in blocks)
    colours = light | dark if theme == "dark" else light
    ratios = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXTS + SHAPES}
    assert {pair: ratios[pair] for pair in TEXTS if ratios[pair] < 4.5} == {}
    assert {pair: ratios[pair] for pair in SHAPES if ratios[pair] < 3} == {}


@pytest.mark.parametrize("word", ["animation", "transition", "@keyframes", "smooth'", ".animate("])
def test_nothing_on_the_page_moves_by_itself(word: str) -> None:
    """Who has asked for reduced motion misses nothing, and nothing has to be switched off."""
    for path in STATIC.glob("*.*"):
        assert word not in path.read_text(encoding="utf-8"), path.name
