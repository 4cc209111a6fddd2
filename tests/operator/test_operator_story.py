"""The operator with the embedded API server, the real Job controller and a node that follows a script."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from tests.operator.operator_cluster import TFJOB, OperatorCluster, Troubled, running_yard, tf_job
from tests.support.waiting import until_async
from tests.support.watched_objects import until_objects
from trainyard import kinds
from trainyard.app.local import NOT_SERVED
from trainyard.client import ApiClient, ApiRequest, NotFound, Unavailable
from trainyard.core import Config
from trainyard.core.job_state import ParsedSpec
from trainyard.objects import (
    Json,
    controller_reference,
    decode,
    find_condition,
    is_condition_true,
    name_of,
    uid_of,
)
from trainyard.objects.labels import OWNER, ROLE
from trainyard.objects.resources import CRD, EVENT, JOB, NAMESPACE, POD, SERVICE
from trainyard.objects.structs import replace
from trainyard.operator import Operator

pytestmark = pytest.mark.slow


class Clock:
    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def cluster(clock: Clock) -> AsyncIterator[OperatorCluster]:
    async with running_yard(clock) as cluster:
        yield cluster


async def settle(api: Troubled, quiet: float = 0.4) -> None:
    """Wait until the operator has sent nothing for `quiet` seconds."""
    counts = [-1]

    def is_quiet() -> bool:
        counts.append(len(api.sent))
        return counts[-1] == counts[-2]

    await until_async(is_quiet, f"the operator sends nothing for {quiet:g} s", pause=quiet)


async def names(cluster: OperatorCluster, gvk: object) -> list[str]:
    listed = await cluster.api.list(gvk, "default", OWNER)  # type: ignore[arg-type]  # a GVK
    return sorted(name_of(obj) for obj in listed["items"])


async def test_a_job_without_failures_costs_one_request_per_object_and_five(cluster: OperatorCluster) -> None:
    api = Troubled(cluster.server.url)
    async with cluster.operator(api) as operator:
        await operator.synced
        await cluster.submit(tf_job(workers=3, cleanPodPolicy="None"))
        await cluster.condition("Running")
        cluster.end("MASTER")
        await cluster.condition("Succeeded")
        await settle(api)
        creates = [request for request in api.writes if request.method == "POST"]
        assert len(creates) == 6  # five replicas and a service
        counts_only = [r for r in api.writes if r.path.endswith("/status") and b'"conditions"' not in (r.body or b"")]
        assert len(api.writes) - len(counts_only) <= len(creates) + 5
        assert {request.method for request in api.sent} <= {"GET", "POST", "PATCH"}
        assert not [r for r in api.sent if r.method == "GET" and not r.path.endswith("s")]  # lists only


async def test_a_finished_job_causes_no_requests_even_of_a_new_operator(cluster: OperatorCluster) -> None:
    async with cluster.operator():
        await cluster.submit(tf_job())
        await cluster.condition("Running")
        cluster.end("MASTER")
        done = await cluster.condition("Succeeded")
    api = Troubled(cluster.server.url)
    async with cluster.operator(api) as operator:
        await operator.synced
        await settle(api)
        assert not [request for request in api.sent if request.method != "GET"]
        assert (await cluster.job())["status"]["conditions"] == done["status"]["conditions"]


async def test_counts_are_written_at_most_once_a_second_and_never_lost(cluster: OperatorCluster) -> None:
    api = Troubled(cluster.server.url)
    async with cluster.operator(api):
        await cluster.submit(tf_job(workers=12))
        states = {"MASTER": 1, "WORKER": 12, "PS": 1}

        def all_run(job: Json) -> bool:
            roles = job.get("status", {}).get("replicaStatuses", [])
            running = {role["tf_replica_type"]: role["ReplicasStates"].get("Running") for role in roles}
            return running == states

        started = time.monotonic()
        await cluster.until(all_run)
        seconds = time.monotonic() - started
        counts = [r for r in api.writes if r.path.endswith("/status") and b'"conditions"' not in (r.body or b"")]
        assert len(counts) <= seconds + 1


class ConcurrentWriter(Troubled):
    """Calls `write_concurrently` once, before it sends the first status patch: a write of another client."""

    def __init__(self, url: str, write_concurrently: Callable[[], Awaitable[object]]) -> None:
        super().__init__(url)
        self.write_concurrently: Callable[[], Awaitable[object]] | None = write_concurrently

    async def send(self, request: ApiRequest) -> bytes:
        if request.path.endswith("/status") and self.write_concurrently is not None:
            write_concurrently, self.write_concurrently = self.write_concurrently, None
            await write_concurrently()
        return await super().send(request)


async def test_a_changed_job_ends_the_pass_before_anything_else_is_written(cluster: OperatorCluster) -> None:
    """The fence: another client writes to the job between the plan and the status patch."""
    label = {"metadata": {"labels": {"by": "somebody"}}}
    api = ConcurrentWriter(cluster.server.url, lambda: cluster.api.patch(TFJOB, "default", "mnist", label))
    async with cluster.operator(api) as operator:
        await cluster.submit(tf_job())
        await cluster.condition("Running")
        writes = [request.method for request in api.writes]
        refused = operator.counts["conflicts"]  # more than one if the next reconcile precedes the watch event
        assert refused
        # The first child is created after the accepted status patch.
        assert writes[: refused + 2] == [*["PATCH"] * refused, "PATCH", "POST"]


async def test_a_job_deleted_between_decision_and_write_gets_no_children(cluster: OperatorCluster) -> None:
    api = ConcurrentWriter(cluster.server.url, lambda: cluster.api.delete(TFJOB, "default", "mnist"))
    async with cluster.operator(api) as operator:
        await cluster.submit(tf_job())
        await cluster.gone(TFJOB, "mnist")
        await settle(api)
        assert [request.method for request in api.writes] == ["PATCH"]
        assert not {"faults", "refused", "unavailable"} & operator.counts.keys()


async def test_a_foreign_object_with_a_childs_name_is_not_changed_and_reported(
    cluster: OperatorCluster, clock: Clock
) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "tfjob-mnis"},
        "spec": {"ports": [{"port": 1}]},
    }
    foreign = await cluster.api.create(SERVICE, "default", service)
    api = Troubled(cluster.server.url)
    async with cluster.operator(api) as operator:
        await cluster.submit(tf_job())
        job = await cluster.condition("NameConflict")
        name_conflict = find_condition(job["status"]["conditions"], "NameConflict")
        assert name_conflict is not None and "tfjob-mnis" in name_conflict["message"]
        await cluster.condition("Running")  # the other children are created
        await settle(api, 1.5)
        tries = len([r for r in api.writes if r.method == "POST" and r.path.endswith("/services")])
        assert tries <= 3
        service = await cluster.api.get(SERVICE, "default", "tfjob-mnis")
        assert uid_of(service) == uid_of(foreign) and service["metadata"] == foreign["metadata"]
        await cluster.api.delete(SERVICE, "default", "tfjob-mnis")
        clock.shift += 3600
        operator.resync()
        await cluster.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
        assert await names(cluster, SERVICE) == ["tfjob-mnis"]


async def test_a_foreign_object_with_the_operators_label_is_still_foreign(cluster: OperatorCluster) -> None:
    job = await cluster.submit(tf_job())
    meta: Json = {"name": "tfjob-mnis", "labels": {OWNER: uid_of(job)}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}]}}
    await cluster.api.create(SERVICE, "default", service)
    api = Troubled(cluster.server.url)
    async with cluster.operator(api):
        await cluster.condition("NameConflict")
        await cluster.condition("Running")
        await settle(api, 1.5)
        assert len([r for r in api.writes if r.method == "POST" and r.path.endswith("/services")]) <= 3


async def test_a_child_without_the_operators_label_is_reported_and_not_waited_for(
    cluster: OperatorCluster, clock: Clock
) -> None:
    """The watches select by the label, so they never show the object. An older operator created it, or a user has
    removed the label."""
    job = await cluster.submit(tf_job())
    owner = controller_reference("tensorflow.org/v1alpha1", "TfJob", "mnist", uid_of(job))
    meta: Json = {"name": "tfjob-mnis", "ownerReferences": [owner]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}]}}
    await cluster.api.create(SERVICE, "default", service)
    async with cluster.operator() as operator:
        name_conflict = find_condition(
            (await cluster.condition("NameConflict"))["status"]["conditions"], "NameConflict"
        )
        assert name_conflict is not None and "has no label trainyard.dev/owner" in name_conflict["message"]
        await cluster.condition("Running")
        await cluster.api.delete(SERVICE, "default", "tfjob-mnis")
        clock.shift += 3600
        operator.resync()
        await cluster.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))


async def test_a_child_of_this_job_from_before_a_restart_counts_as_created(cluster: OperatorCluster) -> None:
    """The answer to the first create of each resource is lost: the object exists, but the operator has no answer."""
    api = Troubled(cluster.server.url)
    lost: set[str] = set()  # request paths

    def lose(request: ApiRequest) -> None:
        if request.method == "POST" and "/events" not in request.path and request.path not in lost:
            lost.add(request.path)
            raise Unavailable(0, "Timeout", "the answer was lost")

    api.after = lose
    async with cluster.operator(api) as operator:
        await cluster.submit(tf_job())
        job = await cluster.condition("Running")
        assert not is_condition_true(job["status"]["conditions"], "NameConflict")
        assert operator.counts["unavailable"] >= 1
        await settle(api)
        assert await names(cluster, JOB) == ["master-mnis-0", "ps-mnis-0", "worker-mnis-0"]


async def test_a_kind_without_crd_is_served_as_soon_as_the_crd_exists(clock: Clock) -> None:
    async with running_yard(clock, install=False) as cluster, cluster.operator() as operator:
        await asyncio.wait_for(operator.synced, 10)
        await cluster.api.create(CRD, "", kinds.crd(kinds.TFJOB))
        await cluster.submit(tf_job())
        await cluster.condition("Running")


async def test_a_job_that_raises_does_not_affect_others(
    cluster: OperatorCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def read(spec: Json, name: str) -> ParsedSpec:
        if name == "poison":
            raise RuntimeError("a bug of ours")
        return kinds.TFJOB.api.read(spec, name)

    poisoned = replace(kinds.TFJOB, api=replace(kinds.TFJOB.api, read=read))
    async with ApiClient(cluster.server.url) as api:
        operator = Operator(api, [poisoned], Config(), now=cluster.clock)
        caplog.set_level(logging.ERROR)
        await operator.start()
        await cluster.submit(tf_job("poison"))
        await cluster.submit(tf_job("good"))
        await cluster.condition("Running", "good")
        await operator.stop()
        assert operator.counts["faults"] >= 1
    assert "tfjobs/default/poison" in caplog.text and "a bug of ours" in caplog.text
    assert "status" not in await cluster.job("poison")


async def test_a_429_is_retried_after_retry_after(cluster: OperatorCluster) -> None:
    api = Troubled(cluster.server.url)
    refused: list[float] = []

    def refuse(request: ApiRequest) -> None:
        if request.path.endswith("/status") and not refused:
            refused.append(time.monotonic())
            raise Unavailable(429, "TooManyRequests", "not now", retry_after=1.5)

    api.before = refuse
    async with cluster.operator(api):
        await cluster.submit(tf_job())
        await cluster.condition("Created")
        assert time.monotonic() - refused[0] >= 1.45


async def test_a_pod_deleted_between_two_plans_is_a_disruption_and_no_failure(cluster: OperatorCluster) -> None:
    """A big job is planned once a second. Until then the deleted pod may be gone, and its batch Job have failed."""
    async with cluster.operator() as operator:
        job = await cluster.submit(tf_job(backoffLimit=0))
        await cluster.condition("Running")
        (pod,) = (await cluster.api.list(POD, "default", f"{ROLE}=MASTER"))["items"]
        operator._states[uid_of(job)].next_plan = time.monotonic() + 1.0
        await cluster.api.delete(POD, "default", name_of(pod))
        await cluster.gone(POD, name_of(pod))
        job = await cluster.until(lambda job: find_condition(job["status"]["conditions"], "Restarting") is not None)
        assert not is_condition_true(job["status"]["conditions"], "Failed")
        await cluster.condition("Running")


async def test_a_pod_of_a_lost_node_is_not_deleted_again_when_it_is_gone(cluster: OperatorCluster) -> None:
    """The operator remembers the pod of a failed batch Job, whose deletion is no failure of the program."""
    api = Troubled(cluster.server.url)
    async with cluster.operator(api) as operator:
        operator.set_config(Config(missing_resources=NOT_SERVED, node_lost_timeout=0.0))
        job = await cluster.submit(tf_job())
        await cluster.condition("Running")
        (pod,) = (await cluster.api.list(POD, "default", f"{ROLE}=MASTER"))["items"]
        operator._states[uid_of(job)].next_plan = time.monotonic() + 2.0
        await cluster.api.delete(POD, "default", name_of(pod), grace_period_seconds=1)
        await cluster.gone(POD, name_of(pod))
        await cluster.until(lambda job: find_condition(job["status"]["conditions"], "Restarting") is not None)
        await cluster.condition("Running")
        assert not [request for request in api.writes if request.method == "DELETE" and "/pods/" in request.path]


async def test_for_a_deleted_job_nothing_is_created(cluster: OperatorCluster) -> None:
    api = Troubled(cluster.server.url)
    async with cluster.operator(api):
        await cluster.submit(tf_job())
        await cluster.condition("Running")
        before = len(api.writes)
        await cluster.api.delete(TFJOB, "default", "mnist")
        for name in ("master-mnis-0", "worker-mnis-0", "ps-mnis-0"):
            await cluster.gone(JOB, name)
        await settle(api)
        assert not [request for request in api.writes[before:] if request.method == "POST"]
        assert await names(cluster, POD) == []


async def test_a_job_made_anew_under_the_same_name_gets_children_of_its_own(cluster: OperatorCluster) -> None:
    async with cluster.operator():
        first = await cluster.submit(tf_job())
        await cluster.condition("Running")
        await cluster.api.delete(TFJOB, "default", "mnist")
        await cluster.gone(TFJOB, "mnist")
        second = await cluster.submit(tf_job())
        await cluster.condition("Running")
        await cluster.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
        listed = await cluster.api.list(JOB, "default", OWNER)
        owners = {obj["metadata"]["labels"][OWNER] for obj in listed["items"]}
        assert uid_of(first) != uid_of(second) and owners <= {uid_of(first), uid_of(second)}


async def test_watches_that_break_repeatedly_lose_no_event_and_cause_no_relist(cluster: OperatorCluster) -> None:
    class Broken(Troubled):
        async def stream(self, *arguments: Any) -> AsyncGenerator[bytes, None]:
            async for chunk in super().stream(*arguments):
                yield chunk
                raise Unavailable(0, "ConnectionLost", "cut after every chunk")

    api = Broken(cluster.server.url)
    async with cluster.operator(api) as operator:
        await operator.synced
        lists = len([request for request in api.sent if request.method == "GET"])
        await cluster.submit(tf_job())
        await cluster.condition("Running")
        cluster.end("MASTER")
        await cluster.condition("Succeeded")
        assert len([request for request in api.sent if request.method == "GET"]) == lists


async def test_a_stale_child_watch_never_causes_a_second_child_and_recovers(cluster: OperatorCluster) -> None:
    """The watch of batch Jobs hangs, so the store does not show the creates: the job is not reconciled until the
    timeout, when the resource is listed again."""
    hung = asyncio.Event()

    class Hanging(Troubled):
        async def stream(self, request: ApiRequest, *more: Any) -> AsyncGenerator[bytes, None]:
            if request.path.endswith("/batch/v1/jobs") and not hung.is_set():
                hung.set()
                await asyncio.Event().wait()
            async for chunk in super().stream(request, *more):
                yield chunk

    api = Hanging(cluster.server.url)
    async with cluster.operator(api) as operator:
        operator.writes.timeout = 0.3
        await operator.synced
        await asyncio.wait_for(hung.wait(), 10)
        await cluster.submit(tf_job())
        await cluster.until(lambda job: job.get("status", {}).get("state") == "Running")
        posts = [request.path for request in api.writes if request.method == "POST" and "jobs" in request.path]
        assert len(posts) == 3


async def test_writes_are_overdue_in_time_also_when_no_watch_delivers_anything(cluster: OperatorCluster) -> None:
    """All connections of the watches are half open after the first event: nothing enqueues the job."""
    submitted = asyncio.Event()

    class HalfOpen(Troubled):
        async def stream(self, request: ApiRequest, *more: Any) -> AsyncGenerator[bytes, None]:
            is_first = not submitted.is_set()
            async for chunk in super().stream(request, *more):
                if is_first and submitted.is_set():
                    await asyncio.Event().wait()
                submitted_now = is_first and b'"ADDED"' in chunk and b"TfJob" in chunk
                yield chunk
                if submitted_now:
                    submitted.set()

    api = HalfOpen(cluster.server.url)

    def lists() -> int:
        return sum(request.path.endswith("/batch/v1/jobs") for request in api.sent if request.method == "GET")

    async with cluster.operator(api) as operator:
        operator.writes.timeout = 0.3
        await operator.synced
        before = lists()
        await cluster.submit(tf_job())
        await cluster.until(lambda job: lists() > before)


async def test_jobs_of_many_namespaces_run_side_by_side(cluster: OperatorCluster) -> None:
    namespaces = [f"team-{index}" for index in range(3)]
    for namespace in namespaces:
        await cluster.api.create(
            NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
    async with cluster.operator():
        for namespace in namespaces:
            for at in range(3):
                await cluster.submit(tf_job(f"j{at}{namespace[-1]}x", namespace))
        for namespace in namespaces:
            for at in range(3):
                await cluster.condition("Running", f"j{at}{namespace[-1]}x", namespace)


async def test_refused_events_fail_nothing(cluster: OperatorCluster) -> None:
    api = Troubled(cluster.server.url)

    def refuse(request: ApiRequest) -> None:
        if request.path.endswith("/events"):
            raise NotFound(404, "NotFound", "no events here")

    api.before = refuse
    async with cluster.operator(api) as operator:
        await cluster.submit(tf_job())
        await cluster.condition("Running")
        assert operator.counts.get("faults", 0) == 0
    assert (await cluster.api.list(EVENT, "default"))["items"] == []


async def test_an_equal_event_is_recorded_once(cluster: OperatorCluster) -> None:
    async with cluster.operator():
        await cluster.submit(tf_job())
        await cluster.condition("Running")
        cluster.end("MASTER")
        await cluster.condition("Succeeded")

        reasons: list[str] = []
        async with asyncio.timeout(10), aclosing(cluster.api.watch(EVENT, "default", "1")) as lines:
            async for line in lines:
                event = decode(line)["object"]
                if event["involvedObject"]["kind"] == "TfJob":
                    reasons.append(event["reason"])
                if "JobSucceeded" in reasons:
                    break
        assert len(reasons) == len(set(reasons)) >= 3


async def test_a_pod_that_cannot_start_is_an_event_of_its_job(cluster: OperatorCluster) -> None:
    """Nothing of the job is written for it: its status does not change."""
    cluster.node.holds = True
    waiting = {"name": "tensorflow", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    async with cluster.operator():
        await cluster.submit(tf_job())
        (pod, *_) = await until_objects(cluster.api, POD, "default", list, "a pod is made")
        status = {"phase": "Pending", "containerStatuses": [waiting]}
        await cluster.api.patch(POD, "default", name_of(pod), {"status": status}, "status")
        (event,) = await until_objects(
            cluster.api, EVENT, "default", list, "the cause is told", fields="reason=ErrImagePull"
        )
    assert (event["involvedObject"]["kind"], event["type"], event["count"]) == ("TfJob", "Warning", 1)
    assert event["message"] == f"Error pod {name_of(pod)} container tensorflow waiting message: no such image"
