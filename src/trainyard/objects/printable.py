"""Text of others, fit for a terminal: what would steer it is shown instead of obeyed.

    printable(text)         no control characters but line ends and tabs
    printable(text, line)   nor line ends: a value that is one line stays one

Shown are: C0 and C1 controls (escape sequences begin with one), DEL, carriage returns, which overwrite what stands
before them, and the marks that turn the direction of text round. A backslash stays as it is: this is for eyes, and
nobody undoes it.
"""

from __future__ import annotations

import re

_TURNS = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_STEERING = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}]")
_STEERING_LINE = re.compile(rf"[\x00-\x1f\x7f-\x9f{_TURNS}]")
_OWN = re.compile(r"\x1b\[(?:0|3[1-6])m")  # the colours that `cli/layout.py` puts around words
_COLOURED = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_NAMES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str, line: bool = False) -> str:
    """The text with each steering character as its escape (`\\x1b`)."""
    if text.isprintable():
        return text
    return (_STEERING_LINE if line else _STEERING).sub(_shown, text)


def printable_but_colours(text: str) -> str:
    """The same, but the colours that we print ourselves stay colours."""
    if text.isprintable():
        return text
    end, parts = 0, []
    for colour in _OWN.finditer(text):
        parts += [printable(text[end : colour.start()]), colour[0]]
        end = colour.end()
    return "".join([*parts, printable(text[end:])])


def printable_output(line: bytes) -> bytes:
    """A line of a program's output, for a terminal: its colours hold to the end of the line, nothing else is obeyed."""
    if line.isascii() and line.decode().isprintable():
        return line
    end, parts = 0, []
    for colour in _COLOURED.finditer(line):
        parts += [_line(line[end : colour.start()]), colour[0]]
        end = colour.end()
    return b"".join([*parts, _line(line[end:]), b"\x1b[0m" if parts else b""])


def _line(part: bytes) -> bytes:
    return printable(part.decode("utf-8", "replace")).encode()


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _NAMES.get(match[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
