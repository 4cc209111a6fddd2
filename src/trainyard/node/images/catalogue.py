"""The catalogue: image pattern -> ways to satisfy it, and the program behind it.

images:
- match: [my/trainer, "my/trainer:*"]     # shell patterns; docker.io/ in front of a name does not matter
  ways:                                   # tried in order
  - current: {torch: ">=2"}               # the Python that runs trainyard has these modules; {} is always true
  - requirements: [torch==2.15.0]         # pins, or the name of a file with pins beside the catalogue
    name: torch 2.15                      # for messages and for the folder's name
    python: 3.10 - 3.14                   # the Python versions these pins serve
    download: 5.3 GB                      # said before it begins; about what travels ...
    disk: 9 GB                            # ... and what must be free
    check: torch                          # a module that must import before the environment counts
    build: [setuptools==65.5.0]           # installed before the pins, which are then built with these and nothing else
    ask: true                             # not without the person's consent
  - system: {python: /usr/bin/python3, modules: {torch: python3-torch}}  # modules and the packages that bring them
    needs: {mpiexec: openmpi-bin}         # programs that must be on PATH, and the packages that bring them
  entrypoint: [python, "{here}/train.py"] # {here}: the catalogue's folder; {programs}: Trainyard's own programs
  args: []
  workdir: ""
  env: {}                                 # the pod's own variables win
  files: {/train.py: "{here}/train.py"}   # path in the container -> what is there; a bare name is a program on PATH
  folders: [/var/lib/etcd]                # empty folders of the container's own
  path: ["{here}/bin"]                    # folders in front of PATH
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import normpath
from pathlib import Path
from typing import Any

import msgspec

from trainyard.objects import Problem
from trainyard.objects.strict import ManifestError, load

SHIPPED = Path(__file__).with_name("images.yaml")
PROGRAMS = Path(__file__).parents[1] / "programs"

_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*(==\s*[^\s;*]+|@\s*\S+)\s*(;.*)?$")
_RANGE = re.compile(r"(\d+)\.(\d+)(?:\s*-\s*(\d+)\.(\d+))?$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB)$")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_TERM = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)$")


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Modules that an interpreter of the operating system has, and the Debian packages that bring them."""

    python: str
    modules: dict[str, str]


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to satisfy an image: exactly one of current, requirements and system."""

    current: dict[str, str] | None = None
    requirements: str | list[str] | None = None
    system: System | None = None
    name: str = ""
    python: str = ""
    download: str = ""
    disk: str = ""
    check: str = ""
    build: list[str] = []
    ask: bool = False
    needs: dict[str, str] = {}


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: str | list[str]
    ways: list[Way] = []
    entrypoint: list[str] = []
    args: list[str] = []
    workdir: str = ""
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: list[str] = []
    path: list[str] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    images: list[_Entry]


@dataclass(frozen=True, slots=True)
class Image:
    """One entry, placeholders filled in, requirements read. Without ways it runs with the current interpreter."""

    match: tuple[str, ...]
    ways: tuple[Way, ...]
    entrypoint: tuple[str, ...]
    args: tuple[str, ...]
    workdir: str
    env: dict[str, str]
    files: dict[str, str]
    folders: tuple[str, ...]
    path: tuple[str, ...]
    source: str


def read(file: Path) -> list[Image]:
    """The entries of a catalogue file. Raises ManifestError with every problem a person can fix."""
    values = load(_bytes(file), str(file))
    try:
        entries = msgspec.convert(values[0].value if values else {}, _File).images
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        raise ManifestError(
            [Problem(str(file), f"{path.strip('`$.') or 'the file'}: {text}; see the example")]
        ) from None
    problems = [
        Problem(str(file), f"images[{at}]{text}") for at, entry in enumerate(entries) for text in _wrong(entry, file)
    ]
    if len(values) > 1:
        problems.append(Problem(str(file), "holds more than one document; put all entries under one 'images:'"))
    if problems:
        raise ManifestError(problems)
    return [_image(entry, file) for entry in entries]


def find(images: list[Image], name: str) -> Image | None:
    """The first entry whose pattern fits."""
    plain = name
    for host in ("docker.io/", "index.docker.io/"):
        plain = plain.removeprefix(host)
    plain = plain.removeprefix("library/")
    return next((one for one in images if any(fnmatchcase(plain, pattern) for pattern in one.match)), None)


def serves(python: str, version: tuple[int, int]) -> bool:
    """True when a range such as "3.11 - 3.13" holds the version. "" holds every version."""
    found = _RANGE.match(python)
    if not found:
        return True
    least = (int(found[1]), int(found[2]))
    return least <= version <= ((int(found[3]), int(found[4])) if found[3] else least)


def size(text: str) -> float:
    """Bytes for "1.5 GB", 0 for ""."""
    found = _SIZE.match(text)
    return float(found[1]) * _UNITS[found[2]] if found else 0.0


def fits(version: str, terms: str) -> bool:
    """True when a version such as "2.16.1" fulfils all of ">=2.16,<3". What is no number in it ends it."""
    have = _numbers(version)
    for term in filter(None, (part.strip() for part in terms.split(","))):
        found = _TERM.match(term)
        if found is None:
            return False
        want = _numbers(found[2])
        length = max(len(have), len(want))
        left, right = (numbers + (0,) * (length - len(numbers)) for numbers in (have, want))
        true = {
            ">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right,
            "==": left == right, "!=": left != right,
        }  # fmt: skip
        if not true[found[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        why = f"cannot be read ({error.strerror}); name a file with image entries"
        raise ManifestError([Problem(str(file), why)]) from None


def _patterns(entry: _Entry) -> list[str]:
    return [entry.match] if isinstance(entry.match, str) else entry.match


def _wrong(entry: _Entry, file: Path) -> list[str]:
    wrong = []
    if not _patterns(entry) or not all(_patterns(entry)):
        wrong.append(".match: is empty; write the image's name or a pattern such as my/trainer*")
    for at, way in enumerate(entry.ways):
        wrong += [f".ways[{at}]{text}" for text in _wrong_way(way, file)]
    for field, paths in (("files", list(entry.files)), ("folders", entry.folders)):
        wrong += [f".{field}: {path!r} is no absolute path below /" for path in paths if not _inside(path)]
    return wrong


def _inside(path: str) -> bool:
    """An absolute path without detours, below the root: what can be laid into a container."""
    return path.startswith("/") and len(path) > 1 and normpath(path) == path


def _wrong_way(way: Way, file: Path) -> list[str]:
    wrong = []
    if sum(one is not None for one in (way.current, way.requirements, way.system)) != 1:
        wrong.append(": must be exactly one of current, requirements and system")
    if way.python and not _RANGE.match(way.python):
        wrong.append(f".python: {way.python!r} is no range; write for example '3.11 - 3.13'")
    for field, text in (("download", way.download), ("disk", way.disk)):
        if text and not _SIZE.match(text):
            wrong.append(f".{field}: {text!r} is no size; write for example '350 MB' or '1.5 GB'")
    for module, terms in (way.current or {}).items():
        if any(not _TERM.match(term.strip()) for term in terms.split(",") if term.strip()):
            wrong.append(f".current.{module}: {terms!r} is no version range; write for example '>=2.16,<3', or ''")
    if way.requirements is not None:
        try:
            wrong += [
                f".{field}: {line!r} is not pinned; write it as name==version"
                for field, lines in (("requirements", _requirements(way.requirements, file)), ("build", way.build))
                for line in lines
                if not _PIN.match(line)
            ]
        except ManifestError as error:
            wrong += [f".requirements: {problem}" for problem in error.problems]
    return wrong


def _requirements(given: str | list[str], file: Path) -> list[str]:
    if isinstance(given, str):
        try:
            lines = _bytes(file.parent / given).decode().splitlines()
        except UnicodeDecodeError:
            raise ManifestError([Problem(given, "is not UTF-8 text; name a file with one pin per line")]) from None
    else:
        lines = given
    plain = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
    return [line for line in plain if line]


def _image(entry: _Entry, file: Path) -> Image:
    here = str(file.resolve().parent)

    def filled(text: str) -> str:
        return text.replace("{programs}", str(PROGRAMS)).replace("{here}", here)

    def way(one: Way) -> Way:
        fields: dict[str, Any] = {name: getattr(one, name) for name in one.__struct_fields__}
        if one.requirements is not None:
            fields["requirements"] = _requirements(one.requirements, file)
        return Way(**fields)

    return Image(
        match=tuple(_patterns(entry)),
        ways=tuple(way(one) for one in entry.ways),
        entrypoint=tuple(map(filled, entry.entrypoint)),
        args=tuple(map(filled, entry.args)),
        workdir=filled(entry.workdir),
        env={name: filled(value) for name, value in entry.env.items()},
        files={path: filled(place) for path, place in entry.files.items()},
        folders=tuple(entry.folders),
        path=tuple(map(filled, entry.path)),
        source=str(file),
    )
