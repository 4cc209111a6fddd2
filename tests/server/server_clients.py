"""Two ways to ask the server: its verbs as plain calls, and a real client over HTTP. And objects to ask with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.waiting import until_async
from trainyard.objects import decode, encode
from trainyard.server import RevisionLog, Server
from trainyard.server.builtin import BUILT_IN
from trainyard.server.model.errors import StatusError
from trainyard.server.model.requests import Request, Response, Watch
from trainyard.server.model.resources import Registry
from trainyard.server.model.users import ADMIN, User
from trainyard.server.patch.dispatch import MERGE
from trainyard.server.verbs import Verbs

Json = dict[str, Any]
START = 1_800_000_000.0
JSON = "application/json"


class Cluster:
    """The verbs over a new log, with a clock that a test moves."""

    def __init__(self, checks: Any = None, keep: int = 20_000) -> None:
        self.now = START
        self.log = RevisionLog(keep)
        self.verbs = Verbs(self.log, Registry(BUILT_IN), checks or {}, lambda: self.now)
        self.user = ADMIN
        self.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})

    def raw(self, method: str, path: str, body: bytes = b"", kind: str = "", accept: str = "", **query: str) -> Any:
        return self.verbs.answer(Request(method, path, query, body, kind, accept, self.user))

    @contextmanager
    def acting(self, user: User) -> Iterator[None]:
        """Send requests as this user, for a while."""
        before, self.user = self.user, user
        try:
            yield
        finally:
            self.user = before

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str) -> Json:
        """The decoded answer. Raises Refused as the verbs do."""
        sent = b"" if body is None else encode(body)
        answer = self.raw(method, path, sent, kind if sent else "", **query)
        assert isinstance(answer, Response), answer
        if answer.code == 404:
            raise StatusError(404, "NotFound", answer.body.decode())  # a path that nobody serves: plain text
        return dict(decode(answer.body))

    def make(self, path: str, obj: Json, **query: str) -> Json:
        return self.ask("POST", path, obj, **query)

    def get(self, path: str, **query: str) -> Json:
        return self.ask("GET", path, **query)

    def merge(self, path: str, patch: Any, **query: str) -> Json:
        return self.ask("PATCH", path, patch, MERGE, **query)

    def delete(self, path: str, body: Any = None, **query: str) -> Json:
        return self.ask("DELETE", path, body, **query)

    def watch(self, path: str, **query: Any) -> Watch:
        answer = self.raw("GET", path, watch="true", **query)
        assert isinstance(answer, Watch), answer
        return answer

    def refused(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> StatusError:
        """The refusal that this request must meet."""
        with pytest.raises(StatusError) as caught:
            self.ask(method, path, body, kind, **query)
        return caught.value


PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SERVICES = "/api/v1/namespaces/default/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.org/v1/namespaces/default/things"


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"


def account(name: str, **more: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}, **more}


def role(name: str, *rules: Json, kind: str = "Role") -> Json:
    api_version = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "rules": list(rules)}


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> Json:
    policy_rule: Json = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**policy_rule, "resourceNames": names.split()} if names else policy_rule


def binding(name: str, to: str, *accounts: str, kind: str = "RoleBinding", role_kind: str = "Role") -> Json:
    """A binding of a role to ServiceAccounts of the namespace `default`."""
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": role_kind, "name": to},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account} for account in accounts],
    }


def config_map(name: str, **more: Any) -> Json:
    meta = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more}


def pod(name: str, **spec: Any) -> Json:
    containers = spec.pop("containers", [{"name": "main", "image": "busybox:1"}])
    meta = {"name": name, **spec.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def job(name: str, **spec: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def crd(plural: str = "things", kind: str = "Thing", group: str = "example.org", **version: Any) -> Json:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["replicas"],
                "properties": {
                    "replicas": {"type": "integer", "minimum": 0},
                    "mode": {"type": "string", "default": "fast", "enum": ["fast", "slow"]},
                    "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    first = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{**first, "subresources": {"status": {}}, **version}],
        },
    }


def custom_object(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "example.org/v1",
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": {"replicas": 1, **spec},
    }


class Client:
    """A few lines over aiohttp, so that the server is tested from outside."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Json]:
        data = None if body is None else encode(body)
        headers: Mapping[str, str] = {"Content-Type": MERGE if method == "PATCH" else "application/json"}
        async with self.session.request(method, self.url + path, data=data, headers=headers, params=query) as got:
            return got.status, decode(await got.read())

    async def make(self, path: str, obj: Json) -> Json:
        code, created = await self.ask("POST", path, obj)
        assert code == 201, created
        return created

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[AsyncIterator[Json]]:
        async with self.session.get(self.url + path, params={"watch": "true", **query}) as got:
            assert got.status == 200, await got.text()
            yield self._lines(got)

    async def _lines(self, got: aiohttp.ClientResponse) -> AsyncIterator[Json]:
        async for line in got.content:
            yield decode(line)


async def until_listeners(server: Server, resource: str, count: int) -> None:
    """Wait until so many watches of the resource are open."""
    awaited = f"{count} watches of {resource}"
    await until_async(lambda: server.hub.listener_count(resource), awaited, accept=lambda number: number == count)


async def following(lines: AsyncIterator[Json], count: int) -> list[tuple[str, str]]:
    """The next lines, as (type, name)."""
    events: list[Any] = []
    async with asyncio.timeout(10):
        while len(events) < count:
            line = await anext(lines)
            events.append((line["type"], line["object"].get("metadata", {}).get("name", "")))
    return events
