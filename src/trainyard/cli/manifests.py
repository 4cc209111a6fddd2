"""The files a person names on the command line: read, sorted into jobs and the rest, checked as admission would.

Every problem is told at once, with its file and line; nothing is started and nothing is touched before that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from trainyard import kinds
from trainyard.core import Kind
from trainyard.core.names import LABEL_MAX, is_dns_label
from trainyard.kinds.unknown_kinds import explain, kinds_that_run, what_it_is
from trainyard.objects import Json, Problem, name_of
from trainyard.objects.manifest import Document, ManifestError, read
from trainyard.objects.values import replace

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
    """The jobs among the documents. Raises ManifestError for a job that does not run here, or when there is none."""
    found, problems = [], []
    for document in documents:
        kind = kinds.kind_of(document.obj)
        if kind:
            found.append((document, kind))
        elif text := explain(*_type(document), kinds.ALL):
            problems.append(Problem(document.place("kind"), text))
    if not found and not problems and (needed or not documents):
        source = ", ".join(dict.fromkeys(document.source for document in documents)) or "the input"
        present = "; ".join(dict.fromkeys(what_it_is(*_type(document)) for document in documents))
        text = f"holds no job, only {present}" if present else "holds no job"
        problems.append(Problem(source, f"{text}; {kinds_that_run(kinds.ALL)}"))
    if problems:
        raise ManifestError(problems)
    return found


def _type(document: Document) -> tuple[str, str]:
    return str(document.obj["apiVersion"]), str(document.obj["kind"])


def admitted(document: Document, kind: Kind) -> tuple[Json, list[Problem]]:
    """The job with its defaults, and its problems with file and line, as an API server would find them."""
    misspelt, meant = kinds.misspelt(kind, document.obj)
    full, problems = kinds.admit(kind, meant)  # so that a misspelt field does not look like a field that is missing
    problems = [*_name_problems(meant), *misspelt, *problems]
    return full, [placed(document, problem) for problem in problems]


def placed(document: Document, problem: Problem) -> Problem:
    """The problem with the file and line of its field."""
    return replace(problem, path=f"{document.place(problem.path)}: {problem.path}".rstrip(": "))


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
