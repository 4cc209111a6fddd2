"""The operator under exactly the ServiceAccount that `trainyard manifests` gives it, through a life of each kind.

What it was not allowed is a permission that is missing from the table in app/install/operator_rbac.py; what it never
requested is one too many. The server judges it by RBAC as any other; what it sent is read from its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from tests.stories.harness import Cluster, Harness, Noted, looked, replicas, tf_job
from tests.stories.job_fixtures import PLAYS, chainer_job, elastic_job, mx_job, worker_set
from tests.stories.test_tensorboard import board
from tests.support.samples import KINDS_WITH_TEMPLATES, KUBEFLOW_ROLES, kubeflow_job
from tests.support.watched_objects import until_objects
from trainyard import kinds
from trainyard.app.config import shipped_config
from trainyard.app.install import installation, operator_rbac
from trainyard.app.install.installation import Install
from trainyard.app.install.operator_rbac import Permission
from trainyard.app.local import NOT_SERVED
from trainyard.client import ApiRequest, Forbidden
from trainyard.core import Event, Kind
from trainyard.kinds.kubeflow_v1.gang import POD_GROUPS
from trainyard.objects import GVK, Json, decode
from trainyard.objects.resources import EVENT
from trainyard.objects.structs import replace
from trainyard.operator import Operator
from trainyard.server.model import paths

pytestmark = pytest.mark.slow

PLACES = {
    "ServiceAccount": GVK("", "v1", "ServiceAccount", "serviceaccounts"),
    **{kind: GVK("rbac.authorization.k8s.io", "v1", kind, f"{kind.lower()}s") for kind in (
        "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    )},
}  # fmt: skip
VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


def permission_of(request: ApiRequest) -> Permission:
    """What RBAC is asked about a request."""
    target = paths.parse(request.path)
    assert target is not None, request.path
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    watched = dict(request.query).get("watch") in ("1", "true")
    read = "get" if target.name else "watch" if watched else "list"
    return Permission(target.group, resource, VERBS.get(request.method, read))


class Judged(Noted):
    """A connection that remembers what it was not allowed."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        super().__init__(cluster, token)
        self.denied: list[str] = []

    async def send(self, request: ApiRequest) -> bytes:
        try:
            return await super().send(request)
        except Forbidden as error:
            self.denied.append(error.message)
            raise


async def install(harness: Harness, install: Install) -> str:
    """Make the account and its permissions; a token for it."""
    await harness.cluster.another(install.namespace)
    for obj in installation.access(install):
        await harness.api.create(PLACES[obj["kind"]], obj["metadata"].get("namespace", ""), obj)
    account = f"/api/v1/namespaces/{install.namespace}/serviceaccounts/{install.names.operator}/token"
    answer = await harness.api.request("POST", account, body=b'{"spec":{}}', content_type="application/json")
    return str(decode(answer)["status"]["token"])


@asynccontextmanager
async def operator(harness: Harness, settings: Install) -> AsyncIterator[tuple[Operator, Judged]]:
    """An operator for these kinds, with these permissions, instead of the one with all of them."""
    await harness.cluster.stop_operator()
    api = Judged(harness.cluster, await install(harness, settings))
    place = settings.namespace if settings.namespaced else ""
    started = Operator(
        api,
        kinds.per_api_group(settings.kinds),
        replace(shipped_config(), missing_resources=NOT_SERVED),
        place,
        harness.clock,
    )
    try:
        await started.start()
        async with asyncio.timeout(harness.patience):
            await started.synced
        yield started, api
    finally:
        await started.stop()
        await api.close()


async def ends(harness: Harness, started: Operator, name: str) -> None:
    """The job succeeds, its children go, and so does the job."""
    await PLAYS[name].succeed(harness)
    await harness.nothing_left()
    harness.later(120)  # less than the life of a token
    started.resync()
    await harness.gone(harness.kind.gvk, "story")


WHOLE: Json = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 60}


async def life_of_tf_job(harness: Harness, started: Operator) -> None:
    """Every extra it can have: a default parameter server's file, and TensorBoard."""
    default_ps = {"replicas": 1, "tfReplicaType": "PS"}
    await harness.submit(tf_job(replicas("MASTER"), default_ps, tensorboard=board(harness.folder), **WHOLE))
    await harness.condition("Running")
    await ends(harness, started, "TfJob")


async def life_of_mx_job(harness: Harness, started: Operator) -> None:
    """In both groups. Edited while it is suspended: the Service follows."""
    for group in (kinds.MXJOB.gvk.group, *kinds.MXJOB.api.groups):
        job = mx_job(**WHOLE)
        await harness.submit({**job, "apiVersion": f"{group}/{kinds.MXJOB.gvk.version}"})
        await PLAYS["MxJob"].runs(harness)
        await harness.edit({"suspend": True})
        await harness.condition("Suspended")
        await harness.until_holds(lambda: not harness.running())
        await harness.edit({"suspend": False})
        await PLAYS["MxJob"].runs(harness)
        await ends(harness, started, "MxJob")


async def life_of_chainer_job(harness: Harness, started: Operator) -> None:
    """Its worker set grows: the set, its permissions and its files follow."""
    await harness.submit(chainer_job(sets={"ws": worker_set(1)}, **WHOLE))
    await harness.every_replica_runs(master=1, ws=1)
    await harness.edit({"workerSets": {"ws": {"replicas": 2}}})
    await harness.every_replica_runs(master=1, ws=2)
    await ends(harness, started, "ChainerJob")


async def life_of_elastic_job(harness: Harness, started: Operator) -> None:
    await harness.submit(elastic_job(**WHOLE))
    await PLAYS["ElasticJob"].runs(harness)
    await ends(harness, started, "ElasticJob")


async def life_of_kubeflow_job(kind: str, harness: Harness, started: Operator) -> None:
    """Its programs end by themselves."""
    job = kubeflow_job(kind, run_policy=WHOLE)
    for replica_set in job["spec"][KUBEFLOW_ROLES[kind][0]].values():
        replica_set["template"]["spec"]["containers"][0]["command"] = ["sleep", "1"]
    await harness.submit({**job, "metadata": {"name": "story"}})
    await harness.condition("Running")
    await harness.condition("Succeeded")
    await harness.nothing_left()
    harness.later(120)
    started.resync()
    await harness.gone(harness.kind.gvk, "story")


async def life_of_mpi_job(harness: Harness, started: Operator) -> None:
    """In both versions. A launcher that ends, and workers that do not."""
    await life_of_kubeflow_job("MPIJob", harness, started)
    job = kubeflow_job("MPIJob", run_policy={"cleanPodPolicy": "All"})
    for role, seconds in (("Launcher", "1"), ("Worker", "600")):
        container = job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0]
        container["command"] = ["sleep", seconds]
    await harness.submit({**job, "apiVersion": "kubeflow.org/v2beta1", "metadata": {"name": "story"}})
    await harness.condition("Succeeded")
    await harness.nothing_left()


LIVES: dict[str, Callable[[Harness, Operator], Awaitable[None]]] = {
    "TfJob": life_of_tf_job,
    "MxJob": life_of_mx_job,
    "ChainerJob": life_of_chainer_job,
    "ElasticJob": life_of_elastic_job,
    **{kind: partial(life_of_kubeflow_job, kind) for kind in KUBEFLOW_ROLES},
    "MPIJob": life_of_mpi_job,
}


def never_sent(kind: Kind) -> set[Permission]:
    """Permissions that are held for others to judge by: finalizers (see docs/rbac.md), and what a job's Role grants.
    And those for a gang scheduler, an autoscaler and the children of another operator, none of which is here."""
    granted = {Permission(*grant) for grant in operator_rbac.JOB_GRANTS.get(kind.gvk.kind, ())}
    absent = {gvk.plural for gvk in (*POD_GROUPS, *kind.roles.optional_resources)}
    adopted = {gvk.plural for version in kind.versions for gvk in version.roles.adopted_resources}
    granted |= {
        permission
        for permission in operator_rbac.permissions_of(kind)
        if permission.resource in absent or (permission.verb == "patch" and permission.resource in adopted)
    }
    return granted | {
        permission for permission in operator_rbac.permissions_of(kind) if permission.resource.endswith("/finalizers")
    }


async def repeats_an_event(harness: Harness, started: Operator) -> None:
    """The second of two equal events, as of a Pod that is created again, is a patch."""
    namespace = harness.namespace
    job: Json = {"apiVersion": "v1", "kind": "Job", "metadata": {"namespace": namespace, "name": "j", "uid": "u"}}
    for count in (1, 2):
        started._executor._recorder.record(job, [Event("Normal", "Repeated", "again")], "trainyard-operator")
        await until_objects(
            harness.api,
            EVENT,
            namespace,
            lambda events, count=count: [event["count"] for event in events] == [count],
            "the event is counted",
            fields="reason=Repeated",
        )


@pytest.mark.parametrize("namespaced", [False, True], ids=["cluster", "namespaced"])
@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
async def test_the_life_of_a_job_uses_every_permission_of_its_kind_and_no_other(
    harness: Harness, kind: Kind, namespaced: bool
) -> None:
    place = harness.namespace if namespaced else "trainyard"
    async with operator(harness, Install(namespace=place, kinds=(kind,), namespaced=namespaced)) as (started, api):
        await LIVES[kind.gvk.kind](harness, started)
        await repeats_an_event(harness, started)
        await looked(started, jobs=1 if kind.further_versions else 0)  # no TTL deletes an MPIJob of v2beta1
        assert api.denied == []
        used = {permission_of(request) for request in api.sent}
        assert operator_rbac.permissions_of(kind) - never_sent(kind) <= used <= operator_rbac.permissions_of(kind)


async def test_every_missing_permission_is_detected(harness: Harness) -> None:
    """That the server judges at all: without one of its permissions the operator is refused."""
    async with operator(harness, Install(kinds=(kinds.ELASTICJOB,))) as (_, api):
        role = PLACES["ClusterRole"]
        rules = operator_rbac.rules(
            operator_rbac.permissions_of(kinds.ELASTICJOB) - {Permission("", "services", "create")}
        )
        await harness.api.patch(role, "", "trainyard-operator", {"rules": rules})
        await harness.submit(elastic_job())
        condition = await harness.condition("Blocked")
        assert "services" in condition["message"]
        assert any('cannot create resource "services"' in request for request in api.denied)
