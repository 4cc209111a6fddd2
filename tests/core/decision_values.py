"""Jobs and pods that several tests of the decision look at."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.scenarios import gang
from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.builders import NOW, UID
from tests.support.samples import KINDS_WITH_TEMPLATES, elasticjob
from trainyard.core import Kind, Observed, Plan, Refusal, decode_child, plan, render_object
from trainyard.kinds import ELASTICJOB, MXJOB
from trainyard.objects import Json, find_condition, format_time, is_condition_true


def blocked_job(kind: Kind, job: Json, refusal: Refusal, **edit: object) -> SimulatedJob:
    """A job that runs, and an edit of it from which the API server takes no child."""
    simulated = simulate(kind, job)
    simulated.run()
    simulated.settle()
    simulated.edit(**edit)
    simulated.refused = {create.ref: refusal for create in simulated.look().creates if create.slot}
    simulated.job = {**simulated.job, "status": simulated.look().status}
    assert is_condition_true(simulated.job["status"]["conditions"], "Blocked")
    return simulated


def blocked_elastic_job(refusal: Refusal) -> SimulatedJob:
    return blocked_job(ELASTICJOB, elasticjob(1), refusal, replicaSpecs=elasticjob(2)["spec"]["replicaSpecs"])


def stopping_pod(simulated: SimulatedJob, kind: str, name: str) -> Json:
    """The object is being deleted, and is still there."""
    obj = simulated.get(kind, name)
    obj["metadata"]["deletionTimestamp"] = format_time(simulated.now)
    return obj


def beside_a_sidecar(pod: Json) -> Json:
    pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"running": {}}})
    return pod


def begun_job(kind: Kind, spec: Json) -> tuple[Json, dict[str, Json]]:
    """A job after its first passes, and everything that was made for it, by name."""
    meta = {"name": "small", "namespace": "d", "uid": UID}
    job: Json = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": meta, "spec": spec}
    first = plan(kind, job, Observed(), NOW - 60)
    job = {**job, "spec": {**spec, **(first.spec_patch or {})}}
    after = plan(kind, job, Observed(), NOW - 60)
    job = {**job, "status": after.status}
    config = Observed().config
    rendered = {
        f"{create.gvk.kind} {create.name}": render_object(kind, job, create, config) for create in after.creates
    }
    for name, obj in rendered.items():
        obj["metadata"] |= {"uid": f"uid of {name}", "creationTimestamp": format_time(NOW - 60)}
    return job, rendered


def plan_for(kind: Kind, job: Json, *children: Json, now: float = NOW) -> Plan:
    return plan(kind, job, Observed(tuple(map(decode_child, children))), now)


def with_status(job: Json, planned: Plan, **spec: Any) -> Json:
    return {**job, "spec": {**job["spec"], **spec}, "status": planned.status}


def ended_pod(pod: Json, code: int, container: str, at: float = NOW - 1, **status: Any) -> Json:
    """A pod whose container has exited."""
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": format_time(at)}
    statuses = [{"name": container, "state": {"terminated": end}}]
    phase = "Failed" if code else "Succeeded"
    start = format_time(NOW - 50)
    return {**pod, "status": {"phase": phase, "startTime": start, "containerStatuses": statuses, **status}}


def ended_pod_of(job: Json, code: int, container: str, **status: Any) -> Json:
    """The pod of a batch Job, whose container has exited."""
    meta = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    pod = {**meta, "name": f"{meta['name']}-x", "uid": f"pod of {meta['uid']}", "ownerReferences": [owner]}
    return ended_pod({"apiVersion": "v1", "kind": "Pod", "metadata": pod}, code, container, **status)


def small_gang() -> tuple[Json, list[Json], list[Json]]:
    """A gang, its Jobs (SCHEDULER, SERVER, WORKER) and its other children."""
    job, children = begun_job(MXJOB, gang().spec)
    return (
        job,
        [child for name, child in children.items() if name.startswith("Job ")],
        [children[f"Service {_subdomain(job)}"]],
    )


def _subdomain(job: Json) -> str:
    return f"mxjob-{job['spec']['RuntimeId']}"


def attempts_of(planned: Plan) -> set[int]:
    return {role["attempt"] for role in planned.status["roles"].values()}


every_kind = pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)


def failed_condition(status: Json) -> Json:
    condition = find_condition(status["conditions"], "Failed")
    assert condition is not None and condition["status"] == "True", status
    return condition
