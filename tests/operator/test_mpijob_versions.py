"""MPIJobs of both versions under one definition, and the key pair that the operator may create and not read."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.samples import kubeflow_job
from tests.support.watched_objects import until_objects
from trainyard.app.config import shipped_config
from trainyard.client import ApiClient, Forbidden, Unavailable
from trainyard.controller_runtime.object_adapter import packed_adapter
from trainyard.kinds import MPIJOB, crd
from trainyard.objects import GVK, Json, controller_of, encode, find_condition, is_condition_true, name_of
from trainyard.objects.resources import CONFIG_MAP, CRD, JOB, POD, ROLE, SECRET, SERVICE_ACCOUNT
from trainyard.operator import Operator
from trainyard.server import Server
from trainyard.workloads import ControllerManager

(V2BETA1,) = MPIJOB.further_versions
TAKEN: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b-ssh"}, "data": {}}


class LimitedClient(ApiClient):
    """The operator's client, without the right to read Secrets. `loses_config_maps`: their creates have no answer."""

    loses_config_maps = False

    async def list(self, gvk: GVK, *arguments: Any, **options: Any) -> Json:
        if gvk == SECRET:
            raise Forbidden(403, "Forbidden", "secrets is forbidden", {})
        return await super().list(gvk, *arguments, **options)

    async def create(self, gvk: GVK, *arguments: Any, **options: Any) -> Json:
        if gvk == CONFIG_MAP and self.loses_config_maps:
            raise Unavailable(0, "Unavailable", "the connection was lost")
        return await super().create(gvk, *arguments, **options)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Server, ApiClient]]:
    """An API server with the controllers of Kubernetes, and no node."""
    server = Server()
    await server.start()
    async with ApiClient(server.url) as api, ApiClient(server.url) as manager_api:
        manager = ControllerManager(manager_api, time.time)
        await manager.start()
        await api.create(CRD, "", crd(MPIJOB))
        await until_objects(api, SERVICE_ACCOUNT, "default", bool, "the default ServiceAccount")
        try:
            yield server, api
        finally:
            await manager.stop()
    await server.stop()


@asynccontextmanager
async def operating(server: Server, loses_config_maps: bool = False) -> AsyncIterator[None]:
    api = LimitedClient(server.url)
    api.loses_config_maps = loses_config_maps
    async with api:
        operator = Operator(api, [MPIJOB], shipped_config())
        await operator.start()
        try:
            yield
        finally:
            await operator.stop()


async def create(api: ApiClient, name: str, version: GVK) -> Json:
    manifest = kubeflow_job("MPIJob")
    manifest |= {"apiVersion": version.api_version, "metadata": {"name": name, "namespace": "default"}}
    return await api.create(version, "default", manifest)


async def until_named(api: ApiClient, gvk: GVK, *names: str) -> list[Json]:
    """All objects of a resource, once those of these names exist."""

    def accept(objects: list[Json]) -> bool:
        return set(names) <= {name_of(obj) for obj in objects}

    return await until_objects(api, gvk, "default", accept, f"{gvk.plural} {names}")


def conflicts(jobs: list[Json]) -> bool:
    return is_condition_true((jobs[0].get("status") or {}).get("conditions") or [], "NameConflict")


@pytest.mark.parametrize("read_in", [MPIJOB.gvk, V2BETA1.gvk], ids=lambda gvk: str(gvk.version))
async def test_a_job_is_run_by_the_rules_of_the_version_in_which_it_was_created(read_in: GVK) -> None:
    async with cluster() as (server, api), operating(server):
        await create(api, "a", MPIJOB.gvk)
        await create(api, "b", V2BETA1.gvk)
        pods = await until_named(api, POD, "a-launcher", "a-worker-0", "a-worker-1", "b-worker-0", "b-worker-1")
        await until_named(api, JOB, "b-launcher")
        owners = {name_of(pod)[0]: (controller_of(pod) or {})["apiVersion"] for pod in pods if "worker" in name_of(pod)}
        assert owners == {"a": "kubeflow.org/v1", "b": "kubeflow.org/v2beta1"}
        stored = {name: await api.get(read_in, "default", name) for name in "ab"}
        assert {job["apiVersion"] for job in stored.values()} == {read_in.api_version}
        assert [MPIJOB.version_of(stored[name]).gvk.version for name in "b"] == ["v2beta1"]


async def test_a_job_that_is_replaced_in_the_other_version_stays_what_it_is() -> None:
    async with cluster() as (server, api), operating(server):
        await create(api, "a", MPIJOB.gvk)
        await until_named(api, POD, "a-launcher", "a-worker-0", "a-worker-1")
        job = await api.get(V2BETA1.gvk, "default", "a")
        job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 3
        replaced = await api.replace(V2BETA1.gvk, "default", "a", job)
        assert "sshAuthMountPath" in replaced["spec"]
        pods = await until_named(api, POD, "a-worker-2")
        assert {(controller_of(pod) or {})["apiVersion"] for pod in pods} == {"kubeflow.org/v1"}
        assert not (await api.list(JOB, "default"))["items"]


V1_FIELDS: Json = {"f:mpiReplicaSpecs": {"f:Launcher": {}}}
KUEUE_FIELDS: Json = {"f:runPolicy": {"f:suspend": {}}}
LONG_FIELDS: Json = {
    **KUEUE_FIELDS,
    "f:mpiReplicaSpecs": {"f:Launcher": {"f:template": {"f:spec": {"f:nodeSelector": {}}}}},
}


def write(version: str, second: int, fields: Json, **entry: str) -> Json:
    """One entry of managedFields."""
    time = f"2026-11-28T10:00:{second:02}Z"
    return {"apiVersion": f"kubeflow.org/{version}", "time": time, "fieldsV1": {"f:spec": fields}, **entry}


WRITES = {
    "a webhook of v2beta1 at the creation": ([write("v1", 0, V1_FIELDS)], "v1"),
    "an update in v2beta1": ([write("v1", 0, V1_FIELDS), write("v2beta1", 1, KUEUE_FIELDS)], "v1"),
    "an apply, which stands first": ([write("v2beta1", 1, KUEUE_FIELDS), write("v1", 0, V1_FIELDS)], "v1"),
    "both in one second": ([write("v2beta1", 0, KUEUE_FIELDS), write("v1", 0, V1_FIELDS)], "v1"),
    "started within the second of the create, with more fields": (
        [write("v2beta1", 0, LONG_FIELDS), write("v1", 0, {".": {}, **V1_FIELDS})],
        "v1",
    ),
    "started within the second of the apply, with more fields": (
        [write("v2beta1", 0, LONG_FIELDS), write("v1", 0, V1_FIELDS, operation="Apply")],
        "v1",
    ),
    "the creator has written again": (
        [write("v2beta1", 1, KUEUE_FIELDS), write("v1", 2, {".": {}, **V1_FIELDS})],
        "v1",
    ),
    "created in v2beta1": ([write("v2beta1", 0, V1_FIELDS), write("v1", 1, KUEUE_FIELDS)], "v2beta1"),
    "exported in v1 and created again": ([write("v1", 0, {**V1_FIELDS, "f:sshAuthMountPath": {}})], "v2beta1"),
    "scaled first": ([write("v1", 0, V1_FIELDS, subresource="scale"), write("v2beta1", 1, V1_FIELDS)], "v2beta1"),
    "no entry": ([], "v2beta1"),
}


@pytest.mark.parametrize(("writes", "version"), WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("read_in", ["v1", "v2beta1"])
def test_the_first_write_decides_the_version(writes: list[Json], version: str, read_in: str) -> None:
    job: Json = {"apiVersion": f"kubeflow.org/{read_in}", "metadata": {"managedFields": writes}}
    job["spec"] = {"mpiReplicaSpecs": {}, "sshAuthMountPath": "/root/.ssh"}
    assert MPIJOB.version_of(job).gvk.version == version
    stored_job = packed_adapter("", "", first_write=True).decode(encode(job)).unpack()
    assert MPIJOB.version_of(stored_job).gvk.version == version
    stored_job["status"] = {"version": "v1"}
    assert MPIJOB.version_of(stored_job).gvk.version == "v1"


async def test_a_job_applied_in_v1_that_is_replaced_in_v2beta1_before_its_first_status_is_one_of_v1() -> None:
    manifest = {**kubeflow_job("MPIJob"), "metadata": {"name": "a", "namespace": "default"}}
    async with cluster() as (server, api):
        path = f"/apis/{MPIJOB.gvk.api_version}/namespaces/default/mpijobs/a"
        query = (("fieldManager", "user"),)
        await api.request("PATCH", path, query, encode(manifest), "application/apply-patch+yaml")
        job = await api.get(V2BETA1.gvk, "default", "a")
        job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 1
        replaced = await api.replace(V2BETA1.gvk, "default", "a", job)
        assert "sshAuthMountPath" in replaced["spec"] and "status" not in replaced
        async with operating(server):
            (pod, *_) = await until_named(api, POD, "a-launcher", "a-worker-0")
            assert (controller_of(pod) or {})["apiVersion"] == "kubeflow.org/v1"
            stored = await api.get(MPIJOB.gvk, "default", "a")
            assert stored["status"]["version"] == "v1"


async def test_the_key_pair_is_made_once() -> None:
    async with cluster() as (server, api):
        async with operating(server):
            await create(api, "b", V2BETA1.gvk)
            await until_named(api, POD, "b-worker-0", "b-worker-1")
            (secret,) = (await api.list(SECRET, "default"))["items"]
        async with operating(server):
            await api.delete(POD, "default", "b-worker-1", grace_period_seconds=0)
            await until_named(api, POD, "b-worker-0", "b-worker-1")
        (after,) = (await api.list(SECRET, "default"))["items"]
        assert after["metadata"]["uid"] == secret["metadata"]["uid"] and after["data"] == secret["data"]
        assert set(secret["data"]) == {"ssh-privatekey", "ssh-publickey"}


async def test_a_secret_of_the_name_that_was_there_before_the_job_is_a_conflict_until_it_is_gone() -> None:
    async with cluster() as (server, api), operating(server):
        await api.create(SECRET, "default", TAKEN)
        await create(api, "b", V2BETA1.gvk)
        (job,) = await until_objects(api, MPIJOB.gvk, "default", conflicts, "the conflict is reported")
        condition = find_condition(job["status"]["conditions"], "NameConflict") or {}
        assert "Secret b-ssh" in condition["message"] and "was there before this job" in condition["message"]
        assert not (await api.list(POD, "default"))["items"]
        await api.delete(SECRET, "default", "b-ssh")
        await until_named(api, POD, "b-worker-0", "b-worker-1")


async def test_a_secret_whose_creator_was_lost_before_the_config_map_is_the_jobs_own() -> None:
    async with cluster() as (server, api):
        async with operating(server, loses_config_maps=True):
            await create(api, "b", V2BETA1.gvk)
            await until_named(api, SECRET, "b-ssh")
        assert not (await api.list(CONFIG_MAP, "default", "trainyard.dev/owner"))["items"]
        async with operating(server):
            await until_named(api, POD, "b-worker-0", "b-worker-1")


async def test_the_launcher_of_v1_may_exec_only_into_pods_that_belong_to_the_job() -> None:
    """While a pod has a worker's name and another owner there is neither a Role nor a launcher."""
    foreign: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-worker-1"}}
    foreign["spec"] = {"containers": [{"name": "c", "image": "example.invalid/i"}]}

    def executable(roles: list[Json]) -> list[list[str]]:
        return [rule["resourceNames"] for role in roles for rule in role["rules"] if rule["resources"] == ["pods/exec"]]

    async with cluster() as (server, api):
        await api.create(POD, "default", foreign)
        async with operating(server):
            await create(api, "a", MPIJOB.gvk)
            await until_objects(api, MPIJOB.gvk, "default", conflicts, "the conflict is reported")
            assert {name_of(pod) for pod in (await api.list(POD, "default"))["items"]} == {"a-worker-0", "a-worker-1"}
            assert not (await api.list(ROLE, "default"))["items"]
            await api.delete(POD, "default", "a-worker-1", grace_period_seconds=0)
            await until_named(api, POD, "a-launcher")
            assert executable((await api.list(ROLE, "default"))["items"]) == [["a-worker-0", "a-worker-1"]]
