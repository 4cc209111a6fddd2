"""The operator as the ServiceAccount that we install, through a life of each kind on a real API server.

The audit log tells what it asked: a permission that was denied is missing, one that was never asked for is one too
many. KWOK plays the node, and the ends of pods are written here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import AuditedRequest, of
from tests.support.samples import sample
from tests.support.waiting import until_async
from tests.support.watched_objects import until_gone, until_object, until_objects
from trainyard import kinds
from trainyard.app.config import shipped_files
from trainyard.app.install import operator_rbac
from trainyard.app.install.installation import Install, access, definitions, namespace
from trainyard.app.install.operator_rbac import Permission
from trainyard.app.kubeconfig import ClusterAccess, read_kubeconfig
from trainyard.app.operating import OperatorOptions, OperatorProcess, lease_identity
from trainyard.cli.install_manifests import to_yaml
from trainyard.client import ApiClient, NotFound
from trainyard.core import Config, Kind
from trainyard.objects import GVK, Json, is_condition_true, name_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import NATIVE_POD_GROUP, POD

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KINDS = tuple(kind for kind in kinds.KINDS if kind.api.installed_by_default)
INSTALL = Install(kinds=KINDS)
USER = f"system:serviceaccount:{INSTALL.namespace}:{INSTALL.names.operator}"
ACCOUNT = f"/api/v1/namespaces/{INSTALL.namespace}/serviceaccounts/{INSTALL.names.operator}/token"
PATIENCE = 60.0


def job_of(kind: Kind) -> Json:
    """A job with all that its kind can have, that takes itself away."""
    job = sample(kind.gvk.kind)
    spec = {**job["spec"], "cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1}
    spec.pop("RuntimeId", None)
    if kind.gvk.kind == "TfJob":
        spec["tensorboard"] = {"logDir": "/tmp/tensorflow"}
        spec["replicaSpecs"] = [*spec["replicaSpecs"], {"replicas": 1, "tfReplicaType": "PS"}]
    return {**job, "apiVersion": kind.gvk.api_version, "metadata": {"name": "example"}, "spec": spec}


async def until_condition(api: ApiClient, gvk: GVK, condition: str) -> None:
    """Wait until that condition of the job is true."""

    def accept(job: Json) -> bool:
        return is_condition_true((job.get("status") or {}).get("conditions"), condition)

    await until_object(api, gvk, "default", "example", accept, f"the job is {condition}", seconds=PATIENCE)


async def end_pods(api: ApiClient, uid: str) -> None:
    """Every pod of the job that runs succeeds, its containers with 0, until this is cancelled."""
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    while True:
        items = await api.list(POD, "default", f"{OWNER}={uid}")
        for pod in items["items"]:
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]:
                ends = [
                    {
                        "name": container["name"],
                        "image": "i",
                        "imageID": "",
                        "ready": False,
                        "restartCount": 0,
                        "state": done,
                    }
                    for container in pod["spec"]["containers"]
                ]
                with contextlib.suppress(NotFound):  # it went with its job
                    status = {"status": {"phase": "Succeeded", "containerStatuses": ends}}
                    await api.patch(POD, "default", name_of(pod), status, "status")
        async for _ in api.watch(POD, "default", items["metadata"]["resourceVersion"], f"{OWNER}={uid}"):
            break


async def life(api: ApiClient, kind: Kind) -> None:
    """The job runs, is edited where edits take effect, succeeds, and is deleted."""
    gvk = kind.gvk
    created = await api.create(gvk, "default", job_of(kind))
    await until_condition(api, gvk, "Running")
    if gvk.kind == "MxJob":
        await api.patch(gvk, "default", "example", {"spec": {"suspend": True}})
        await until_condition(api, gvk, "Suspended")
        await api.patch(gvk, "default", "example", {"spec": {"suspend": False}})
        await until_condition(api, gvk, "Running")
    if gvk.kind == "ChainerJob":
        await api.patch(gvk, "default", "example", {"spec": {"workerSets": {"ws0": {"replicas": 3}}}})
        await until_objects(
            api, POD, "default", lambda pods: len(pods) == 4, "four pods", labels=f"{OWNER}={uid_of(created)}"
        )
    ending = asyncio.create_task(end_pods(api, uid_of(created)))
    await until_gone(api, gvk, "default", "example", seconds=PATIENCE)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)


@asynccontextmanager
async def operator(plane: ControlPlane) -> AsyncIterator[None]:
    plane.kubectl("apply", "-f", "-", stdin=to_yaml(definitions(INSTALL.kinds)))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    for kind in kinds.per_api_group(INSTALL.kinds):  # just after its definition a resource says 429 for a moment
        plane.wait_for(f"/apis/{kind.gvk.api_version}/{kind.gvk.plural}")
    plane.kubectl("apply", "-f", "-", stdin=to_yaml([namespace(INSTALL), *access(INSTALL)]))
    plane.add_node("node-1")
    code, answer = plane.ask("POST", ACCOUNT, {"spec": {"expirationSeconds": 3600}})
    assert code == 201, answer
    who = ClusterAccess(plane.url, INSTALL.namespace, answer["status"]["token"], read_kubeconfig([plane.kubeconfig]).ca)
    config = Config(program_files=shipped_files())
    stop = asyncio.Event()
    served = kinds.per_api_group(INSTALL.kinds)
    options = OperatorOptions(who, served, config, lease=lease_identity({}, served))
    task = asyncio.create_task(OperatorProcess(options).run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


def permission_of(request: AuditedRequest) -> Permission:
    return Permission(request.group, request.resource, request.verb)


def never_asked() -> set[Permission]:
    """Finalizers (see docs/rbac.md), what is held to be granted, and PodGroups, which this control plane does not have:
    control_plane/test_native_gangs.py asks for them."""
    held = operator_rbac.default_permissions(KINDS) | operator_rbac.opt_in_permissions(KINDS)
    granted = {Permission(*rule) for permission in operator_rbac.JOB_GRANTS.values() for rule in permission}
    groups = (NATIVE_POD_GROUP.group, NATIVE_POD_GROUP.plural)
    return granted | {
        permission for permission in held if permission.resource.endswith("/finalizers") or permission[:2] == groups
    }


async def test_every_right_is_used_and_none_is_missed() -> None:
    async with ControlPlane() as plane, operator(plane), plane.api() as api:
        await asyncio.gather(*(life(api, kind) for kind in kinds.per_api_group(KINDS)))
        requests = await until_async(
            lambda: asyncio.to_thread(lambda: of(USER, plane.audit.since())),
            "the lease is renewed",
            accept=lambda listed: ("leases", "patch") in {(request.resource, request.verb) for request in listed},
        )
        assert [request for request in requests if not request.allowed or request.code == 403] == []
        held = operator_rbac.default_permissions(KINDS) | operator_rbac.opt_in_permissions(KINDS)
        held |= {Permission(*operator_rbac.LEASES, verb) for verb, _ in operator_rbac.LEASE_CALLS}
        assert {permission_of(request) for request in requests} == held - never_asked()
