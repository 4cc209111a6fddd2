"""Shared by the tests of the operator's process: a server with TLS and accounts, and helpers that call it."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.watched_objects import until_objects
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CRD, SERVICE_ACCOUNT
from trainyard.server import CertificateAuthority, Server

TFJOB = kinds.TFJOB.gvk
RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE = GVK(RBAC, "v1", "ClusterRole", "clusterroles")
BINDING = GVK(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings")

READ = ["get", "list", "watch"]
NARROW = [
    {"apiGroups": [TFJOB.group], "resources": ["tfjobs"], "verbs": [*READ, "patch"]},
    {"apiGroups": [TFJOB.group], "resources": ["tfjobs/status"], "verbs": ["patch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*READ, "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": READ},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": [*READ, "create", "delete", "patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": [*READ, "create", "delete", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "create", "patch"]},
]
"""What serving TfJobs needs: nothing of StatefulSets, and no word about other kinds."""


def tf_job(name: str = "mnist", namespace: str = "default", **spec: Any) -> Json:
    container = {"name": "tensorflow", "image": "example/train", "command": ["train"]}
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    roles = [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": TFJOB.api_version,
        "kind": TFJOB.kind,
        "metadata": meta,
        "spec": {"replicaSpecs": roles, **spec},
    }


class Site:
    """A server whose clock the test may move, and the folder of a pod's service account."""

    def __init__(self, server: Server, api: ApiClient, folder: Path, tls: ssl.SSLContext) -> None:
        self.server = server
        self._tls = tls
        self.api = api  # of the administrator
        self.folder = folder
        self.shift = 0.0

    @property
    def env(self) -> dict[str, str]:
        host, port = self.server.tls_url.removeprefix("https://").rsplit(":", 1)
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    async def account(self, rules: list[Json]) -> None:
        """The ServiceAccount `robot` with these rules everywhere, and its token in the folder."""
        meta = {"name": "robot"}
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        await self.api.create(
            SERVICE_ACCOUNT, "default", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        )
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
        await self.api.create(CLUSTER_ROLE, "", role)
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "robot"}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": ref}
        await self.api.create(BINDING, "", {**binding, "subjects": [subject]})
        await self.new_token()

    async def new_token(self) -> None:
        """As the kubelet does it: a whole new file takes the place of the old one."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": "robot"},
            "spec": {"expirationSeconds": 600},
        }
        answer = await self.api.create(SERVICE_ACCOUNT, "default", body, "token")
        (self.folder / "token.new").write_text(answer["status"]["token"])
        (self.folder / "token.new").replace(self.folder / "token")

    def rotate(self) -> None:
        """The server has a certificate of a new authority from here on, and the folder has that authority's."""
        authority = CertificateAuthority.new(time.time())
        keys = self.folder.parent / "keys"
        authority.server_context(keys)
        self._tls.load_cert_chain(keys / "apiserver.crt", keys / "apiserver.key")
        (self.folder / "ca.new").write_text(authority.pem)
        (self.folder / "ca.new").replace(self.folder / "ca.crt")

    async def until(self, gvk: GVK, true: Callable[[list[Json]], bool], namespace: str = "default") -> list[Json]:
        """Wait until that holds of all objects of a resource."""
        return await until_objects(self.api, gvk, namespace, true, f"the condition of {gvk.plural}", seconds=20)

    async def says(self, name: str, kind: str, namespace: str = "default") -> Json:
        """Wait for that condition of that job."""

        def has_condition(jobs: list[Json]) -> bool:
            return any(kind in types_of(job) for job in jobs if job["metadata"]["name"] == name)

        jobs = await self.until(TFJOB, has_condition, namespace)
        return next(job for job in jobs if job["metadata"]["name"] == name)


def types_of(job: Json) -> set[str]:
    conditions = job.get("status", {}).get("conditions") or []
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


@asynccontextmanager
async def running_site(folder: Path, served: tuple[Any, ...] = (kinds.TFJOB,)) -> AsyncIterator[Site]:
    """A server with TLS and the CRDs of these kinds; the folder of a service account without a token."""
    site: list[Site] = []
    server = Server(token="admin", now=lambda: time.time() + (site[0].shift if site else 0.0))
    await server.start()
    authority = CertificateAuthority.new(time.time())
    keys = folder / "keys"
    account = folder / "account"
    for subfolder in (keys, account):
        subfolder.mkdir()
    tls = authority.server_context(keys)
    await server.start_tls(tls)
    (account / "ca.crt").write_text(authority.pem)
    (account / "namespace").write_text("default")
    async with ApiClient(server.url, "admin") as api:
        for kind in served:
            await api.create(CRD, "", kinds.crd(kind))
        site.append(Site(server, api, account, tls))
        try:
            yield site[0]
        finally:
            await server.stop()
