"""Jobs by the names on the command line (`NAME` or `KIND/NAME`), and the objects that belong to a job.

Rules:
- If jobs of several kinds have the name, none is chosen: the error lists them.
- If no job has the name, the error suggests similar names.
- This module treats no kind specially: the kinds come from `kinds.all_names`. A kind is imported when there is a job of
  it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from trainyard import kinds
from trainyard.app.background.cluster_folders import BackgroundError
from trainyard.app.evidence.related_objects import list_or_none
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, JobNotFound
from trainyard.cli.command.codes import INVALID, UNAVAILABLE
from trainyard.client import ApiError, NotFound
from trainyard.core import Kind
from trainyard.kinds import KindNames
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD


class JobInfo(msgspec.Struct, frozen=True):
    """A job and its kind. A kind that is served under two API groups has a Kind for each group."""

    kind: Kind
    job: Json

    @property
    def gvk(self) -> GVK:
        """The GVK of the job."""
        return self.kind.gvk

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return namespace_of(self.job)

    @property
    def name(self) -> str:
        """The name of the job."""
        return name_of(self.job)

    @property
    def reference(self) -> str:
        """KIND/NAME as on the command line: tfjob/a."""
        return f"{self.kind.api.singular}/{self.name}"


def parse_job_reference(text: str) -> tuple[tuple[KindNames, ...], str]:
    """Split `KIND/NAME` or `NAME` into the possible kinds and the name. Raises CommandError for an unknown kind."""
    kind_name, separator, name = text.partition("/")
    if not separator:
        return kinds.all_names(), text
    named_kinds = kinds.matching_names(kind_name)
    if not named_kinds or not name:
        raise CommandError(f"{text}: {kind_name!r} is not a kind of job; write one of: {kind_names()}", INVALID)
    return named_kinds, name


def kind_names() -> str:
    """The kinds as a user may write them, for messages."""
    return ", ".join(dict.fromkeys(names.singular for names in kinds.all_names()))


async def get_job(context: ClusterContext, text: str) -> JobInfo:
    """The job with that name. Raises JobNotFound when there is none, CommandError when there are several."""
    candidate_kinds, name = parse_job_reference(text)
    infos = await _get_jobs(context, candidate_kinds, name)
    if len(infos) > 1:
        references = [info.reference for info in infos]
        if len(set(references)) < len(references):  # the same kind in two groups
            references = [f"{info.gvk.plural}.{info.gvk.group}/{info.name}" for info in infos]
        raise CommandError(f"{name} is the name of {len(infos)} jobs; write one of: {', '.join(references)}", INVALID)
    if not infos:
        raise JobNotFound(f"{await _no_job_text(context, candidate_kinds, name)}{_history_hint(context, text)}")
    return infos[0]


async def get_all_jobs(context: ClusterContext, texts: Iterable[str]) -> list[JobInfo]:
    """The jobs with these names, each once. Raises JobNotFound with a line for each name that no job has."""
    infos, missing = list[JobInfo](), list[JobNotFound]()
    for text in dict.fromkeys(texts):
        try:
            infos.append(await get_job(context, text))
        except JobNotFound as error:
            missing.append(error)
    if missing:
        raise JobNotFound("\n".join(map(str, missing)))
    return list({uid_of(info.job): info for info in infos}.values())


def _history_hint(context: ClusterContext, text: str) -> str:
    """The end of an error message for a job that is not in the cluster but in the history; "" if in neither."""
    from trainyard.app.history import records as history

    try:
        records = history.find_records(history.history_folder(), text, context.namespace)
    except BackgroundError:
        return ""
    return f"; one of that name is in the history: trainyard history {text}" if records else ""


async def _get_jobs(context: ClusterContext, candidate_kinds: Iterable[KindNames], name: str) -> list[JobInfo]:
    jobs = await asyncio.gather(*(_get_or_none(context, kind.gvk, name) for kind in candidate_kinds))
    return job_infos(job for job in jobs if job is not None)


def job_infos(jobs: Iterable[Json]) -> list[JobInfo]:
    """These jobs with their kinds; imports the kinds."""
    return [JobInfo(kind, job) for job in jobs if (kind := kinds.kind_of(job))]


async def _get_or_none(context: ClusterContext, gvk: GVK, name: str) -> Json | None:
    try:
        job = await context.api.get(gvk, context.namespace, name)
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, **job}
    except NotFound:
        return None


async def _no_job_text(context: ClusterContext, candidate_kinds: Sequence[KindNames], name: str) -> str:
    """The error message for a name that no job has, with similar names or the job's other namespace."""
    from difflib import get_close_matches

    infos = await list_jobs(context, candidate_kinds)
    names = [info.name for info in infos]
    near = get_close_matches(name, names, 3, 0.5)
    text = f"there is no job {name} in namespace {context.namespace}"
    if near:
        return f"{text}; did you mean {' or '.join(info.reference for info in infos if info.name in near)}?"
    try:
        elsewhere = [
            info
            for info in await list_jobs(ClusterContext(context.api, "", context.access), candidate_kinds)
            if info.name == name
        ]
    except ApiError:
        elsewhere = []
    if elsewhere:
        reference, namespace = elsewhere[0].reference, elsewhere[0].namespace
        return f"{text}, but there is {reference} in {namespace}: write -n {namespace}"
    if names:
        more = ", ..." if len(names) > 5 else ""
        return f"{text}; there are: {', '.join(sorted(info.reference for info in infos)[:5])}{more}"
    names_of_kinds = list(dict.fromkeys(kind.gvk.kind for kind in candidate_kinds))
    return f"{text}; the namespace has no {'jobs' if len(names_of_kinds) > 1 else names_of_kinds[0]}"


async def list_jobs(context: ClusterContext, candidate_kinds: Iterable[KindNames] | None = None) -> list[JobInfo]:
    """All jobs of these kinds (None: of all) in the namespace ("": in all namespaces), sorted by namespace, then oldest
    first.

    Raises CommandError when the cluster serves none of the kinds."""
    candidate_kinds = kinds.all_names() if candidate_kinds is None else tuple(candidate_kinds)
    pages = await asyncio.gather(*(list_or_none(context.api, kind.gvk, context.namespace) for kind in candidate_kinds))
    if candidate_kinds and all(page is None for page in pages):
        names = ", ".join(dict.fromkeys(kind.gvk.kind for kind in candidate_kinds))
        text = f"the cluster does not serve {names}; install them: trainyard manifests | kubectl apply -f -"
        raise CommandError(f"{text} (kubeconfig: {context.access.source})", UNAVAILABLE)
    infos = job_infos(job for page in pages for job in page or ())
    return sorted(
        infos, key=lambda info: (info.namespace, str(info.job["metadata"].get("creationTimestamp")), info.name)
    )


async def list_pods(context: ClusterContext, job: Json) -> list[Json]:
    """The pods of the job, by its owner label, those of ended attempts included."""
    return await list_or_none(context.api, POD, namespace_of(job), f"{OWNER}={uid_of(job)}") or []
