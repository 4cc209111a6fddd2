"""The catalogue: image pattern -> providers to get its environment, and the program of the image.

images:
- {match: my/trainer, python: ../venv}    # the whole entry: a virtual environment, a conda prefix, or an interpreter
- {match: my/other, requirements: requirements.txt}  # the whole entry: an environment that is built from these pins
- match: [my/trainer, "my/trainer:*"]     # shell patterns; a leading docker.io/ of an image name is ignored
  providers:                                   # tried in order
  - current: {torch: ">=2"}               # the interpreter of selection.py, if it has these modules; {}: no condition
  - interpreter: ~/venvs/torch            # a virtual environment, a conda prefix, or an interpreter
  - requirements: [torch==2.15.0]         # pins, or the name of a file with pins beside the catalogue
    name: torch 2.15                      # shown in messages, and part of the folder's name
    python: 3.10 - 3.14                   # the Python versions these pins support
    download: 5.3 GB                      # shown before the installation: the approximate size of the download ...
    disk: 9 GB                            # ... and the free space that the installation needs
    check: torch                          # a module whose import must succeed before the environment is used
    build: [setuptools==65.5.0]           # installed before the pins, which are then built without build isolation
    ask: true                             # installed only with the user's consent
  - system: {python: /usr/bin/python3, modules: {torch: python3-torch}}  # module -> the Debian package with it
    needs: {mpiexec: openmpi-bin}         # program on PATH, or its path -> the Debian package with it
  entrypoint: [python, "{here}/train.py"] # {here}: the catalogue's folder; {programs}: Trainyard's own programs
  args: []
  workdir: ""                             # "{working-directory}": the pod's own, as for images without an entry
  env: {}                                 # the pod's own variables override these
  files: {/train.py: "{here}/train.py"}   # path in the container -> source file; a bare name is a program on PATH
  folders: [/var/lib/data]                # empty folders that each container gets
  scratch: [/var/lib/etcd]                # the same for temporary data: its removal with the pod is not reported
  path: ["{here}/bin"]                    # folders in front of PATH

A relative path is below the catalogue's folder, and `~` is the user's home. A word of `entrypoint` and `args` is a
path if it begins with ./, ../ or ~/, or if it is the name of a file in the catalogue's folder.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from os.path import normpath
from pathlib import Path
from typing import Any

import msgspec

from trainyard.node.images.requirements import expand_path, is_pinned, parse_pins
from trainyard.objects import Problem
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.yaml_builder import DOCUMENT, Value
from trainyard.objects.yaml_reader import ManifestError, load

SHIPPED = Path(__file__).with_name("images.yaml")
PROGRAMS = Path(__file__).parents[2] / "programs"
WORKING_DIRECTORY = "{working-directory}"
"""Value of `workdir` for the folder in the pod's annotation (objects/labels.py)."""

_PYTHON_RANGE = lazy_pattern(r"(\d+)\.(\d+)(?:\s*-\s*(\d+)\.(\d+))?$")
_SIZE = lazy_pattern(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB)$")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_VERSION_TERM = lazy_pattern(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)$")


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An interpreter of the operating system. `modules`: module -> the Debian package that installs it."""

    python: str
    modules: dict[str, str]


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the environment of an image comes from: exactly one of current, interpreter, requirements and system."""

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


class _CatalogueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: str | list[str]
    python: str | None = None
    requirements: str | list[str] | None = None
    providers: list[Provider] = []
    ways: list[Provider] = []  # the former name of `providers`
    entrypoint: list[str] = []
    args: list[str] = []
    workdir: str = ""
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: list[str] = []
    scratch: list[str] = []
    path: list[str] = []

    @property
    def listed_providers(self) -> list[Provider]:
        return self.providers or self.ways


class _CatalogueFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    images: list[_CatalogueEntry]


class Image(msgspec.Struct, frozen=True):
    """One entry with absolute paths and parsed requirements. An entry without providers has one, `current: {}`."""

    match: tuple[str, ...]
    providers: tuple[Provider, ...]
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
    """The entries of a catalogue file. Raises ManifestError with all problems of the file."""
    values = load(_read_bytes(file), str(file))
    try:
        entries = msgspec.convert(values[0].value if values else {}, _CatalogueFile).images
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        place = path.strip("`$.") or "images"
        fix = "docs/images.md has the format" if path else "write `images:` above the list of entries (docs/images.md)"
        raise ManifestError([_problem(file, values, place, f"{text}; {fix}")]) from None
    problems = [
        _problem(file, values, *f"images[{index}]{text}".split(": ", 1))
        for index, entry in enumerate(entries)
        for text in _entry_problems(entry, file)
    ]
    if len(values) > 1:
        text = "is a second document; put all entries under one 'images:'"
        problems.append(Problem(f"{file}:{values[1].line}: {DOCUMENT}", text))
    if problems:
        raise ManifestError(problems)
    return [_image(entry, file) for entry in entries]


def _problem(file: Path, values: list[Value], path: str, text: str) -> Problem:
    """The problem of a field of the file's first document, with its line."""
    line = values[0].lines.line_of(path) if values else 1
    return Problem(f"{file}:{line}: {path}", text)


def find_entry(images: list[Image], name: str) -> Image | None:
    """The first entry with a pattern that matches the image name, or None."""
    name_without_registry = name
    for host in ("docker.io/", "index.docker.io/"):
        name_without_registry = name_without_registry.removeprefix(host)
    name_without_registry = name_without_registry.removeprefix("library/")
    return next(
        (image for image in images if any(fnmatchcase(name_without_registry, pattern) for pattern in image.match)), None
    )


def python_in_range(python: str, version: tuple[int, int]) -> bool:
    """True if the version is in a range such as "3.11 - 3.13". The range "" contains every version."""
    match = _PYTHON_RANGE.match(python)
    if not match:
        return True
    lowest = (int(match[1]), int(match[2]))
    return lowest <= version <= ((int(match[3]), int(match[4])) if match[3] else lowest)


def parse_size(text: str) -> float:
    """The number of bytes of a size such as "1.5 GB"; 0 for ""."""
    match = _SIZE.match(text)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0


def version_satisfies(version: str, terms: str) -> bool:
    """True if a version such as "2.16.1" fulfils all terms of ">=2.16,<3". Only the leading numbers of the version
    are compared."""
    installed = _numbers(version)
    for term in filter(None, (part.strip() for part in terms.split(","))):
        match = _VERSION_TERM.match(term)
        if match is None:
            return False
        wanted = _numbers(match[2])
        length = max(len(installed), len(wanted))
        left, right = (numbers + (0,) * (length - len(numbers)) for numbers in (installed, wanted))
        comparison = {
            ">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right,
            "==": left == right, "!=": left != right,
        }  # fmt: skip
        if not comparison[match[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        text = f"cannot be read ({error.strerror}); name a file with image entries"
        raise ManifestError([Problem(f"{file}:1: file", text)]) from None


def _patterns(entry: _CatalogueEntry) -> list[str]:
    return [entry.match] if isinstance(entry.match, str) else entry.match


def _entry_problems(entry: _CatalogueEntry, file: Path) -> list[str]:
    problems = []
    if not _patterns(entry) or not all(_patterns(entry)):
        problems.append(".match: is empty; write the image's name or a pattern such as my/trainer*")
    if sum((entry.python is not None, entry.requirements is not None, bool(entry.providers), bool(entry.ways))) > 1:
        problems.append(": has more than one of python, requirements and providers; write several of them as providers")
    if entry.python == "":
        problems.append(".python: is empty; name a virtual environment, a conda prefix or an interpreter")
    field_name = "providers" if entry.providers else "ways"
    for index, provider in enumerate(_entry_providers(entry)):
        place = f".{field_name}[{index}]" if entry.listed_providers else ""
        problems += [f"{place}{text}" for text in _provider_problems(provider, file)]
    for field, paths in (("files", list(entry.files)), ("folders", entry.folders), ("scratch", entry.scratch)):
        problems += [
            f".{field}: {path!r} is not an absolute path below /" for path in paths if not _is_container_path(path)
        ]
    return problems


def _is_container_path(path: str) -> bool:
    """True for a normalized absolute path other than `/`: only such paths can be created in a container."""
    return path.startswith("/") and len(path) > 1 and normpath(path) == path


def _provider_problems(provider: Provider, file: Path) -> list[str]:
    problems = []
    sources = (provider.current, provider.interpreter, provider.requirements, provider.system)
    if sum(source is not None for source in sources) != 1:
        problems.append(": must be exactly one of current, requirements and system, or interpreter")
    if provider.interpreter == "":
        problems.append(".interpreter: is empty; name a virtual environment, a conda prefix or an interpreter")
    if provider.python and not _PYTHON_RANGE.match(provider.python):
        problems.append(f".python: {provider.python!r} is not a range; write for example '3.11 - 3.13'")
    for field, text in (("download", provider.download), ("disk", provider.disk)):
        if text and not _SIZE.match(text):
            problems.append(f".{field}: {text!r} is not a size; write for example '350 MB' or '1.5 GB'")
    for module, terms in (provider.current or {}).items():
        if any(not _VERSION_TERM.match(term.strip()) for term in terms.split(",") if term.strip()):
            problems.append(
                f".current.{module}: {terms!r} is not a version range; write for example '>=2.16,<3', or ''"
            )
    if provider.requirements is not None:
        try:
            parse_pins(provider.requirements, file.resolve().parent)
        except ManifestError as error:
            problems += [
                f".requirements: {f'{problem.path}: ' if problem.path else ''}{problem.text}"
                for problem in error.problems
            ]
    problems += [
        f".build: {line!r} is not pinned; write it as name==version" for line in provider.build if not is_pinned(line)
    ]
    return problems


def _entry_providers(entry: _CatalogueEntry) -> list[Provider]:
    if entry.python is not None:
        return [Provider(interpreter=entry.python)]
    if entry.requirements is not None:
        name = os.path.basename(entry.requirements) if isinstance(entry.requirements, str) else ""
        return [Provider(requirements=entry.requirements, name=name)]
    return entry.listed_providers


class _EntryPaths:
    """Resolves the paths of a catalogue entry, which are relative to the folder of the catalogue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def filled(self, text: str) -> str:
        """The text with `{programs}` and `{here}` replaced by folders."""
        return text.replace("{programs}", str(PROGRAMS)).replace("{here}", str(self._folder))

    def path(self, text: str) -> str:
        """The absolute path."""
        return expand_path(self.filled(text), self._folder)

    def argument(self, text: str) -> str:
        """An argument of a command: the absolute path if it names a file beside the catalogue or begins as a path."""
        text = self.filled(text)
        is_path = text.startswith(("./", "../", "~/")) or (text != "" and (self._folder / text).is_file())
        return expand_path(text, self._folder) if is_path else text

    def program(self, text: str) -> str:
        """A program: the absolute path, or a bare name, which is later looked up on PATH."""
        return self.path(text) if "/" in text else text

    def provider(self, declared: Provider) -> Provider:
        """The provider with absolute paths, and with the lines of its requirements file."""
        fields: dict[str, Any] = {name: getattr(declared, name) for name in declared.__struct_fields__}
        if declared.requirements is not None:
            fields["requirements"] = parse_pins(declared.requirements, self._folder)
        if declared.interpreter is not None:
            fields["interpreter"] = self.path(declared.interpreter)
        if declared.system is not None:
            fields["system"] = System(self.program(declared.system.python), declared.system.modules)
        return Provider(**fields)


def _image(entry: _CatalogueEntry, file: Path) -> Image:
    paths = _EntryPaths(file.resolve().parent)
    # An entry without `providers` runs in the pod's working directory, as images without an entry do.
    workdir = entry.workdir or (WORKING_DIRECTORY if not entry.listed_providers else "")
    return Image(
        match=tuple(_patterns(entry)),
        providers=tuple(map(paths.provider, _entry_providers(entry))) or (Provider(current={}),),
        entrypoint=tuple(map(paths.argument, entry.entrypoint)),
        args=tuple(map(paths.argument, entry.args)),
        workdir=paths.path(workdir) if workdir not in ("", WORKING_DIRECTORY) else workdir,
        env={name: paths.filled(value) for name, value in entry.env.items()},
        files={target: paths.program(paths.filled(place)) for target, place in entry.files.items()},
        folders=tuple(entry.folders),
        scratch=tuple(entry.scratch),
        path=tuple(map(paths.path, entry.path)),
        source=str(file),
    )
