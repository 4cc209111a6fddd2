"""An animated SVG of what a terminal showed: text that can be selected, no script, and it stops at the last frame.

Each row of the screen is an element for each text that it had. Its style says from when (--a) until when (--b) it is
visible. Without animations, as with `prefers-reduced-motion`, the last frame is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise

from tools.pictures.recording import Frame
from tools.pictures.screen import COLUMNS, ROWS, Row

WIDTH, HEIGHT, MARGIN = 8.43, 18, 14  # of a character of 14 pixels, and around all
LIGHT = {"bg": "#f6f8fa", "fg": "#1f2328", "r": "#b3261e", "g": "#1a7f37", "y": "#7d5700", "u": "#0550ae"}
LIGHT |= {"m": "#8250df", "c": "#116b74", "line": "#d0d7de"}
DARK = {"bg": "#0d1117", "fg": "#e6edf3", "r": "#ff7b72", "g": "#56d364", "y": "#e3b341", "u": "#79c0ff"}
DARK |= {"m": "#d2a8ff", "c": "#76e3ea", "line": "#30363d"}
RULES = """text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;\
fill:var(--fg);visibility:hidden;animation:s 1ms var(--a) forwards,h 1ms var(--b) forwards}
.e{visibility:visible;animation:h 1ms var(--a) backwards}
.f{visibility:visible;animation:none}
.b{font-weight:bold}
.d{opacity:.7}
rect{fill:var(--bg);stroke:var(--line)}
@keyframes s{from,to{visibility:visible}}
@keyframes h{from,to{visibility:hidden}}
@media(prefers-reduced-motion:reduce){text{animation:none!important}}"""


@dataclass(frozen=True)
class Shown:
    """A row of the screen with one text. `end`: None when it is there in the last frame."""

    place: int
    row: Row
    begin: float
    end: float | None


def shown(frames: Sequence[Frame]) -> Iterator[Shown]:
    """The texts of each row, without empty ones."""
    for place in range(ROWS):
        texts = [(seconds, rows[place]) for seconds, rows in frames]
        changes = [texts[0], *(new for old, new in pairwise(texts) if old[1] != new[1])]
        ends = [begin for begin, _ in changes[1:]]
        for (begin, row), end in zip(changes, [*ends, None], strict=True):
            if any(character != " " for character, _ in row):
                yield Shown(place, row, begin, end)


def spans(row: Row) -> str:
    """The text of a row, its colours as elements."""
    parts = []
    for style, cells in groupby(row, key=lambda cell: cell[1]):
        text = escape("".join(character for character, _ in cells), quote=False)
        parts.append(f'<tspan class="{" ".join(style)}">{text}</tspan>' if style and text.strip() else text)
    return "".join(parts).rstrip()


def element(text: Shown) -> str:
    top = MARGIN + HEIGHT * text.place + HEIGHT - 4
    begin = "" if text.begin == 0 and text.end is None else f"--a:{text.begin:g}s"
    style = begin if text.end is None else f"{begin};--b:{text.end:g}s"
    kind = "" if text.end is not None else ' class="e"' if begin else ' class="f"'
    styled = f' style="{style}"' if style else ""
    return f'<text x="{MARGIN}" y="{top}"{kind}{styled}>{spans(text.row)}</text>'


def variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def svg(frames: Sequence[Frame], title: str) -> str:
    """The picture; `title` is its alternative text."""
    width, height = round(COLUMNS * WIDTH + 2 * MARGIN), ROWS * HEIGHT + 2 * MARGIN
    colours = "\n".join(f".{name}{{fill:var(--{name})}}" for name in "rgyumc")
    texts = "\n".join(element(text) for text in sorted(shown(frames), key=lambda text: (text.begin, text.place)))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} xml:space="preserve">
<title>{escape(title)}</title>
<style>
:root{{{variables(LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}
{RULES}
{colours}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>
{texts}
</svg>
"""
