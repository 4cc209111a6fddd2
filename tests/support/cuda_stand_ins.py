"""Stand-ins for the CUDA libraries that torch's libraries are linked against, for environments of tests on CPUs.

The torch of PyPI imports only where the shared libraries of 2.3 GiB of other wheels are. A stand-in has the name of
such a library and the symbols, with their versions, that torch needs of it. It has no code: a call prints the symbol's
name and aborts.

A symbol without a version does not say of which library it is. It is in a stand-in for the first missing library that
the library with the symbol needs: the dynamic linker looks for it in all of them.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_SYMBOL = re.compile(r"(?P<kind>[A-Za-z]) (?P<name>[A-Za-z_]\w*)(?:@@?(?P<version>\S+))?$")
_WEAK = "vw"  # an undefined symbol of these kinds is zero where no library has it
Symbols = dict[str, str]
"""Symbol -> its version, "" for none."""


@dataclass(frozen=True)
class Library:
    """What the dynamic section and the symbol table of a shared library say."""

    path: Path
    needed: tuple[str, ...]
    version_files: Mapping[str, str]  # version of undefined symbols -> the library that defines it
    undefined: Symbols
    defined: frozenset[str]


def write_stand_ins(folder: Path, first: str, others: Iterable[Path] = ()) -> list[str]:
    """Write the missing libraries that `first`, a library of the folder, needs directly or indirectly, into the folder.

    `others`: folders in which libraries are found as well. Returns the names of the libraries that were written.
    Needs gcc and binutils; raises FileNotFoundError without them.
    """
    symbols = missing_symbols(folder, first, others)
    for name, symbols_of_name in symbols.items():
        _compile(folder / name, symbols_of_name)
    return sorted(symbols)


def missing_symbols(folder: Path, first: str, others: Iterable[Path] = ()) -> dict[str, Symbols]:
    """The libraries that loading `first` does not find, with the symbols that are needed of each."""
    libraries, missing = _load_order(first, (folder, *others))
    defined = frozenset[str]().union(*(library.defined for library in libraries))
    interpreter = ctypes.CDLL(None)
    symbols: dict[str, Symbols] = {name: {} for name in missing}
    for library in libraries:
        absent = [name for name in library.needed if name in missing]
        for symbol, version in library.undefined.items() if absent else ():
            name = library.version_files.get(version, absent[0])
            if name in missing and (version or not (symbol in defined or hasattr(interpreter, symbol))):
                symbols[name][symbol] = version
    return symbols


def _load_order(first: str, folders: Iterable[Path]) -> tuple[list[Library], set[str]]:
    """The libraries that the dynamic linker loads for `first`, and the names of those that it does not find."""
    libraries: list[Library] = []
    missing: set[str] = set()
    known, names = {first}, [first]
    for name in names:
        path = next((path for folder in folders if (path := folder / name).exists()), None)
        if path:
            libraries.append(_read(path))
            names += [needed for needed in libraries[-1].needed if needed not in known]
            known.update(libraries[-1].needed)
        elif not _is_of_the_system(name):
            missing.add(name)
    return libraries, missing


def _is_of_the_system(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _read(path: Path) -> Library:
    dynamic = _output("readelf", "--dynamic", "--version-info", "--wide", path)
    files: dict[str, str] = {}
    file = ""
    for line in dynamic.partition("Version needs section")[2].splitlines():
        if match := re.search(r"\bFile: (\S+)", line):
            file = match[1]
        elif match := re.search(r"\bName: (\S+)", line):
            files[match[1]] = file
    undefined = {match["name"]: match["version"] or "" for match in _symbols(path) if match["kind"] == "U"}
    defined = frozenset(match["name"] for match in _symbols(path) if match["kind"] not in "U" + _WEAK)
    return Library(path, tuple(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)), files, undefined, defined)


def _symbols(path: Path) -> Iterator[re.Match[str]]:
    return filter(None, map(_SYMBOL.search, _output("nm", "--dynamic", path).splitlines()))


def _compile(path: Path, symbols: Symbols) -> None:
    """Compile a library with these symbols, each a function that aborts."""
    source, script = path.with_suffix(".c"), path.with_suffix(".map")
    text = f"{path.name}: %s has no code here: this environment is for CPUs"
    lines = ["#include <stdio.h>", "#include <stdlib.h>"]
    lines.append(f'static void stop(const char *name) {{ fprintf(stderr, "{text}\\n", name); abort(); }}')
    source.write_text("\n".join([*lines, *(f'void {name}(void) {{ stop("{name}"); }}' for name in symbols)]) + "\n")
    versions: defaultdict[str, list[str]] = defaultdict(list)
    for name, version in symbols.items():
        versions[version].append(name)
    versions.pop("", None)
    script.write_text("".join(f'"{version}" {{ {"; ".join(names)}; }};\n' for version, names in versions.items()))
    options = [f"-Wl,-soname,{path.name}", *([f"-Wl,--version-script={script}"] if versions else [])]
    _output("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", *options, "-o", path, source)
    source.unlink()
    script.unlink()


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
