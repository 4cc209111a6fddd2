"""The one route that changes a job: suspend, resume, scale, delete, as the commands do it (app/job_actions.py).

The page names the job's uid and the generation of the spec that it showed. The job is read again and compared, and the
write has the resourceVersion of what was compared as a precondition: a job that was replaced or edited meanwhile is not
changed. The resourceVersion of what the page showed would not do as one: it grows with each change of a replica, so
that a job that starts a thousand could never be suspended.
"""

from __future__ import annotations

import msgspec

from trainyard.app import job_actions
from trainyard.app.job_actions import ActionRefused
from trainyard.client import ApiClient, ApiError, Conflict, NotFound
from trainyard.core import Kind
from trainyard.kinds import kind_of
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.page.observation import Observation
from trainyard.page.responses import RequestRefused

MAX_ATTEMPTS = 10  # of a change while the status of the job changes


class ActionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request. `replicas` is for `scale` alone."""

    verb: str
    uid: str
    generation: int
    replicas: int | None = None


class JobActions:
    """Changes jobs of the cluster that `observation` watches; `api` and `observation` are None for a history."""

    def __init__(self, api: ApiClient | None, observation: Observation | None) -> None:
        self._api, self._observation = api, observation

    async def act(self, body: Json) -> str:
        """Do what the body of a request asks for. Returns a sentence for the person; raises RequestRefused."""
        try:
            request = msgspec.convert(body, ActionRequest)
        except msgspec.ValidationError as error:
            raise RequestRefused(400, f"this is no action: {error}") from None
        if self._api is None or self._observation is None:
            raise RequestRefused(409, "this is a history: no job of it can be changed")
        async with self._observation.looking():
            job = self._observation.view.jobs.get(request.uid)
        kind = kind_of(job) if job else None
        if job is None or kind is None:
            raise RequestRefused(409, "there is no such job any more; nothing was changed")
        try:
            return await _act(self._api, kind, job, request)
        except ActionRefused as error:
            raise RequestRefused(409, str(error)) from None
        except ApiError as error:
            # 401 would tell the page that its own session is over; 0 is no answer at all.
            raise RequestRefused(error.code if error.code not in (0, 401) else 502, error.message) from None


async def _act(api: ApiClient, kind: Kind, job: Json, request: ActionRequest) -> str:
    """Compare and change, again when the status of the job has changed between the two."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            read = await api.get(kind.gvk, namespace_of(job), name_of(job))
            current = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, **read}
        except NotFound:
            current = {"metadata": {}}
        _check_unchanged(job, current, request)
        try:
            return await _change(api, kind.version_of(current), current, request)
        except Conflict:
            if attempt == MAX_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _check_unchanged(job: Json, current: Json, request: ActionRequest) -> None:
    """Raises ActionRefused unless `current` is the job whose spec the page has shown."""
    reference = f"{job['kind']} {namespace_of(job)}/{name_of(job)}"
    if uid_of(current) != request.uid:
        successor = ", and another one has its name" if uid_of(current) else ""
        raise ActionRefused(f"{reference} was deleted meanwhile{successor}; nothing was changed")
    if job_actions.generation_of(current) != request.generation:
        raise ActionRefused(f"{reference} was changed meanwhile: look at it again; nothing was changed")


async def _change(api: ApiClient, kind: Kind, job: Json, request: ActionRequest) -> str:
    version = job["metadata"]["resourceVersion"]
    if request.verb in ("suspend", "resume"):
        return await job_actions.set_suspend(api, kind, job, request.verb == "suspend", version)
    if request.verb == "scale" and request.replicas is not None and request.replicas >= 0:
        return await job_actions.scale(api, kind, job, request.replicas, resource_version=version)
    if request.verb == "delete":
        return await job_actions.delete_job(api, kind, job, version)
    raise RequestRefused(400, f"{request.verb} is no action: suspend, resume, delete, and scale with replicas are")
