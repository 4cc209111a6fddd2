"""Escaping of untrusted text for a terminal: control characters are shown as escapes, so they have no effect.

    printable(text)         escapes all control characters except newlines and tabs
    printable(text, line)   escapes newlines and tabs, too: a value of one line stays one line

Escaped are: C0 and C1 controls (escape sequences begin with one), DEL, carriage returns (they let a line overwrite
itself), the Unicode marks that change the direction of text, and halves of surrogate pairs, which no output can encode.
A backslash is not escaped: the output is for reading and is never parsed back.
"""

from __future__ import annotations

import re
import shlex

from trainyard.objects.patterns import lazy_pattern

DIRECTION_MARKS = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
SURROGATES = "\ud800-\udfff"
_CONTROLS = lazy_pattern(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{DIRECTION_MARKS}{SURROGATES}]")
_CONTROLS_AND_NEWLINES = lazy_pattern(rf"[\x00-\x1f\x7f-\x9f{DIRECTION_MARKS}{SURROGATES}]")
_OUR_COLOUR = re.compile(r"\x1b\[(?:0|3[1-6])m")  # the colour sequences that `cli/output/layout.py` writes
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str, line: bool = False) -> str:
    """The text with each control character as its escape (`\\x1b`)."""
    if text.isprintable():
        return text
    return (_CONTROLS_AND_NEWLINES if line else _CONTROLS).sub(_escape, text)


def printable_with_our_colours(text: str, has_colours: bool = True) -> str:
    """As `printable`, but with `has_colours` the colour sequences that Trainyard itself writes are kept."""
    if not has_colours:
        return printable(text)
    if text.isprintable():
        return text
    end, parts = 0, []
    for colour in _OUR_COLOUR.finditer(text):
        parts += [printable(text[end : colour.start()]), colour[0]]
        end = colour.end()
    return "".join([*parts, printable(text[end:])])


def printable_output(line: bytes) -> bytes:
    """A line of a container's output for a terminal: colour sequences are kept and reset at its end, others escaped."""
    if line.isascii() and line.decode().isprintable():
        return line
    end, parts = 0, []
    for colour in _COLOUR.finditer(line):
        parts += [_printable_bytes(line[end : colour.start()]), colour[0]]
        end = colour.end()
    return b"".join([*parts, _printable_bytes(line[end:]), b"\x1b[0m" if parts else b""])


def quoted_path(path: object) -> str:
    """The path as text, quoted as for a shell if it has white space, so that where it ends can be seen."""
    text = str(path)
    return shlex.quote(text) if any(map(str.isspace, text)) else text


def without_colours(line: bytes) -> bytes:
    """The line without colour sequences."""
    return _COLOUR.sub(b"", line)


def _printable_bytes(part: bytes) -> bytes:
    return printable(part.decode("utf-8", "replace")).encode()


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _SHORT_ESCAPES.get(match[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
