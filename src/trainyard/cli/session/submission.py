"""The objects for `run` and `submit`: jobs, and the objects that they need, read and validated before any is created.

Rules:
- All problems that can be found offline are reported here, all at once, each with file, line, field and fix.
- The objects are sent unchanged, except that fields which only an API server sets are left out, a missing namespace is
  set and, for a local cluster, the working directory is added (working_directory.py).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from trainyard import kinds
from trainyard.cli.command import manifests
from trainyard.cli.scripts import local_image
from trainyard.cli.session import working_directory
from trainyard.core import Config, Kind, long_variables, parse_job
from trainyard.core.names import is_dns_label
from trainyard.core.policies.managed_by import is_managed_here
from trainyard.kinds.definitions.unknown_kinds import describe_kind
from trainyard.objects import GVK, Json, Problem, as_dict, name_of, namespace_of
from trainyard.objects.manifest import Document, ManifestError
from trainyard.objects.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
)
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.client import ApiClient, ApiError

# The other kinds that a file may contain, in the order in which their objects are created.
OTHER_KINDS = (
    NAMESPACE,
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    SECRET,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    POD,
    JOB,
    DEPLOYMENT,
    STATEFUL_SET,
)


class Submission(msgspec.Struct):
    """The objects to create, in this order: `other_objects`, then `jobs`. `warnings` are printed, and `notes`:
    fields that are left out, and, if the cluster is local, those without an effect on one machine."""

    other_objects: list[tuple[GVK, Json]] = msgspec.field(default_factory=list)
    jobs: list[tuple[Kind, Json]] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    documents: Sequence[Document] = msgspec.field(default_factory=list)  # of the objects, for messages

    def messages(self) -> list[str]:
        """The warnings and notes, as they are printed before the objects are created."""
        return [*self.warnings, *self.notes]

    def check_network(self, network: str) -> None:
        """Raises ManifestError for jobs whose pods need a network of their own where the node's is *shared*."""
        if network == "shared":
            problems = [
                self.with_place(
                    obj, Problem("kind", f"{kind.gvk.kind} cannot run in the network shared: {kind.api.own_network}")
                )
                for kind, obj in self.jobs
                if kind.api.own_network
            ]
            if problems:
                raise ManifestError(problems)

    def with_place(self, obj: Json, problem: Problem) -> Problem:
        """The problem of one of the objects with the file and line of its field; that of a job made of a script, which
        has no line, with the name of the job."""
        document = next((document for document in self.documents if document.obj is obj and document.lines), None)
        if document is None:
            return replace(problem, path=f"{obj['kind']} {name_of(obj)}: {problem.path}".rstrip(": "))
        return manifests.with_place(document, problem)

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of all objects, each once, in file order."""
        namespaces = [obj["metadata"].get("namespace", "") for _, obj in [*self.other_objects, *self.jobs]]
        return list(dict.fromkeys(filter(None, namespaces)))


def read(
    files: Sequence[str],
    namespace: str = "",
    default_namespace: str = "default",
    private: bool = True,
    generated: Sequence[Document] = (),
    local: bool = True,
) -> Submission:
    """Read the objects of the files, and those `generated` from scripts. Raises ManifestError.

    namespace: of all objects; "" means the namespace in the file, or `default_namespace` if there is none.
    private: the cluster has no other operator and no other jobs, so a job for another operator is refused, and there
    must be at least one job.
    local: the programs run on this machine, in the folder of their manifest.
    """
    if namespace and not is_dns_label(namespace):
        raise ManifestError(
            [Problem("--namespace", f"{namespace!r} is not a legal namespace; write a lower-case name")]
        )
    read_documents, problems = manifests.read_files(files)
    documents = [*read_documents, *map(manifests.ManifestDocument.of, generated)]
    problems += manifests.kind_problems(documents, job_needed=private and not problems)
    problems += manifests.duplicates(documents)
    reported = {problem.path for problem in problems}
    submission = Submission(documents=documents)
    for document in documents:
        submission.notes += [
            manifests.remark(document, "note", note) for note in manifests.server_fields_note(document.obj)
        ]
        manifests.drop_server_fields(document.obj)
        if document.kind:
            problems += _add_job(document, document.kind, submission, local) or (
                _managed_by_problems(document, document.kind) if private else []
            )
        else:
            problems += [item for item in _add_other(document, submission) if item.path not in reported]
        problems += _set_namespace(document, namespace, default_namespace)
        if local:
            working_directory.annotate(document, is_job=document.kind is not None)
    if problems:
        raise ManifestError(manifests.by_line(problems, files))
    order = {gvk: place for place, gvk in enumerate(OTHER_KINDS)}
    submission.other_objects.sort(key=lambda item: order.get(item[0], len(order)))
    return submission


async def create_objects(
    api: ApiClient, submission: Submission, created: Callable[[GVK, Json], None] = lambda gvk, obj: None
) -> list[tuple[Kind, Json]]:
    """Create all objects, jobs last; `created` is called with each as stored. An object that exists already is kept,
    unless it is a job. Returns the jobs as the API server stored them.

    Raises ManifestError for an object that the API server refuses, and for a ConfigMap or a Secret that exists with
    other data; AlreadyExists for a job."""
    from trainyard.client import AlreadyExists, Forbidden

    for gvk, obj in submission.other_objects:
        try:
            created(gvk, await _create_object(api, gvk, obj, submission))
        except AlreadyExists:
            if gvk in (CONFIG_MAP, SECRET):
                try:
                    existing = await api.get(gvk, namespace_of(obj), name_of(obj))
                except Forbidden:  # who may create Secrets may often not read them
                    continue
                problems = [submission.with_place(obj, problem) for problem in _changed_data(gvk, obj, existing)]
                if problems:
                    raise ManifestError(problems) from None
    jobs: list[tuple[Kind, Json]] = []
    for kind, obj in submission.jobs:
        stored = await _create_object(api, kind.gvk, obj, submission)
        jobs.append((kind, stored))
        created(kind.gvk, stored)
    return jobs


async def _create_object(api: ApiClient, gvk: GVK, obj: Json, submission: Submission) -> Json:
    from trainyard.client import AlreadyExists, ApiError

    try:
        stored = await api.create(gvk, "" if gvk == NAMESPACE else namespace_of(obj), obj)
    except AlreadyExists:
        raise
    except ApiError as error:
        if error.code in (400, 403, 404, 422):
            problems = [submission.with_place(obj, problem) for problem in _refusal_problems(gvk, obj, error)]
            raise ManifestError(problems) from None
        raise
    return {"apiVersion": gvk.api_version, "kind": gvk.kind} | stored


def _changed_data(gvk: GVK, obj: Json, existing: Json) -> list[Problem]:
    """A problem for each key of a ConfigMap or Secret that the cluster's object has with another value, or has not:
    the pods would get that."""
    stored, written = _values(gvk, existing), _values(gvk, obj)
    fix = f"delete it first (kubectl delete {gvk.kind.lower()} {name_of(obj)} -n {namespace_of(obj)}), or rename it"
    problems = []
    for key, (field, value) in written.items():
        if key not in stored or stored[key][1] != value:
            text = "with another value" if key in stored else "without this key"
            text = f"the {gvk.kind} {name_of(obj)} exists already {text}, and the pods would get that; {fix}"
            problems.append(Problem(f"{field}.{key}", text))
    return problems


def _values(gvk: GVK, obj: Json) -> dict[str, tuple[str, bytes]]:
    """Key -> (field, value) of a ConfigMap or Secret. stringData takes precedence, as in an API server."""
    encoded = ("data",) if gvk == SECRET else ("binaryData",)
    values: dict[str, tuple[str, bytes]] = {}
    for field in ("data", "binaryData", "stringData"):
        for key, value in as_dict(obj.get(field)).items():
            text = "" if value is None else str(value)
            values[key] = field, _decoded(text) if field in encoded else text.encode()
    return values


def _decoded(text: str) -> bytes:
    """The bytes of a base64 text; of one that cannot be decoded, and equals no stored value, the text itself."""
    try:
        return b64decode(text)
    except ValueError:
        return text.encode()


def _refusal_problems(gvk: GVK, obj: Json, error: ApiError) -> list[Problem]:
    """A problem for each of the causes in the Status details, with its field; without causes, the Status message."""
    causes = [cause for cause in error.details.get("causes") or () if isinstance(cause, dict)]
    object_text = f"{gvk.kind} {name_of(obj)}"
    if error.code == 404 and f'namespaces "{namespace_of(obj)}" not found' in error.message:
        fix = f"make it with `kubectl create namespace {namespace_of(obj)}`, or name one that is there"
        return [Problem("metadata.namespace", f"{error.message}; {fix}")]
    if error.code == 404 and not causes and kinds.kind_of(obj):
        text = f"the cluster does not serve {gvk.kind} ({gvk.api_version}); add it to the kinds of Trainyard there: "
        return [Problem("kind", f"{text}`kinds` of the chart, or --kinds of trainyard manifests")]
    if not causes:
        return [Problem(object_text, error.message)]
    return [Problem(str(cause.get("field") or object_text), str(cause.get("message"))) for cause in causes]


def _add_job(document: Document, kind: Kind, submission: Submission, local: bool) -> list[Problem]:
    """Add a job with its warnings and notes. Returns its problems."""
    submission.jobs.append((kind, document.obj))
    problems = manifests.admit(document, kind)[1]
    too_long = [] if problems else long_variables(parse_job(kind, document.obj, Config()))
    if local:  # on another machine the limit of a variable may be larger
        problems += [manifests.with_place(document, problem) for problem in too_long]
    warnings = [*kinds.warnings(kind, document.obj), *(() if local else too_long)]
    submission.warnings += [manifests.remark(document, "warning", problem) for problem in warnings]
    if not local:
        texts = local_image.warnings(document.obj)
        submission.warnings += [f"{document.object_location}: warning: {text}" for text in texts]
    notes = manifests.local_notes(kind, document.obj) if local and not problems else ()
    submission.notes += [manifests.remark(document, "note", problem) for problem in notes]
    return problems


def _managed_by_problems(document: Document, kind: Kind) -> list[Problem]:
    """A problem if managedBy names another operator: a private cluster has none, and the job would never run."""
    if is_managed_here(job := parse_job(kind, document.obj, Config())):
        return []
    text = f"{job.policy.managed_by!r} does not run here; leave the field out, or write {kind.api.managers[0]}"
    return [manifests.with_place(document, Problem(".".join(kind.api.policy_path("managedBy")), text))]


def _is_built_in(obj: Json) -> bool:
    """Whether the object is of one of OTHER_KINDS."""
    return any(gvk.kind == obj["kind"] for gvk in OTHER_KINDS)


def _template_kinds() -> dict[GVK, bool]:
    """The kinds of objects that have templates of jobs (Kind.template_source), and whether they are in namespaces."""
    return {item.gvk: item.namespaced for kind in kinds.KINDS for item in kinds.template_kinds(kind)}


def _is_cluster_scoped(obj: Json) -> bool:
    if _is_built_in(obj) or kinds.kind_of(obj):
        return bool(obj["kind"] == NAMESPACE.kind)
    return any(gvk.kind == obj["kind"] and not namespaced for gvk, namespaced in _template_kinds().items())


def _add_other(document: Document, submission: Submission) -> list[Problem]:
    obj = document.obj
    for gvk in OTHER_KINDS if _is_built_in(obj) else _template_kinds():
        if gvk.kind == obj["kind"]:
            if gvk.api_version != obj["apiVersion"]:
                text = f"{obj['apiVersion']} is not known for a {gvk.kind}; write {gvk.api_version}"
                return [manifests.with_place(document, Problem("apiVersion", text))]
            submission.other_objects.append((gvk, obj))
            if isinstance(obj.get("metadata"), dict) and name_of(obj):
                return []
            return [manifests.with_place(document, Problem("metadata.name", f"the {gvk.kind} has no name; write one"))]
    known_kinds = ", ".join(gvk.kind for gvk in (*OTHER_KINDS, *_template_kinds()))
    type_text = describe_kind(str(obj["apiVersion"]), str(obj["kind"]))
    text = f"{type_text} is not taken here; beside jobs there may be: {known_kinds}"
    return [manifests.with_place(document, Problem("kind", text))]


def _set_namespace(document: Document, namespace: str, otherwise: str) -> list[Problem]:
    obj = document.obj
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or _is_cluster_scoped(obj):
        return []
    current = meta.get("namespace")
    if namespace and current and current != namespace:
        text = f"is {current}, but --namespace says {namespace}; make them agree"
        return [manifests.with_place(document, Problem("metadata.namespace", text))]
    meta["namespace"] = current or namespace or otherwise
    return []
