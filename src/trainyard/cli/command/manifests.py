"""The manifests on the command line: read, split into jobs and other objects, and validated as admission does.

All problems are reported at once, each with its file and line, before any process is started or object written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from trainyard import kinds
from trainyard.core import Kind
from trainyard.core.names import MAX_LABEL_LENGTH, is_dns_label
from trainyard.kinds.definitions.unknown_kinds import describe_kind, kinds_that_run, unknown_kind_message
from trainyard.objects import Json, Problem, name_of
from trainyard.objects.manifest import Document, ManifestError, read
from trainyard.objects.structs import replace

STDIN = "-"


def load(paths: Iterable[str]) -> list[Document]:
    """The documents of all files, in order. Raises ManifestError with the problems of every file."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            documents += read(read_file(path), "standard input" if path == STDIN else path)
        except ManifestError as error:
            problems += error.problems
        except OSError as error:
            problems.append(Problem(path, f"cannot be read ({error.strerror}); name a file that can"))
    if problems:
        raise ManifestError(problems)
    return documents


def read_file(path: str) -> bytes:
    """The content of a file, `-` for standard input. Raises OSError."""
    return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()


def jobs_of(documents: list[Document], needed: bool = True) -> list[tuple[Document, Kind]]:
    """The jobs among the documents. Raises ManifestError for a job that does not run here, or when there is none."""
    jobs, problems = [], []
    for document in documents:
        kind = kinds.kind_of(document.obj)
        if kind:
            jobs.append((document, kind))
        elif text := unknown_kind_message(*_type_meta(document), kinds.all_versions()):
            problems.append(Problem(document.location("kind"), text))
    if not jobs and not problems and (needed or not documents):
        source = ", ".join(dict.fromkeys(document.source for document in documents)) or "the input"
        present = "; ".join(dict.fromkeys(describe_kind(*_type_meta(document)) for document in documents))
        text = f"holds no job, only {present}" if present else "holds no job"
        problems.append(Problem(source, f"{text}; {kinds_that_run(kinds.all_versions())}"))
    if problems:
        raise ManifestError(problems)
    return jobs


def _type_meta(document: Document) -> tuple[str, str]:
    return str(document.obj["apiVersion"]), str(document.obj["kind"])


def admit(document: Document, kind: Kind) -> tuple[Json, list[Problem]]:
    """The job with its defaults, and its problems with file and line, as the API server's admission finds them."""
    misspelt, corrected = kinds.misspelling_problems(kind, document.obj)
    # `corrected`, so that a misspelt field is not reported as a missing one, too.
    defaulted, problems = kinds.admit(kind, corrected)
    problems = [*_name_problems(corrected), *misspelt, *problems]
    return defaulted, [with_place(document, problem) for problem in problems]


def with_place(document: Document, problem: Problem) -> Problem:
    """The problem with the file and line of its field."""
    return replace(problem, path=f"{document.location(problem.path)}: {problem.path}".rstrip(": "))


def _name_problems(obj: Json) -> list[Problem]:
    meta = obj.get("metadata")
    name = name_of(obj)
    if not isinstance(meta, dict) or not (name or meta.get("generateName")):
        return [Problem("metadata.name", "the job has no name; write one")]
    # The length has a rule of its own.
    if name and not all(is_dns_label(part[:MAX_LABEL_LENGTH]) for part in name.split(".")):
        text = f"{name!r} is not a legal name: write lower case letters, digits and '-', and begin and end with no '-'"
        return [Problem("metadata.name", text)]
    namespace = meta.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and is_dns_label(namespace)):
        return [Problem("metadata.namespace", f"{namespace!r} is not a legal namespace")]
    return []


def load_jobs(documents: list[Document]) -> list[tuple[Json, Kind]]:
    """The jobs, with defaults. Raises ManifestError with every problem of every job."""
    jobs, problems = [], []
    for document, kind in jobs_of(documents):
        defaulted, job_problems = admit(document, kind)
        jobs.append((defaulted, kind))
        problems += job_problems
    if problems:
        raise ManifestError(problems)
    return jobs
