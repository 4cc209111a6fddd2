"""Requirements of an entry: a list in the catalogue, or a file as pip reads it, each line pinned.

A file may have comments, continued lines, hashes, extras, markers, `-r OTHER` and the options for package indexes. A
line that could install different versions in two builds is refused with its number: `name>=1`, `-e .`, `-c FILE`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainyard.objects import Problem
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.yaml_reader import ManifestError

_PIN = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*(={2,3}\s*[^\s;*]+|@\s*[^\s;]+)\s*(;.*)?$")
_HASH = re.compile(r"\s--hash[=\s]\s*\S+")
_COMMENT = re.compile(r"(^|\s)#.*")
_INCLUDE = lazy_pattern(r"(?:-r|--requirement)[=\s]*(\S.*)$")
_FIND_LINKS = lazy_pattern(r"(?:-f|--find-links)[=\s]*(\S.*)$")
_OPTIONS = lazy_pattern(
    r"-i\b|--(index-url|extra-index-url|no-index|pre|prefer-binary|require-hashes|no-binary|only-binary|trusted-host)\b"
)
_UNPINNABLE = lazy_pattern(r"-e\b|-c\b|--editable|--constraint|[./~]")


class _RequirementLine(msgspec.Struct, frozen=True):
    """`place`: FILE:LINE, "" in a catalogue. `folder`: the base of relative paths."""

    text: str
    place: str
    folder: Path


def expand_path(text: str, folder: Path) -> str:
    """The absolute path of a path in a catalogue: `~` is the user's home, a relative path is below `folder`."""
    return os.path.normpath(folder / os.path.expanduser(text))


def is_pinned(line: str) -> bool:
    """Whether the requirement names one version: `torch==2.1.0`."""
    return _PIN.match(_HASH.sub("", line)) is not None


def parse_pins(source: str | list[str], folder: Path) -> list[str]:
    """The requirement lines for an installer. Raises ManifestError with every line that is not pinned."""
    if isinstance(source, str):
        lines = list(_read_file(Path(expand_path(source, folder)), ()))
    else:
        lines = [_RequirementLine(text, "", folder) for line in source if (text := _COMMENT.sub("", line).strip())]
    accepted, problems = [], []
    for line in lines:
        if links := _FIND_LINKS.match(line.text):
            accepted.append(f"--find-links {links[1] if '://' in links[1] else expand_path(links[1], line.folder)}")
        elif is_pinned(line.text) or _OPTIONS.match(line.text):
            accepted.append(line.text)
        else:
            problems.append(Problem(line.place, f"{line.text!r} is not pinned; {_fix(line.text)}"))
    if not problems and not any(map(is_pinned, accepted)):
        problems.append(Problem(source if isinstance(source, str) else "", "names no package; write name==version"))
    if problems:
        raise ManifestError(problems)
    return accepted


def _fix(line: str) -> str:
    if _UNPINNABLE.match(line):
        return "write a released version as name==version, or use your own environment with 'python: FOLDER'"
    return "write it as name==version (pip freeze prints the versions of an environment that works)"


def _read_file(file: Path, including: tuple[Path, ...]) -> Iterator[_RequirementLine]:
    """The lines of a file and of its included files, without comments, continued lines joined."""
    if file in including:
        raise ManifestError([Problem(f"{file}:1: file", "includes itself; remove its -r line")])
    try:
        physical_lines = file.read_bytes().decode().splitlines()
    except UnicodeDecodeError:
        raise ManifestError(
            [Problem(f"{file}:1: file", "is not UTF-8 text; name a file with one pin per line")]
        ) from None
    except OSError as error:
        text = f"cannot be read ({error.strerror}); name a requirements file"
        raise ManifestError([Problem(f"{file}:1: file", text)]) from None
    joined, start = "", 0
    for number, line in enumerate(physical_lines, 1):
        start = start or number
        stripped = _COMMENT.sub("", line).strip()
        joined = f"{joined} {stripped.removesuffix(chr(92)).strip()}".strip()
        if stripped.endswith("\\") and number < len(physical_lines):
            continue
        if include := _INCLUDE.match(joined):
            yield from _read_file(Path(expand_path(include[1], file.parent)), (*including, file))
        elif joined:
            yield _RequirementLine(joined, f"{file}:{start}", file.parent)
        joined, start = "", 0
