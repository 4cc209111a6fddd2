"""Jobs, pods and PodGroups of a namespace, for the tests of gangs on the real kube-scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.control_plane.job_life import path_of
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.support.control_plane import ControlPlane
from tests.support.samples import kubeflow_job, pods
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.core import Kind
from trainyard.kinds import JAXJOB
from trainyard.objects import Json, name_of
from trainyard.objects.resources import NATIVE_POD_GROUP


def submit(plane: ControlPlane, kind: Kind, namespace: str, job: Json) -> None:
    """Create the job."""
    code, answer = plane.ask("POST", path_of(kind, namespace), job)
    assert code == 201, answer


def jax_job(name: str, workers: int, cpu: str = "300", **policy: object) -> Json:
    """A JAXJob whose workers request so many CPUs."""
    template = pods("jax")
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    worker = {"replicas": workers, "restartPolicy": "ExitCode", "template": template}
    return wire(JAXJOB, kubeflow_job("JAXJob", name=name, run_policy=dict(policy), Worker=worker))


def groups(plane: ControlPlane, namespace: str) -> dict[str, Json]:
    """The PodGroups of the namespace by name."""
    path = f"/apis/{NATIVE_POD_GROUP.api_version}/namespaces/{namespace}/podgroups"
    return {name_of(group): group for group in plane.ask("GET", path)[1]["items"]}


def listed_pods(plane: ControlPlane, namespace: str, job: str = "") -> list[Json]:
    """The pods of the namespace, or of one job."""
    items: list[Json] = plane.ask("GET", f"/api/v1/namespaces/{namespace}/pods")[1]["items"]
    return [pod for pod in items if name_of(pod).startswith(job)]


def running(plane: ControlPlane, namespace: str, job: str = "") -> list[Json]:
    """Those of them that run and are not deleted."""
    return [
        pod
        for pod in listed_pods(plane, namespace, job)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


async def until_holds(condition: Callable[[], object], description: str, context: Callable[[], object]) -> None:
    """Wait until the condition is true."""
    await until_async(lambda: asyncio.to_thread(condition), description, context=context, pause=SLOW_PAUSE, seconds=90)


def state_of(plane: ControlPlane, namespace: str) -> Callable[[], object]:
    """A function that tells the state of pods and groups, for the message of a failure."""

    def look() -> object:
        listed = {name_of(pod): pod["status"] for pod in listed_pods(plane, namespace)}
        return listed, {name: group.get("status") for name, group in groups(plane, namespace).items()}

    return look
