"""The catalogue: image pattern -> ways to satisfy it, and the program behind it.

images:
- {match: my/trainer, python: ../venv}    # the whole entry: a virtual environment, a conda prefix, or an interpreter
- {match: my/other, requirements: requirements.txt}  # the same for an environment that is built from these pins
- match: [my/trainer, "my/trainer:*"]     # shell patterns; docker.io/ in front of a name does not matter
  ways:                                   # tried in order
  - current: {torch: ">=2"}               # the interpreter of selection.py has these modules; {} is always true
  - interpreter: ~/venvs/torch            # a virtual environment, a conda prefix, or an interpreter
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
  workdir: ""                             # "{working-directory}": the pod's own, as for images without an entry
  env: {}                                 # the pod's own variables win
  files: {/train.py: "{here}/train.py"}   # path in the container -> what is there; a bare name is a program on PATH
  folders: [/var/lib/data]                # empty folders of the container's own
  scratch: [/var/lib/etcd]                # the same, for what is of no use afterwards: its loss is not reported
  path: ["{here}/bin"]                    # folders in front of PATH

A relative path is below the catalogue's folder, and `~` is the person's home. A word of `entrypoint` and `args` is a
path when it begins with ./, ../ or ~/, or names a file beside the catalogue.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from os.path import normpath
from pathlib import Path
from typing import Any

import msgspec

from trainyard.node.images.requirements import expanded, is_pinned, pins
from trainyard.objects import Problem
from trainyard.objects.strict import ManifestError, load

SHIPPED = Path(__file__).with_name("images.yaml")
PROGRAMS = Path(__file__).parents[1] / "programs"
WORKING_DIRECTORY = "{working-directory}"
"""As a workdir: the folder that the pod's annotation names (objects/labels.py)."""

_RANGE = re.compile(r"(\d+)\.(\d+)(?:\s*-\s*(\d+)\.(\d+))?$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB)$")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_TERM = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)$")


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Modules that an interpreter of the operating system has, and the Debian packages that bring them."""

    python: str
    modules: dict[str, str]


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to satisfy an image: exactly one of current, interpreter, requirements and system."""

    current: dict[str, str] | None = None
    interpreter: str | None = None
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
    python: str | None = None
    requirements: str | list[str] | None = None
    ways: list[Way] = []
    entrypoint: list[str] = []
    args: list[str] = []
    workdir: str = ""
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: list[str] = []
    scratch: list[str] = []
    path: list[str] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    images: list[_Entry]


class Image(msgspec.Struct, frozen=True):
    """One entry, paths absolute, requirements read. An entry without ways has the one that is `current: {}`."""

    match: tuple[str, ...]
    ways: tuple[Way, ...]
    entrypoint: tuple[str, ...]
    args: tuple[str, ...]
    workdir: str
    env: dict[str, str]
    files: dict[str, str]
    folders: tuple[str, ...]
    scratch: tuple[str, ...]
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
    if sum((entry.python is not None, entry.requirements is not None, bool(entry.ways))) > 1:
        wrong.append(": has more than one of python, requirements and ways; write several of them as ways")
    if entry.python == "":
        wrong.append(".python: is empty; name a virtual environment, a conda prefix or an interpreter")
    for at, way in enumerate(_ways(entry)):
        wrong += [f"{f'.ways[{at}]' if entry.ways else ''}{text}" for text in _wrong_way(way, file)]
    for field, paths in (("files", list(entry.files)), ("folders", entry.folders), ("scratch", entry.scratch)):
        wrong += [f".{field}: {path!r} is no absolute path below /" for path in paths if not _inside(path)]
    return wrong


def _inside(path: str) -> bool:
    """An absolute path without detours, below the root: what can be laid into a container."""
    return path.startswith("/") and len(path) > 1 and normpath(path) == path


def _wrong_way(way: Way, file: Path) -> list[str]:
    wrong = []
    if sum(part is not None for part in (way.current, way.interpreter, way.requirements, way.system)) != 1:
        wrong.append(": must be exactly one of current, requirements and system, or interpreter")
    if way.interpreter == "":
        wrong.append(".interpreter: is empty; name a virtual environment, a conda prefix or an interpreter")
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
            pins(way.requirements, file.resolve().parent)
        except ManifestError as error:
            wrong += [f".requirements: {f'{p.path}: ' if p.path else ''}{p.text}" for p in error.problems]
    wrong += [f".build: {line!r} is not pinned; write it as name==version" for line in way.build if not is_pinned(line)]
    return wrong


def _ways(entry: _Entry) -> list[Way]:
    if entry.python is not None:
        return [Way(interpreter=entry.python)]
    if entry.requirements is not None:
        name = os.path.basename(entry.requirements) if isinstance(entry.requirements, str) else ""
        return [Way(requirements=entry.requirements, name=name)]
    return entry.ways


def _image(entry: _Entry, file: Path) -> Image:
    folder = file.resolve().parent

    def filled(text: str) -> str:
        return text.replace("{programs}", str(PROGRAMS)).replace("{here}", str(folder))

    def path(text: str) -> str:
        return expanded(filled(text), folder)

    def word(text: str) -> str:
        text = filled(text)
        is_path = text.startswith(("./", "../", "~/")) or (text != "" and (folder / text).is_file())
        return expanded(text, folder) if is_path else text

    def program(text: str) -> str:
        """A bare name is a program on PATH."""
        return path(text) if "/" in text else text

    def way(written: Way) -> Way:
        fields: dict[str, Any] = {name: getattr(written, name) for name in written.__struct_fields__}
        if written.requirements is not None:
            fields["requirements"] = pins(written.requirements, folder)
        if written.interpreter is not None:
            fields["interpreter"] = path(written.interpreter)
        if written.system is not None:
            fields["system"] = System(program(written.system.python), written.system.modules)
        return Way(**fields)

    # A line that only says which Python it is has no folder of its own: it is as an image without an entry.
    workdir = entry.workdir or (WORKING_DIRECTORY if not entry.ways else "")
    return Image(
        match=tuple(_patterns(entry)),
        ways=tuple(map(way, _ways(entry))) or (Way(current={}),),
        entrypoint=tuple(map(word, entry.entrypoint)),
        args=tuple(map(word, entry.args)),
        workdir=path(workdir) if workdir not in ("", WORKING_DIRECTORY) else workdir,
        env={name: filled(value) for name, value in entry.env.items()},
        files={target: program(filled(place)) for target, place in entry.files.items()},
        folders=tuple(entry.folders),
        scratch=tuple(entry.scratch),
        path=tuple(map(path, entry.path)),
        source=str(file),
    )
