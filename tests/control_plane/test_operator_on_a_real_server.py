"""The operator's process on the real API server: as the ServiceAccount that we install, with its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import running_operator
from tests.support.control_plane import ControlPlane
from tests.support.waiting import until_async
from tests.support.watched_objects import until_object
from trainyard.app.config import shipped_files
from trainyard.app.install.installation import Install, access
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.operating import (
    OperatorOptions,
    OperatorProcess,
    find_cluster,
    lease_identity,
    lease_timings,
    parse_kinds,
)
from trainyard.client import ApiClient
from trainyard.core import Config
from trainyard.objects import GVK, Json, encode
from trainyard.objects.resources import LEASE

pytestmark = pytest.mark.cluster
operating = partial(running_operator.operating, seconds=10.0)
TFJOB = GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")


@pytest.fixture
def account(installed: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The folder of a pod that runs as the operator's ServiceAccount, installed as `trainyard manifests` says."""
    install = Install(namespace=namespace)
    items = access(install)
    installed.kubectl("apply", "-f", "-", stdin=encode({"apiVersion": "v1", "kind": "List", "items": items}).decode())
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{install.names.operator}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    code, answer = installed.ask("POST", path, body)
    assert code == 201, answer
    installed.wait_for(f"/apis/{TFJOB.api_version}/tfjobs")  # just after its definition it says 429 for a moment
    (tmp_path / "token").write_text(answer["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(read_kubeconfig([installed.kubeconfig]).ca)
    (tmp_path / "namespace").write_text(namespace)
    yield tmp_path
    for kind in ("clusterrolebinding", "clusterrole"):
        installed.kubectl("delete", kind, install.names.operator)


def options(plane: ControlPlane, account: Path, **more: Any) -> OperatorOptions:
    url = urlsplit(plane.url)
    env = {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}
    here = find_cluster(env, folder=account)
    config = Config(program_files=shipped_files())
    served = parse_kinds("tfjob,mxjob,elasticjob")
    place = lease_identity({}, served, here.namespace)  # a lease of this test's own
    return OperatorOptions(here, served, config, lease=place, timings=lease_timings(15), **more)


def lease_name(namespace: str) -> str:
    return f"trainyard-elasticjob-mxjob-tfjob.{namespace}"


def tf_job(name: str) -> Json:
    container = {"name": "tensorflow", "image": "example/train", "command": ["train"]}
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    return {"apiVersion": TFJOB.api_version, "kind": TFJOB.kind, "metadata": {"name": name}, "spec": spec}


async def created(api: ApiClient, namespace: str, name: str) -> None:
    async with asyncio.timeout(30):
        listed = await api.list(TFJOB, namespace, field_selector=f"metadata.name={name}")
        revision = listed["metadata"]["resourceVersion"]
        async for _ in api.watch(TFJOB, namespace, revision, field_selector=f"metadata.name={name}"):
            status = (await api.get(TFJOB, namespace, name)).get("status") or {}
            if any(condition["type"] == "Created" for condition in status.get("conditions") or ()):
                return


async def test_two_operators_share_one_lease_and_no_request_of_theirs_is_refused(
    installed: ControlPlane, namespace: str, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.app.operating.RELEASE_SECONDS", 5.0)  # a server that is slow today may take its time
    async with installed.api() as api:
        async with operating(options(installed, account)) as operator_process:
            creation = asyncio.create_task(created(api, namespace, "a"))
            await api.create(TFJOB, namespace, tf_job("a"))
            await creation
            async with operating(options(installed, account)) as two:
                await until_async(two.ready, "the standby is ready", accept=lambda missing: missing == "")
                assert (leads(operator_process), leads(two)) == (True, False)
        spec = (await api.get(LEASE, "default", lease_name(namespace)))["spec"]
        assert not spec.get("holderIdentity") and spec["leaseDurationSeconds"] == 1
        async with operating(options(installed, account)) as three:
            creation = asyncio.create_task(created(api, namespace, "b"))
            await api.create(TFJOB, namespace, tf_job("b"))
            await creation
            assert leads(three)
        spec = (await api.get(LEASE, "default", lease_name(namespace)))["spec"]
        assert spec["leaseTransitions"] == 1
    for process in (operator_process, two, three):
        answer = process.metrics.render().decode()
        assert 'code="403"' not in answer and 'code="401"' not in answer and 'code="422"' not in answer


def leads(operator_process: OperatorProcess) -> bool:
    return "\ntrainyard_leader 1.0\n" in operator_process.metrics.render().decode()


async def test_a_deleted_lease_is_created_again(installed: ControlPlane, namespace: str, account: Path) -> None:
    async with installed.api() as api, operating(options(installed, account)):
        await exists(api, namespace)
        await api.delete(LEASE, "default", lease_name(namespace))
        await exists(api, namespace)


async def exists(api: ApiClient, namespace: str) -> None:
    await until_object(api, LEASE, "default", lease_name(namespace), bool, "there is a lease")
