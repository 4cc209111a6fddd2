"""The pictures of the documents: each has a file, a text for those who do not see it, and few bytes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.reader import PAGES
from tools.pictures.animation import svg
from tools.pictures.png import SIGNATURE, chunk, rows, with_few_colours
from tools.pictures.recording import decoded
from tools.pictures.screen import Screen

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
LIMITS = {".png": 150_000, ".svg": 60_000}  # bytes
SHORTEST = 40  # characters of an alternative text that says what is to be seen
_MARKDOWN = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)\s]+)\)")
_ELEMENT = re.compile(r"<(?:img|source)\b[^>]*>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_PICTURE = re.compile(r"<picture>.*?</picture>", re.S)


def pictures(page: Path) -> Iterator[tuple[Path, str | None]]:
    """(file, alternative text) of each picture of a page. The text is None for the dark one of two."""
    text = page.read_text(encoding="utf-8")
    for match in _MARKDOWN.finditer(text):
        yield page.parent / match["path"], match["alt"]
    for element in _ELEMENT.findall(text):
        attributes = dict(_ATTRIBUTE.findall(element))
        is_source = element.startswith("<source")
        path = attributes["srcset" if is_source else "src"]
        yield page.parent / path, None if is_source else attributes.get("alt", "")


@pytest.mark.parametrize("page", [page for page in PAGES if list(pictures(page))], ids=lambda page: page.name)
def test_each_picture_has_a_file_a_text_and_few_bytes(page: Path) -> None:
    for file, text in pictures(page):
        assert file.is_file(), f"{page.name}: there is no {file}"
        assert file.stat().st_size < LIMITS[file.suffix], f"{file.name} is too large"
        assert text is None or len(text) >= SHORTEST, f"{page.name}: {file.name} needs a longer alternative text"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_picture_is_there_in_light_and_dark(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for picture in _PICTURE.findall(text):
        light, dark = re.search(r'src="(.*?)-light\.png"', picture), re.search(r'srcset="(.*?)-dark\.png"', picture)
        assert light and dark and light[1] == dark[1] and 'media="(prefers-color-scheme: dark)"' in picture
    assert len(_ELEMENT.findall(text)) == 2 * len(_PICTURE.findall(text)), "a picture without its <picture>"


def test_every_file_of_the_folder_is_shown() -> None:
    assert {path for page in PAGES for path, _ in pictures(page)} == set(FOLDER.iterdir())


def test_the_recorded_picture_runs_nothing_and_loads_nothing() -> None:
    text = (FOLDER / "first-hour.svg").read_text(encoding="utf-8")
    elements = list(ElementTree.fromstring(text).iter())  # noqa: S314  (a file of this repository)
    names = {element.tag.rpartition("}")[2] for element in elements}
    assert names == {"svg", "title", "style", "rect", "text", "tspan"}
    assert not any(re.match(r"on|href|src", name) for element in elements for name in element.attrib)
    assert "url(" not in text and "@import" not in text
    for command in ("trainyard run", "trainyard get", "trainyard why", "trainyard top", "trainyard ui"):
        assert command in text


def test_the_last_frame_is_there_without_animations() -> None:
    screen, frames = Screen(), []
    for seconds, text in enumerate(("$ ", "echo <1>\r\n", "<1>\r\n$ ", "\x1b[H\x1b[J\x1b[31mno\x1b[0m")):
        screen.feed(text)
        frames.append((float(seconds), screen.rows()))
    text = svg(frames, "A title")
    assert re.findall(r'<text[^>]* class="e"[^>]*>(.*)</text>', text) == ['<tspan class="r">no</tspan>']
    assert re.findall(r'<text x="14" y="28" style="(.*?)">', text) == ["--a:0s;--b:1s", "--a:1s;--b:3s"]
    assert "&lt;1&gt;" in text and "<1>" not in text


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        ("a\r\nb", ["a", "b"]),
        ("0:00 Pending\r\x1b[Jdone", ["done"]),
        ("one\r\ntwo\r\x1b[1A\x1b[Jthree", ["three"]),
        ("under\x1b[?1049h\x1b[?25l\x1b[Hover\x1b[K\x1b[J", ["over"]),
        ("under\x1b[?1049h\x1b[Hover\x1b[J\x1b[?1049l.", ["under."]),
        ("x" * 81, ["x" * 80, "x"]),
        ("\r\n".join(map(str, range(25))), list(map(str, range(1, 25)))),
        ("\x1b]prompt\a\x1b[32m$\x1b[0m ls\bS", ["$ lS"]),
    ],
)
def test_the_screen_shows_what_a_terminal_does(printed: str, lines: list[str]) -> None:
    screen = Screen()
    screen.feed(printed)
    shown = ["".join(character for character, _ in row).rstrip() for row in screen.rows()]
    assert [line for line in shown if line] == lines


def test_an_unknown_sequence_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown sequence"):
        Screen().feed("\x1b[5;5H")


def test_a_sequence_or_a_character_that_comes_in_two_parts_is_kept() -> None:
    whole = "a\x1b[31mé\x1b]x\a".encode()
    for cut in range(len(whole)):
        first, rest = decoded(whole[:cut])
        second, left = decoded(rest + whole[cut:])
        assert (first + second, left) == (whole.decode(), b"")


def png(filters: list[int], lines: list[bytes]) -> bytes:
    """A picture of the colour type 2, whose rows have these filters and filtered bytes."""
    header = (len(lines[0]) // 3).to_bytes(4) + len(lines).to_bytes(4) + bytes([8, 2, 0, 0, 0])
    data = zlib.compress(b"".join(bytes([kind]) + line for kind, line in zip(filters, lines, strict=True)))
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_all_filters_of_png_are_undone() -> None:
    size, lines = rows(png([0, 1, 2, 3, 4], [bytes([1, 2, 3, 1, 2, 3])] * 5))
    assert size == 3
    assert [list(line) for line in lines] == [
        [1, 2, 3, 1, 2, 3],  # None
        [1, 2, 3, 2, 4, 6],  # Sub
        [2, 4, 6, 3, 6, 9],  # Up
        [2, 4, 6, 3, 7, 10],  # Average
        [3, 6, 9, 4, 9, 13],  # Paeth
    ]


def test_few_colours_stay_as_they_are() -> None:
    lines = [bytes([9, 8, 7, 1, 2, 3]), bytes([1, 2, 3, 1, 2, 3])]
    picture = with_few_colours(png([0, 0], lines))
    (palette,) = re.findall(rb"PLTE(.{6})", picture, re.S)
    (data,) = re.findall(rb"IDAT(.*)....\0\0\0\0IEND", picture, re.S)
    indices = zlib.decompress(data)
    assert [palette[3 * at : 3 * at + 3] for at in (*indices[1:3], *indices[4:6])] == [
        lines[0][:3], lines[0][3:], lines[1][:3], lines[1][3:]
    ]  # fmt: skip
