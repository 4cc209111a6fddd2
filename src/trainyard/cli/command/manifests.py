"""The manifests on the command line: read, split into jobs and other objects, and validated as admission does.

All problems are reported at once, each with its file and line, before any process is started or object written.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from trainyard import kinds
from trainyard.core import Config, Kind, long_variables, parse_job
from trainyard.core.names import MAX_LABEL_LENGTH, is_dns_label
from trainyard.kinds.definitions.unknown_kinds import describe_kind, kinds_that_run, unknown_kind_message
from trainyard.objects import Json, Problem, as_dict, name_of
from trainyard.objects.extended_resources import AMD_GPU, NVIDIA_GPU, is_device_resource, pod_requests
from trainyard.objects.manifest import Document, ManifestError, read
from trainyard.objects.structs import replace
from trainyard.objects.yaml_builder import DOCUMENT

STDIN = "-"
SERVER_FIELDS = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink", "clusterName"),
)
"""Fields of metadata that an API server sets, of this and of earlier versions of Kubernetes."""


class ManifestDocument(Document, frozen=True):
    """A document with the kind of its job, None for another object."""

    kind: Kind | None = None

    @classmethod
    def of(cls, document: Document) -> ManifestDocument:
        """The document with its kind, which is worked out here alone."""
        return cls(**structs.asdict(document), kind=kinds.kind_of(document.obj))


def source_name(path: str) -> str:
    """The name of a file in messages."""
    return "standard input" if path == STDIN else path


def load(paths: Sequence[str]) -> list[ManifestDocument]:
    """The documents of all files, in order. Raises ManifestError with the problems of every file, and when the files
    have no object at all."""
    documents, problems = read_files(paths)
    if problems:
        raise ManifestError(by_line(problems, paths))
    return documents


def read_files(paths: Sequence[str]) -> tuple[list[ManifestDocument], list[Problem]]:
    """The documents of the files that can be read, in order, and the problems of the others."""
    documents: list[ManifestDocument] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            documents += map(ManifestDocument.of, read(read_file(path), source_name(path)))
        except ManifestError as error:
            problems += error.problems
        except OSError as error:
            problems.append(unreadable(path, error))
    if not documents and not problems:  # lists without items
        text = f"there is no job; {kinds_that_run(kinds.all_versions())}"
        problems += [Problem(f"{source_name(path)}:1: items", text) for path in paths]
    return documents, problems


def by_line(problems: Sequence[Problem], files: Sequence[str]) -> list[Problem]:
    """The problems as they are printed: of one file after the other, in the order of the command line, by line. Those
    without a line come last."""

    def place(problem: Problem) -> tuple[int, int]:
        for index, file in enumerate(files):
            if match := re.match(rf"{re.escape(source_name(file))}:(\d+):", problem.path):
                return index, int(match[1])
        return len(files), 0

    return sorted(problems, key=place)


def unreadable(path: str, error: OSError) -> Problem:
    """The problem of a file that cannot be read, in the shape of those with a line: editors and grep read it, too."""
    return Problem(
        f"{source_name(path)}:1: file", f"cannot be read ({error.strerror}); check its name and its permissions"
    )


def read_file(path: str) -> bytes:
    """The content of a file, `-` for standard input. Raises OSError."""
    return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()


def jobs_of(documents: Sequence[ManifestDocument]) -> list[tuple[ManifestDocument, Kind]]:
    """The jobs among the documents. Raises ManifestError for an unknown kind of job, and without a job."""
    if problems := kind_problems(documents, job_needed=True):
        raise ManifestError(problems)
    return [(document, document.kind) for document in documents if document.kind]


def kind_problems(documents: Sequence[ManifestDocument], job_needed: bool) -> list[Problem]:
    """A problem for each job of a kind that does not run here; where a job is needed, also when there is none."""
    problems = [
        with_place(document, Problem("kind", text))
        for document in documents
        if not document.kind and (text := unknown_kind_message(*_type_meta(document), kinds.all_versions()))
    ]
    if job_needed and not problems and not any(document.kind for document in documents):
        problems += _problems_without_job(documents)
    return problems


def duplicates(documents: Sequence[Document]) -> list[Problem]:
    """A problem for each object that is written again under the same kind, namespace and name."""
    first_documents: dict[tuple[str, ...], Document] = {}
    problems: list[Problem] = []
    for document in documents:
        meta = document.obj.get("metadata")
        if not isinstance(meta, dict) or not meta.get("name"):
            continue
        object_key = (document.obj["apiVersion"], document.obj["kind"], str(meta.get("namespace")), str(meta["name"]))
        if object_key in first_documents:
            first = first_documents[object_key].object_location
            text = f"{object_key[1]} {object_key[3]} is written twice (first in {first}); keep one of them"
            problems.append(with_place(document, Problem("metadata.name", text)))
        first_documents.setdefault(object_key, document)
    return problems


def _problems_without_job(documents: Sequence[Document]) -> list[Problem]:
    """A problem for each file without a job, with the kinds that it has, at its first object."""
    files: dict[str, list[Document]] = {}
    for document in documents:
        files.setdefault(document.source, []).append(document)
    problems = []
    for objects in files.values():
        present = "; ".join(dict.fromkeys(describe_kind(*_type_meta(document)) for document in objects))
        text = f"there is no job, only {present}; {kinds_that_run(kinds.all_versions())}"
        problems.append(with_place(objects[0], Problem("kind", text)))
    return problems


def _type_meta(document: Document) -> tuple[str, str]:
    return str(document.obj["apiVersion"]), str(document.obj["kind"])


def admit(document: Document, kind: Kind) -> tuple[Json, list[Problem]]:
    """The job with its defaults, and its problems with file and line, as the API server's admission finds them."""
    misspelt, corrected = kinds.misspelling_problems(kind, document.obj)
    # `corrected`, so that a misspelt field is not reported as a missing one, too.
    defaulted, problems = kinds.admit(kind, corrected)
    problems = [*_name_problems(corrected), *misspelt, *problems]
    return defaulted, [with_place(document, problem) for problem in problems]


def warnings(obj: Json, kind: Kind) -> list[Problem]:
    """Warnings about a job without problems: fields that are probably a mistake, pods that Linux cannot start."""
    return [*kinds.warnings(kind, obj), *long_variables(parse_job(kind, obj, Config()))]


def with_place(document: Document, problem: Problem) -> Problem:
    """The problem with the file and line of its field."""
    return replace(problem, path=f"{document.location(problem.path)}: {problem.path or DOCUMENT}")


def server_fields_note(obj: Json) -> list[Problem]:
    """One note about the fields with a value that only an API server sets, as `kubectl get -o yaml` prints them. One
    that creates an object refuses its resourceVersion, and ignores the others."""
    meta = as_dict(obj.get("metadata"))
    names = [*(name for name in SERVER_FIELDS if meta.get(name)), *(["status"] if obj.get("status") else [])]
    verb = "is" if len(names) == 1 else "are"
    text = f"{', '.join(names)} {verb} set by the API server, and left out when the object is created"
    return [Problem("status" if names == ["status"] else "metadata", text)] if names else []


def drop_server_fields(obj: Json) -> None:
    """Remove the fields that only an API server sets, in place."""
    obj.pop("status", None)
    meta = as_dict(obj.get("metadata"))
    for name in SERVER_FIELDS:
        meta.pop(name, None)


def remark(document: Document, level: str, problem: Problem) -> str:
    """A line about an accepted field: `file:line: LEVEL: field: text`; `level` is `warning` or `note`."""
    return f"{document.location(problem.path)}: {level}: {problem}"


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


def local_notes(kind: Kind, job: Json) -> list[Problem]:
    """What of a valid job has no effect on this machine, or may surprise there."""
    notes = [*kinds.notes(kind, job, may_give_out)]
    resource = next((name for name in (NVIDIA_GPU, AMD_GPU) if may_give_out(name)), "")
    roles = parse_job(kind, job, Config()).roles if resource else ()
    requested = {name for role in roles for name in pod_requests(role.template or {})}
    if resource and not any(map(is_device_resource, requested)):
        text = "it asks for no GPU, so its programs see none of this machine's; add --gpus 1 to `run SCRIPT`, or"
        text += f" write into the pod template of a role: resources: {{limits: {{{resource}: 1}}}}"
        notes.append(Problem("spec", text))
    return notes


def may_give_out(resource: str) -> bool:
    """Whether this machine has a driver for the devices of the resource, so that its node may give some to pods."""
    from trainyard.node.devices import drivers

    return drivers.may_give_out(resource, os.environ)
