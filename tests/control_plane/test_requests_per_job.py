"""What a job costs a real API server, read from its audit log (docs/rules.md S17).

A request is counted whoever answered it and however. Apart from the figure are events, the lease, and status writes
in which only counts change: of these the log knows no body, so the client tells them from the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.control_plane.real_operator import EVENT, Served, bare, children, ending, serving, until_condition
from tests.support.builders import replicas
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import AuditedRequest
from tests.support.samples import mx_set
from trainyard import kinds
from trainyard.client import ApiRequest
from trainyard.core import Kind
from trainyard.objects import Json, is_condition_true, uid_of
from trainyard.objects.resources import JOB

pytestmark = pytest.mark.cluster
REAL_SECONDS = 20.0
TEN_MINUTES = 600.0


@dataclass(frozen=True)
class Play:
    kind: Kind
    job: Json
    objects: int  # C: the objects that the operator makes


def plays() -> dict[str, Play]:
    servers = {"replicaSpecs": [replicas("MASTER"), replicas("WORKER", 2), replicas("PS", 2)]}
    local = {"jobMode": "local", "replicaSpecs": [mx_set("WORKER")]}
    return {
        "tf": Play(kinds.TFJOB, bare(kinds.TFJOB, "tf", **servers), 7),  # five Jobs, the Service, the standard server
        "mx": Play(kinds.MXJOB, bare(kinds.MXJOB, "mx"), 5),
        "mx-local": Play(kinds.MXJOB, bare(kinds.MXJOB, "mx-local", **local), 1),
        "chainer": Play(kinds.CHAINERJOB, bare(kinds.CHAINERJOB, "chainer"), 6),
        "chainer-alone": Play(kinds.CHAINERJOB, bare(kinds.CHAINERJOB, "chainer-alone", workerSets={}), 4),
        "elastic": Play(kinds.ELASTICJOB, bare(kinds.ELASTICJOB, "elastic"), 4),
    }


PLAYS = plays()


def counts_only(request: ApiRequest) -> bool:
    """A status write that changes nothing but the counts of replicas."""
    patches = request.method == "PATCH" and request.path.endswith("/status")
    return patches and b'"conditions"' not in (request.body or b"")


def without_events(requests: list[AuditedRequest]) -> list[AuditedRequest]:
    return [request for request in requests if request.resource != EVENT]


@pytest.mark.parametrize("name", PLAYS)
async def test_a_job_without_failures_costs_one_request_per_object_and_five_and_none_is_refused(
    peopled: ControlPlane, namespace: str, name: str
) -> None:
    play = PLAYS[name]
    async with peopled.api() as api, serving(peopled, namespace) as served:
        mark, sent = await served.mark(), len(served.sent)
        job = await api.create(play.kind.gvk, namespace, play.job)
        await until_condition(api, play.kind, namespace, name, "Running")
        await served.quiet()
        job_children = await children(api, play.kind, namespace, uid_of(job))
        async with ending(api, namespace, [uid_of(job)]):
            await until_condition(api, play.kind, namespace, name, "Succeeded")
            await served.quiet()
        everything = await served.requests(mark)
        assert len(everything) == len(served.sent) - sent  # so the client's requests are those of the log
        requests = without_events(everything)
        light = sum(map(counts_only, served.sent[sent:]))

        creates = [request for request in requests if request.verb == "create"]
        assert len(job_children) == len(creates) == play.objects, [
            (request.resource, request.name) for request in creates
        ]
        assert [request for request in requests if not request.allowed or request.code >= 400] == []
        assert {request.verb for request in requests} <= {"create", "patch"}, Counter(
            request.right for request in requests
        )
        assert len(requests) - light <= play.objects + 5, (light, Counter(request.right for request in requests))
        await assert_no_request_in_ten_minutes(served, 0)


async def assert_no_request_in_ten_minutes(served: Served, seconds: float = REAL_SECONDS) -> None:
    """Neither in these real seconds, in which not even a pass is begun, nor when ten minutes are over by its clock."""
    mark, before = await served.mark(), served.passes()
    await asyncio.sleep(seconds)
    assert served.passes() == before
    served.clock.shift += TEN_MINUTES
    await served.looked()
    assert served.passes() > before
    assert [(request.verb, request.resource, request.name) for request in await served.requests(mark)] == []


async def test_an_idle_operator_sends_no_requests(peopled: ControlPlane, namespace: str) -> None:
    """A running job of each kind, a suspended, an invalid one, and one of another manager."""
    broken = {"volumeMounts": [{"name": "not-there", "mountPath": "/data"}]}
    async with peopled.api() as api, serving(peopled, namespace) as served:
        for play in PLAYS.values():
            await api.create(play.kind.gvk, namespace, play.job)
        await api.create(kinds.TFJOB.gvk, namespace, bare(kinds.TFJOB, "waits", suspend=True))
        await api.create(kinds.TFJOB.gvk, namespace, bare(kinds.TFJOB, "theirs", managedBy="example.com/other"))
        refused = bare(kinds.ELASTICJOB, "refused")
        refused["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0] |= broken
        await api.create(kinds.ELASTICJOB.gvk, namespace, refused)
        for name, play in PLAYS.items():
            await until_condition(api, play.kind, namespace, name, "Running")
        await until_condition(api, kinds.TFJOB, namespace, "waits", "Suspended")
        await until_condition(api, kinds.ELASTICJOB, namespace, "refused", "Failed")
        await served.quiet()
        jobs = (await api.list(JOB, namespace))["items"]
        assert jobs and not any(is_condition_true(job["status"].get("conditions"), "Complete") for job in jobs)
        await assert_no_request_in_ten_minutes(served)
