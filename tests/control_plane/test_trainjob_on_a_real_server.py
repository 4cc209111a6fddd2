"""TrainJobs on a real control plane without JobSet and Kubeflow Trainer, and beside what Trainer's installation leaves.
Our operator is the ServiceAccount that `trainyard manifests` installs, with the runtimes that it prints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from tests.control_plane.real_operator import ending
from tests.control_plane.test_trainer_definitions import wait_until_served
from tests.support import running_operator
from tests.support.control_plane import ControlPlane
from tests.support.waiting import until_async
from tests.support.watched_objects import until_object, until_objects
from trainyard.app import other_controllers
from trainyard.app.config import shipped_files
from trainyard.app.install.installation import Install, access, shipped_objects
from trainyard.app.kubeconfig import ClusterAccess, read_kubeconfig
from trainyard.app.operating import OperatorOptions, OperatorProcess
from trainyard.client import ApiClient
from trainyard.core import Config
from trainyard.kinds import TRAINJOB, crds
from trainyard.objects import Json, encode, find_condition, name_of, uid_of
from trainyard.objects.resources import EVENT, POD, VALIDATING_WEBHOOK_CONFIGURATION

pytestmark = pytest.mark.cluster
TRAINER = "validator.trainer.kubeflow.org"
SERVED = 'trainyard_kind_served{group="trainer.kubeflow.org",kind="TrainJob"}'


@pytest.fixture
def options(peopled: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatorOptions]:
    """Of an operator with the rights of an installation for TrainJobs alone, in one namespace."""
    monkeypatch.setattr(other_controllers, "POLL_SECONDS", 0.2)
    install = Install(namespace=namespace, kinds=(TRAINJOB,))
    # Another test may have put Trainer's own definitions into this control plane.
    definitions = list(crds((TRAINJOB,)))
    apply(peopled, definitions, "--server-side", "--force-conflicts")
    for definition in definitions:
        wait_until_served(peopled, name_of(definition))
        peopled.wait_for(f"/apis/{TRAINJOB.gvk.api_version}/{definition['spec']['names']['plural']}")
    apply(peopled, [*access(install), *shipped_objects(install)], "--server-side", "--force-conflicts")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{install.names.operator}/token"
    code, answer = peopled.ask("POST", path, {"spec": {"expirationSeconds": 3600}})
    assert code == 201, answer
    ca = read_kubeconfig([peopled.kubeconfig]).ca
    account = ClusterAccess(peopled.url, namespace, answer["status"]["token"], ca)
    yield OperatorOptions(account, (TRAINJOB,), Config(program_files=shipped_files()), namespace)
    roles = f"{install.names.role}-jobs-with-roles"
    peopled.kubectl("delete", "clusterrole,clusterrolebinding", roles)


def apply(plane: ControlPlane, objects: list[Json], *arguments: str) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", *arguments, "-f", "-", stdin=encode(listed).decode())


@pytest.fixture
async def api(peopled: ControlPlane) -> AsyncIterator[ApiClient]:
    """The administrator's."""
    async with peopled.api() as client:
        yield client


operating = partial(running_operator.operating, seconds=10.0)


async def create(api: ApiClient, namespace: str, name: str, **trainer: Any) -> Json:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2, **trainer}}
    wire = {"apiVersion": TRAINJOB.gvk.api_version, "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}
    return await api.create(TRAINJOB.gvk, namespace, wire)


def has_ended(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions")
    return bool(find_condition(conditions or [], "Complete") or find_condition(conditions or [], "Failed"))


async def ended(api: ApiClient, namespace: str, name: str) -> Json:
    """Its last condition."""
    job = await until_object(api, TRAINJOB.gvk, namespace, name, has_ended, f"{name} has ended")
    return dict(job["status"]["conditions"][-1])


async def two_pods(api: ApiClient, namespace: str, job: Json) -> list[Json]:
    def run(pods: list[Json]) -> bool:
        return len(pods) == 2 and all(pod["status"].get("phase") == "Running" for pod in pods)

    labels = f"jobset.sigs.k8s.io/jobset-name={name_of(job)}"
    return await until_objects(api, POD, namespace, run, "two pods run", labels=labels)


def is_served(process: OperatorProcess) -> str:
    lines = process.metrics.render().decode().splitlines()
    return next((line.rpartition(" ")[2] for line in lines if line.startswith(SERVED)), "")


async def test_jobs_run_and_wrong_ones_fail(options: OperatorOptions, namespace: str, api: ApiClient) -> None:
    async with operating(options) as process:
        job = await create(api, namespace, "tj")
        wrong = await create(api, namespace, "wrong", env=[{"name": "PET_NNODES", "value": "9"}])
        failed = await ended(api, namespace, name_of(wrong))
        assert (failed["type"], failed["reason"]) == ("Failed", "InvalidSpec")
        assert "must not have reserved envs, invalid envs configured: [PET_NNODES]" in failed["message"]
        pods = await two_pods(api, namespace, job)
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["tj-node-0-0", "tj-node-0-1"]
        variables = {item["name"]: item.get("value") for item in pods[0]["spec"]["containers"][0]["env"]}
        assert (variables["PET_NNODES"], variables["PET_MASTER_ADDR"]) == ("2", "tj-node-0-0.tj")
        async with ending(api, namespace, [uid_of(job)]):
            assert (await ended(api, namespace, "tj"))["reason"] == "AllJobsCompleted"
        answers = process.metrics.render().decode()
        assert 'code="403"' not in answers and 'code="422"' not in answers


async def test_jobs_are_left_to_trainer_while_it_is_installed(
    options: OperatorOptions, namespace: str, api: ApiClient
) -> None:
    configuration = {
        "apiVersion": VALIDATING_WEBHOOK_CONFIGURATION.api_version,
        "kind": VALIDATING_WEBHOOK_CONFIGURATION.kind,
        "metadata": {"name": TRAINER},
    }
    async with operating(options) as process:
        begun = await create(api, namespace, "begun")
        await two_pods(api, namespace, begun)
        await api.create(VALIDATING_WEBHOOK_CONFIGURATION, "", configuration)
        try:
            await until_async(lambda: is_served(process), "no TrainJob is served", accept=lambda text: text == "0.0")
            notes = "involvedObject.name=begun,reason=NotServed"
            await until_objects(api, EVENT, namespace, bool, "the job has an event", fields=notes)
            later = await create(api, namespace, "later")
        finally:
            await api.delete(VALIDATING_WEBHOOK_CONFIGURATION, "", TRAINER)
        await until_async(lambda: is_served(process), "TrainJobs are served", accept=lambda text: text == "1.0")
        await two_pods(api, namespace, later)
        uids = [uid_of(begun), uid_of(later)]
        async with ending(api, namespace, uids):
            ends = await asyncio.gather(*(ended(api, namespace, name) for name in ("begun", "later")))
        assert [condition["type"] for condition in ends] == ["Complete", "Complete"]
