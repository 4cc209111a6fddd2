"""Bad jobs that a real API server has stored: what an older definition takes, and what no definition can say.

Rules:
- A job that cannot be set up is Failed, with a problem that `lint` names, in its words, and nothing of it is made.
- Nothing loops: no pass and no request follows, neither by itself nor when ten minutes are over.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from tests.control_plane.real_operator import Served, bare, children, has_condition, serving, together, until_condition
from tests.kinds import test_admission, test_bad_input
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace
from tests.support.samples import KINDS_WITH_TEMPLATES
from tests.support.watched_objects import until_object, until_objects
from trainyard import kinds
from trainyard.client import ApiClient, Conflict
from trainyard.core import Kind
from trainyard.objects import Json, encode, find_condition, name_of, uid_of
from trainyard.objects.resources import POD

pytestmark = pytest.mark.cluster
REAL_SECONDS = 10.0
TEN_MINUTES = 600.0
UNSTORABLE = ("MxJob, a name in capitals",)
"""A name of no object at all: a real API server takes it under no definition."""

THEIRS = ("TfJob, managedBy too long",)
"""For that name, whatever it is, the job is somebody else's, and left alone (S6)."""


BAD: list[tuple[str, Kind, Json, str]] = [(str(row.id), *row.values[:3]) for row in test_bad_input.ROWS]
NAMES = frozenset(job["metadata"]["name"] for _, _, job, path in BAD if path == "metadata.name")
"""Names cannot be edited."""


@dataclass(frozen=True)
class Row:
    title: str
    kind: Kind
    job: Json

    @property
    def name(self) -> str:
        return name_of(self.job)


def rows() -> Iterator[Row]:
    """Every bad job of the tables, with a name of its own where the name is not what is bad."""
    bad_jobs = list(BAD)
    for title, spec, path, _ in test_admission.BAD:
        job = spec if "metadata" in spec else test_admission.job(spec)
        bad_jobs.append((f"TfJob, {title}", kinds.TFJOB, job, path))
    for number, (title, kind, job, path) in enumerate(bad_jobs):
        name = name_of(job) if path == "metadata.name" else f"bad-{number}"
        meta = {"metadata": {"name": name}}
        yield Row(
            title, kind, {**copy.deepcopy(job), "apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, **meta}
        )


ROWS = [row for row in rows() if row.title not in UNSTORABLE]


@pytest.fixture(scope="module")
def older() -> Iterator[ControlPlane]:
    """A control plane whose definitions take anything, as those of the old operators did."""
    with ControlPlane() as plane:
        items = []
        for kind in kinds.ALL:
            items.append(definition := kinds.crd(kind))
            anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            for version in definition["spec"]["versions"]:
                version["schema"]["openAPIV3Schema"] = anything
                version["subresources"].pop("scale", None)  # it has a look of its own at replicas
        whole = encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()
        plane.kubectl("create", "-f", "-", stdin=whole)
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        create_namespace(plane, "bad")
        yield plane


async def assert_nothing_loops(served: Served) -> None:
    """No pass by itself, and no request even when every job is looked at ten minutes later."""
    mark, before = await served.mark(), served.passes()
    await asyncio.sleep(REAL_SECONDS)
    assert served.passes() == before
    served.clock.shift += TEN_MINUTES
    await served.looked()
    assert [(request.verb, request.resource, request.name) for request in await served.requests(mark)] == []


async def test_every_stored_invalid_job_fails_with_the_message_of_lint_without_a_loop(older: ControlPlane) -> None:
    async with older.api() as api, serving(older, "bad") as served:
        await together([partial(api.create, row.kind.gvk, "bad", row.job) for row in ROWS])
        await served.quiet()
        wrong = []
        for row in ROWS:
            job = await api.get(row.kind.gvk, "bad", row.name)
            wrong += [text] if (text := await amiss(api, row, job)) else []
        assert wrong == [], "\n".join(wrong)
        writes = [
            request for request in served.sent if request.method != "GET" and not request.path.endswith("/events")
        ]
        assert len(writes) == len(ROWS) - len(THEIRS)  # its status, once
        await assert_nothing_loops(served)


async def amiss(api: ApiClient, row: Row, job: Json) -> str:
    """What is wrong with how this bad job ended, "" when nothing is."""
    status = job.get("status") or {}
    if row.title in THEIRS:
        return f"{row.title}: has a status" if status else ""
    failed = find_condition(status.get("conditions"), "Failed")
    if failed is None or failed["status"] != "True":
        return f"{row.title}: has not failed: {status}"
    stored = {**row.job, "spec": job["spec"]}  # the server sorts names and has no whole numbers beyond 64 bits
    problems = {f"{problem.text} ({place(problem.path)})" for problem in kinds.admit(row.kind, stored)[1]}
    if failed["message"] not in problems:
        return f"{row.title}: says {failed['message']!r}, and lint says {problems}"
    if failed["reason"] != "InvalidSpec" or status.get("state") != "Failed":
        return f"{row.title}: {failed['reason']}, state {status.get('state')}"
    job_children = await children(api, row.kind, "bad", uid_of(job))
    return f"{row.title}: has children {[name_of(child) for child in job_children]}" if job_children else ""


def place(path: str) -> str:
    """The operator looks at the spec alone, so what is nested too deep is nested so there."""
    return "spec" if path == "(the whole object)" else path


CONTAINERS = {
    "a volume that is not there": ({"volumeMounts": [{"name": "not-there", "mountPath": "/data"}]}, "not-there"),
    "no quantity": ({"resources": {"limits": {"cpu": "lots"}}}, "quantit"),
    "a policy that is none": ({"imagePullPolicy": "Sometimes"}, "imagePullPolicy"),
}
"""What no definition says of a container, and a word of what the API server says. `lint` knows them all."""


def unrunnable() -> Iterator[tuple[Row, str]]:
    """For each carrier a job with such a container."""
    for title, (fields, phase) in CONTAINERS.items():
        for place, kind, path in (
            ("master", kinds.TFJOB, ("replicaSpecs", 0)),
            ("server", kinds.MXJOB, ("replicaSpecs", 1)),
            ("master", kinds.CHAINERJOB, ("master",)),
            ("set", kinds.CHAINERJOB, ("workerSets", "ws0")),
            ("worker", kinds.ELASTICJOB, ("replicaSpecs", "Worker")),
        ):
            name = f"{kind.api.singular}-{place}-{list(CONTAINERS).index(title)}"
            job = bare(kind, name)
            part = job["spec"]
            for step in path:
                part = part[step]
            part["template"]["spec"]["containers"][0] |= fields
            yield Row(f"{kind.gvk.kind}, {place}, {title}", kind, job), phase


async def test_jobs_that_only_the_api_server_rejects_fail_with_its_message_without_a_loop(
    older: ControlPlane,
) -> None:
    rows = list(unrunnable())
    await asyncio.to_thread(create_namespace, older, "refused")
    async with older.api() as api, serving(older, "refused") as served:
        await together([partial(api.create, row.kind.gvk, "refused", row.job) for row, _ in rows])
        wrong = []
        for row, phase in rows:
            assert len(kinds.admit(row.kind, row.job)[1]) == 1, row.title
            job = await until_condition(api, row.kind, "refused", row.name, "Failed")
            failed = find_condition(job["status"]["conditions"], "Failed") or {}
            message = failed["reason"] == "InvalidChild" and "the API server refused" in failed["message"]
            wrong += [] if message and phase in failed["message"] else [f"{row.title}: {failed}"]
        assert wrong == [], "\n".join(wrong)
        await until_objects(api, POD, "refused", lambda pods: not pods, "no pod is left")  # what was taken is stopped
        await served.quiet()
        await assert_nothing_loops(served)


async def edited(api: ApiClient, kind: Kind, spec: object) -> Json:
    """The job `good` with that spec, and its conditions once the operator has observed it."""
    while True:
        job = await api.get(kind.gvk, "edits", good_name(kind))
        try:
            job = await api.replace(kind.gvk, "edits", good_name(kind), {**job, "spec": spec})
            break
        except Conflict:
            continue
    wanted = job["metadata"]["generation"]
    return await until_object(
        api,
        kind.gvk,
        "edits",
        good_name(kind),
        lambda job: job["status"].get("observedGeneration", 0) >= wanted,
        f"generation {wanted} of the job is observed",
    )


def good_name(kind: Kind) -> str:
    """Of a job of that kind. Jobs of one name may have children of one name, if their kinds differ."""
    return f"good-{kind.gvk.kind.lower()}"


async def through_all_bad_edits(api: ApiClient, kind: Kind) -> list[str]:
    """What is wrong with how a started job takes them, one after the other."""
    good = await until_condition(api, kind, "edits", good_name(kind), "Created")
    before = await uids(api, kind, good)
    wrong = []
    for row in ROWS:
        if row.kind.gvk != kind.gvk or row.title in THEIRS or row.name in NAMES | {"x" * 64}:
            continue
        job = await edited(api, kind, row.job["spec"])
        condition = find_condition(job["status"]["conditions"], "SpecChangeIgnored") or {}
        wrong += (
            []
            if condition.get("status") == "True" and not has_condition("Failed", job)
            else [f"{row.title}: {job['status']}"]
        )
    job = await edited(api, kind, good["spec"])
    wrong += ["it is not restored"] if has_condition("SpecChangeIgnored", job) else []
    return wrong + ([] if await uids(api, kind, good) == before else [f"{kind.gvk.kind}: the children have changed"])


async def uids(api: ApiClient, kind: Kind, job: Json) -> set[str]:
    return {uid_of(child) for child in await children(api, kind, "edits", uid_of(job))}


async def test_no_invalid_edit_stops_a_started_job_and_each_is_reported_without_a_loop(older: ControlPlane) -> None:
    await asyncio.to_thread(create_namespace, older, "edits")
    async with older.api() as api, serving(older, "edits") as served:
        for kind in KINDS_WITH_TEMPLATES:
            await api.create(kind.gvk, "edits", bare(kind, good_name(kind)))
        await served.quiet()
        wrong = [text for kind in KINDS_WITH_TEMPLATES for text in await through_all_bad_edits(api, kind)]
        assert wrong == [], "\n".join(wrong)
        await served.quiet()
        assert [request.path for request in served.sent if request.method == "DELETE"] == []
        await assert_nothing_loops(served)
