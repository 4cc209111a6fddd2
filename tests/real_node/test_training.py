"""Jobs in containers of a real kubelet; the operator runs in the test's process, as its ServiceAccount.

What no simulated node can tell: that programs find each other by the names and variables they are given, and how
the ends of containers reach the operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.control_plane.real_operator import serving, until_condition
from tests.support.real_node import RealNode
from tests.support.real_node_build import MPI_IMAGE
from tests.support.watched_objects import until_objects
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.core import Kind
from trainyard.objects import Json, find_condition, name_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD

pytestmark = [pytest.mark.node, pytest.mark.slow]

IMAGE = "python:3.11"
SUM = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", address[1]))
    workers = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(worker.recv(9)) for worker in workers)
    for worker in workers:
        worker.sendall(str(total).encode())
else:
    while True:
        try:
            master = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    master.sendall(str(rank + 1).encode())
    total = int(master.recv(9))
print(f"rank {rank} of {size}: the sum is {total}", flush=True)
"""
"""Rank 0 adds up what the other ranks send, their rank and one, and tells them."""
UNTIL_RELEASED = "until [ -e /state/released ]; do sleep 0.1; done"


@pytest.fixture
async def api(installed: RealNode, namespace: str) -> AsyncIterator[ApiClient]:
    """A client of the administrator. The operator serves the namespace meanwhile."""
    async with serving(installed, namespace), installed.api() as client:
        yield client


def pytorch_job(name: str, command: list[str], workers: int = 0, restart: str = "Never", **container: Any) -> Json:
    main = {"name": "pytorch", "image": IMAGE, "command": command, **container}
    pod = {"terminationGracePeriodSeconds": 0, "containers": [main]}
    replicas = {"restartPolicy": restart, "template": {"spec": pod}}
    roles = {"Master": {"replicas": 1, **replicas}}
    if workers:
        roles["Worker"] = {"replicas": workers, **replicas}
    spec = {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": roles}
    return job_of(kinds.PYTORCHJOB, name, spec)


def job_of(kind: Kind, name: str, spec: Json) -> Json:
    return {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": {"name": name}, "spec": spec}


async def running_pods(
    api: ApiClient, namespace: str, job: Json, count: int, but: frozenset[str] = frozenset()
) -> list[Json]:
    """So many pods of the job that run, once there are, all with other uids than those of `but`."""

    def accept(pods: list[Json]) -> bool:
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return len(running) == len(pods) == count and not but & {uid_of(pod) for pod in running}

    labels = f"{OWNER}={uid_of(job)}"
    return await until_objects(api, POD, namespace, accept, f"{count} pods of {name_of(job)} run", labels=labels)


async def test_a_pytorchjob_trains(api: ApiClient, real_node: RealNode, namespace: str) -> None:
    """Its ranks find the master by its name and port."""
    await api.create(kinds.PYTORCHJOB.gvk, namespace, pytorch_job("sum", ["python3", "-c", SUM], workers=2))
    await until_condition(api, kinds.PYTORCHJOB, namespace, "sum", "Succeeded")
    for rank, pod in enumerate(("sum-master-0", "sum-worker-0", "sum-worker-1")):
        assert real_node.kubectl("-n", namespace, "logs", pod, "-c", "pytorch") == f"rank {rank} of 3: the sum is 5\n"


async def test_a_killed_process_restarts_the_gang(api: ApiClient, real_node: RealNode, namespace: str) -> None:
    """SIGKILL from outside its pid namespace: exit code 137, which the policy ExitCode tries again."""
    job = pytorch_job("gang", ["sh", "-c", UNTIL_RELEASED], workers=2, restart="ExitCode")
    state = f"/var/tmp/{namespace}"
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        pod = role["template"]["spec"]
        pod["volumes"] = [{"name": "state", "hostPath": {"path": state, "type": "DirectoryOrCreate"}}]
        pod["containers"][0]["volumeMounts"] = [{"name": "state", "mountPath": "/state"}]
    job = await api.create(kinds.PYTORCHJOB.gvk, namespace, job)
    first = await running_pods(api, namespace, job, 3)
    worker = next(pod for pod in first if name_of(pod) == "gang-worker-1")
    container = worker["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    real_node.inside("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", container)
    await running_pods(api, namespace, job, 3, but=frozenset(map(uid_of, first)))
    real_node.inside("touch", f"{state}/released")
    job = await until_condition(api, kinds.PYTORCHJOB, namespace, "gang", "Succeeded")
    assert job["status"]["restarts"] == 1


async def test_a_container_over_its_memory_limit_fails_the_job_with_the_fix(api: ApiClient, namespace: str) -> None:
    command = ["python3", "-c", "print(len(bytearray(1 << 30)))"]
    job = pytorch_job("hungry", command, resources={"limits": {"memory": "64Mi"}})
    await api.create(kinds.PYTORCHJOB.gvk, namespace, job)
    failed = await until_condition(api, kinds.PYTORCHJOB, namespace, "hungry", "Failed")
    condition = find_condition(failed["status"]["conditions"], "Failed")
    message = (condition or {})["message"]
    assert "Master 0: container pytorch exited with code 137 (OOMKilled, its memory limit is 64Mi)" in message
    assert "raise its memory limit" in message


async def test_an_mpijob_starts_its_ranks_in_the_workers(api: ApiClient, real_node: RealNode, namespace: str) -> None:
    """By the API server's exec, with the rights and the program that the operator gives the launcher."""
    real_node.import_own_image(MPI_IMAGE)
    place = "import os; print(os.environ['OMPI_COMM_WORLD_RANK'], os.environ['HOSTNAME'])"
    mpirun = ["mpirun", "-n", "2", "--allow-run-as-root", "--bind-to", "none", "python3", "-c", place]
    container = {"name": "mpi", "image": MPI_IMAGE}
    roles = {
        role: {"replicas": count, "template": {"spec": {"terminationGracePeriodSeconds": 0, "containers": [main]}}}
        for role, count, main in (("Launcher", 1, {**container, "command": mpirun}), ("Worker", 2, container))
    }
    spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
    await api.create(kinds.MPIJOB.gvk, namespace, job_of(kinds.MPIJOB, "ranks", spec))
    await until_condition(api, kinds.MPIJOB, namespace, "ranks", "Succeeded")
    output = real_node.kubectl("-n", namespace, "logs", "ranks-launcher", "-c", "mpi")
    assert {"0 ranks-worker-0", "1 ranks-worker-1"} <= set(output.splitlines())
