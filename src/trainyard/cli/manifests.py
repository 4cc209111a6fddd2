"""The files a person names on the command line: read, sorted into jobs and the rest, checked as admission would.

Every problem is told at once, with its file and line; nothing is started and nothing is touched before that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainyard import kinds
from trainyard.core import Kind
from trainyard.core.names import LABEL_MAX, is_dns_label
from trainyard.objects import Json, Problem, name_of
from trainyard.objects.manifest import Document, ManifestError, read

STDIN = "-"


def load(paths: Iterable[str]) -> list[Document]:
    """The documents of all files, in order. Raises ManifestError with the problems of every file."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            documents += read(_text(path), "standard input" if path == STDIN else path)
        except ManifestError as error:
            problems += error.problems
        except OSError as error:
            problems.append(Problem(path, f"cannot be read ({error.strerror}); name a file that can"))
    if problems:
        raise ManifestError(problems)
    return documents


def _text(path: str) -> bytes:
    return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()


def jobs_of(documents: list[Document], needed: bool = True) -> list[tuple[Document, Kind]]:
    """The jobs among the documents. Raises ManifestError when a kind is almost one of ours, or when there is none."""
    found, problems = [], []
    for document in documents:
        kind = kinds.kind_of(document.obj)
        if kind:
            found.append((document, kind))
        elif near := _near(document.obj):
            said = f"{document.obj['apiVersion']} {document.obj['kind']} is not known"
            text = f"{said}; write apiVersion: {near.gvk.api_version} and kind: {near.gvk.kind}"
            problems.append(Problem(document.where, text))
    if not found and not problems and (needed or not documents):
        known = ", ".join(f"{kind.gvk.kind} ({kind.gvk.api_version})" for kind in kinds.ALL)
        source = ", ".join(dict.fromkeys(document.source for document in documents)) or "the input"
        problems.append(Problem(source, f"holds no job; the kinds known here are {known}"))
    if problems:
        raise ManifestError(problems)
    return found


def _near(obj: Json) -> Kind | None:
    """The kind that was probably meant: the same word, or the same group."""
    word, group = str(obj["kind"]).lower(), str(obj["apiVersion"]).split("/")[0]
    for kind in kinds.ALL:
        if kind.gvk.kind.lower() == word or kind.gvk.group == group:
            return kind
    return None


def admitted(document: Document, kind: Kind) -> tuple[Json, list[Problem]]:
    """The job with its defaults, and its problems with file and line, as an API server would find them."""
    full, problems = kinds.admit(kind, document.obj)
    problems = [*_name_problems(document.obj), *problems]
    return full, [replace(one, path=f"{document.where}: {one.path}".rstrip(": ")) for one in problems]


def _name_problems(obj: Json) -> list[Problem]:
    meta = obj.get("metadata")
    name = name_of(obj)
    if not isinstance(meta, dict) or not (name or meta.get("generateName")):
        return [Problem("metadata.name", "the job has no name; write one")]
    if name and not all(is_dns_label(part[:LABEL_MAX]) for part in name.split(".")):  # a rule speaks of the length
        text = f"{name!r} is not a legal name: write lower case letters, digits and '-', and begin and end with no '-'"
        return [Problem("metadata.name", text)]
    namespace = meta.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and is_dns_label(namespace)):
        return [Problem("metadata.namespace", f"{namespace!r} is not a legal namespace")]
    return []


def check(documents: list[Document]) -> list[tuple[Json, Kind]]:
    """The jobs, with defaults. Raises ManifestError with every problem of every job."""
    jobs, problems = [], []
    for document, kind in jobs_of(documents):
        full, found = admitted(document, kind)
        jobs.append((full, kind))
        problems += found
    if problems:
        raise ManifestError(problems)
    return jobs
