"""What a check sees of a server: an administrator's client, a fresh namespace, and raw HTTP.

    async with embedded() as yard: ...         a server of this process; `controllers=True` adds the workloads
    async with real(plane) as yard: ...        a real control plane
    async with remote(url, token, secure) ...  any other

Rules:
- Every wait has a deadline. A server that was broken on purpose gets a short one.
- What a subject made is removed when it ends, without waiting for it to go.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from trainyard.client import Api
from trainyard.objects import Json, decode, encode
from trainyard.server import CertificateAuthority, Server
from trainyard.testing.check_server.breaks import Break
from trainyard.testing.control_plane import ControlPlane
from trainyard.workloads import ControllerManager

SECONDS = 20.0
PATIENT = 90.0  # the namespaces that checks leave behind keep real controllers busy
SHORT = 0.5  # how long to wait for what a broken server will never say
MERGE = "application/merge-patch+json"
GROUPS = {
    "jobs": "apis/batch/v1",
    "deployments": "apis/apps/v1",
    "replicasets": "apis/apps/v1",
    "statefulsets": "apis/apps/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "roles": "apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "apis/rbac.authorization.k8s.io/v1",
    "clusterroles": "apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings": "apis/rbac.authorization.k8s.io/v1",
    "endpointslices": "apis/discovery.k8s.io/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
}
CLUSTERED = ("namespaces", "nodes", "clusterroles", "clusterrolebindings", "customresourcedefinitions")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    """An answer."""

    code: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    asked: str = field(default="", compare=False)

    @property
    def json(self) -> Any:
        return decode(self.body)

    def must(self, *codes: int) -> Any:
        """The object of an answer that must have one of these codes (any good one by default)."""
        good = self.code in codes if codes else 200 <= self.code < 300
        assert good, f"{self.asked}: {self.code} {self.body[:1000]!r}, wanted {codes or '2xx'}"
        return self.json

    def refused(self, code: int, reason: str, *words: str) -> Any:
        """The Status of an answer that must be this refusal, with these words in its message."""
        said = self.must(code)
        assert said["kind"] == "Status" and said["apiVersion"] == "v1", said
        assert said["status"] == "Failure" and said["code"] == code, said
        assert said.get("reason") == reason, said
        for word in words:
            assert word in said["message"], f"{word!r} is not in {said['message']!r}"
        return said


class Lines:
    """What an open watch says, as it comes."""

    def __init__(self, got: aiohttp.ClientResponse, broken: Break | None, seconds: float) -> None:
        self._got, self._broken, self._seconds = got, broken, seconds
        self.headers = {name.lower(): value for name, value in got.headers.items()}

    async def next(self, seconds: float | None = None) -> Any:
        """The next line, decoded. Raises TimeoutError, and EOFError at the end."""
        async with asyncio.timeout(seconds or self._seconds):
            line = await self._got.content.readline()
        if not line:
            raise EOFError("the watch has ended")
        if self._broken is not None:
            line = self._broken.altered(200, {}, line)[2]
        return decode(line)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """So many lines, as (type, name)."""
        lines = [await self.next() for _ in range(count)]
        return [(line["type"], line["object"]["metadata"].get("name", "")) for line in lines]

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first line of which that is true."""
        while True:
            line = await self.next()
            if wanted(line):
                return line

    async def rest(self) -> list[Any]:
        """Everything until the server ends it."""
        lines: list[Any] = []
        while True:
            try:
                lines.append(await self.next())
            except EOFError:
                return lines


@dataclass(frozen=True)
class Kind:
    """A custom resource that has been posted for a check."""

    group: str
    plural: str
    kind: str
    definition: Json
    collection: str

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"

    def path(self, name: str = "", sub: str = "") -> str:
        return "/".join(filter(None, (self.collection, quote(name), sub)))

    def obj(self, name: str, **more: Any) -> Json:
        meta = {"name": name, **more.pop("metadata", {})}
        version = self.collection.split("/")[3]
        return {"apiVersion": f"{self.group}/{version}", "kind": self.kind, "metadata": meta, **more}


class Subject:
    """One server, for one check."""

    def __init__(self, url: str, token: str, secure: ssl.SSLContext | None, *, is_real: bool, api: Api) -> None:
        self.url, self.token, self.real, self.api = url, token, is_real, api
        self.namespace = ""
        self.broken: Break | None = None
        self._compact: Callable[[], Awaitable[None]] | None = None
        self._door: Callable[[], Awaitable[str]] | None = None
        self._secure = secure
        self._session = aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        self._tag = f"{secrets.token_hex(3)}{next(_numbers)}"
        self._made: list[str] = []
        self._furnished = False

    @property
    def seconds(self) -> float:
        return SHORT if self.broken else PATIENT if self.real else SECONDS

    # --- asking

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Any = None,
        user: Any = None,
        **query: Any,
    ) -> Reply:
        """One request. Bytes are sent as they are, without a Content-Type unless `headers` have one.

        `headers` is a mapping, `user` whom the administrator acts for. A `query` name that is a word of Python gets a
        `_` behind it. The types are loose, so that a dict of parameters can be spread.
        """
        target, all_headers, data = self._request(method, path, body, headers, user, query)
        async with (
            asyncio.timeout(SECONDS),
            self._session.request(
                method, target, data=data, headers=all_headers, ssl=self._secure or True, allow_redirects=False
            ) as got,
        ):
            said = await got.read()
        code, back = got.status, {name.lower(): value for name, value in got.headers.items()}
        if self.broken is not None:
            code, back, said = self.broken.altered(code, back, said)
        return Reply(code, back, said, f"{method} {path} {dict(query) or ''}")

    def _request(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
        user: str | None,
        query: Mapping[str, Any],
    ) -> tuple[URL, dict[str, str], bytes | None]:
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", "Authorization": f"Bearer {self.token}"}
        data = body if isinstance(body, bytes | None) else encode(body)
        if data is not None and not isinstance(body, bytes):
            sent["Content-Type"] = MERGE if method == "PATCH" else "application/json"
        if user is not None:
            sent["Impersonate-User"] = user
        sent.update(headers or {})
        sent = {name: value for name, value in sent.items() if value}
        if self.broken is not None:
            sent = self.broken.heard(sent)
        pairs = {name.rstrip("_"): value for name, value in query.items()}
        return URL(self.url + path + (f"?{urlencode(pairs)}" if pairs else ""), encoded=True), sent, data

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Any = None, **query: Any) -> AsyncIterator[Lines]:
        """An open watch, answered with 200."""
        query = {"watch": "true", "timeoutSeconds": "60", **query}
        target, all_headers, _ = self._request("GET", path, None, headers, None, query)
        timeout = aiohttp.ClientTimeout(total=120, sock_connect=10)
        request = self._session.get(
            target, headers=all_headers, ssl=self._secure or True, timeout=timeout, read_bufsize=1 << 22
        )
        async with request as got:
            code = got.status if self.broken is None else self.broken.altered(got.status, {}, b"")[0]
            assert code == 200, (path, query, code, await got.read() if got.status != 200 else b"")
            yield Lines(got, self.broken, self.seconds)

    async def until(self, true: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until the answer is true, and give it. Raises AssertionError when the deadline has passed."""
        end = time.monotonic() + self.seconds
        while not (found := await true()):
            assert time.monotonic() < end, "it did not come true in time"
            await asyncio.sleep(0.02)
        return found

    async def gone(self, path: str) -> None:
        """Wait until it is not there."""

        async def away() -> bool:
            return (await self.ask("GET", path)).code == 404

        await self.until(away)

    async def forget(self) -> None:
        """The past is compacted away: versions before now are gone, as they are in any cluster after some minutes."""
        assert self._compact is not None, "this subject cannot compact; name its etcd"
        await self._compact()

    async def secure_door(self) -> tuple[str, int]:
        """Where TLS is spoken: host and port."""
        found = URL(await self._door() if self._door is not None else self.url)
        assert found.scheme == "https" and found.host and found.port, found
        return found.host, found.port

    # --- names, paths and objects

    def name(self, word: str) -> str:
        """A name that nobody else uses, for cluster-scoped things, too."""
        return f"{word}-{self._tag}"

    def at(self, plural: str, name: str = "", sub: str = "", namespace: str | None = None) -> str:
        """The path of a built-in resource: a collection in the check's namespace, an object, or a subresource."""
        where = self.namespace if namespace is None else namespace
        parts = [GROUPS.get(plural, "api/v1")]
        parts += ["namespaces", where] if where and plural not in CLUSTERED else []
        return "/" + "/".join([*parts, plural, *filter(None, (quote(name), sub))])

    def remove(self, path: str) -> None:
        """That object is to go at the end, finalizers or not."""
        self._made.append(path)

    async def map(self, name: str, /, **meta: Any) -> Json:
        """A ConfigMap, made."""
        data = meta.pop("data", None)
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
        made: Json = (await self.ask("POST", self.at("configmaps"), {**obj, "data": data} if data else obj)).must(201)
        return made

    async def furnished(self) -> None:
        """Pods can be made in the namespace."""
        if not self._furnished:
            if self.real:
                path = self.at("serviceaccounts", "default")

                async def there() -> bool:
                    return (await self.ask("GET", path)).code == 200

                await self.until(there)
            self._furnished = True

    async def pod(self, name: str, /, *, meta: Json | None = None, **spec: Any) -> Json:
        """A pod, made. Without a node it stays pending."""
        await self.furnished()
        containers = spec.pop("containers", [{"name": "main", "image": "busybox:1"}])
        obj: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(meta or {})}}
        obj["spec"] = {"containers": containers, "terminationGracePeriodSeconds": 30, **spec}
        made: Json = (await self.ask("POST", self.at("pods"), obj)).must(201)
        return made

    async def crd(self, *, schema: Json | None = None, version: Json | None = None, **spec: Any) -> Kind:
        """A definition of a group of its own, served. `version` is laid over its only version, `spec` over its spec."""
        number = next(_numbers)
        group, plural, kind = f"g{self._tag}-{number}.example.org", "things", "Thing"
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        first = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or loose}}
        obj: Json = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "singular": "thing", "kind": kind, "listKind": "ThingList"},
                "versions": [{**first, **(version or {})}],
                **spec,
            },
        }
        path = self.at("customresourcedefinitions", f"{plural}.{group}")
        made = (await self.ask("POST", self.at("customresourcedefinitions"), obj)).must(201)
        self.remove(path)
        first_served = next(one["name"] for one in obj["spec"]["versions"] if one["served"])
        where = f"/namespaces/{self.namespace}" if obj["spec"]["scope"] == "Namespaced" else ""
        collection = f"/apis/{group}/{first_served}{where}/{plural}"

        async def served() -> bool:
            return (await self.ask("GET", collection)).code == 200

        await self.until(served)
        return Kind(group, plural, kind, made, collection)

    # --- beginning and end

    async def settle(self) -> None:
        self.namespace = self.name("check")
        namespaces = self.at("namespaces")
        (await self.ask("POST", namespaces, {"metadata": {"name": self.namespace}, **_NAMESPACE})).must(201)
        self.remove(self.at("namespaces", self.namespace))

    async def close(self) -> None:
        self.broken = None
        try:
            if self.real:
                for path in reversed(self._made):
                    await self._drop(path)
        finally:
            await self._session.close()
            await self.api.close()

    async def _drop(self, path: str) -> None:
        if "/namespaces/" in path and path.endswith(self.namespace):
            for plural in ("configmaps", "pods", "jobs", "secrets"):  # what a check holds back with a finalizer
                for item in (await self.ask("GET", self.at(plural))).json.get("items", ()):
                    if item["metadata"].get("finalizers"):
                        free = {"metadata": {"finalizers": None}}
                        await self.ask("PATCH", self.at(plural, item["metadata"]["name"]), free)
        await self.ask("DELETE", path)


_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace"}


@asynccontextmanager
async def embedded(*, controllers: bool = False, server: Server | None = None) -> AsyncIterator[Subject]:
    """A fresh server of this process."""
    async with AsyncExitStack() as stack:
        token = secrets.token_urlsafe(16)
        running = server or Server(token=token)
        await running.start()
        stack.push_async_callback(running.stop)
        if controllers:
            helping = Api(running.url, token)
            stack.push_async_callback(helping.close)
            workloads = ControllerManager(helping, time.time, "a certificate authority")
            await workloads.start()
            stack.push_async_callback(workloads.stop)
        yard = Subject(running.url, token, None, is_real=False, api=Api(running.url, token))

        async def compact() -> None:
            running.log.compact(running.log.revision)

        async def door() -> str:
            with TemporaryDirectory() as folder:
                await running.start_tls(CertificateAuthority.new(time.time()).server_context(Path(folder)))
            return running.tls_url

        yard._compact, yard._door = compact, door
        stack.push_async_callback(yard.close)
        await yard.settle()
        yield yard


@asynccontextmanager
async def remote(url: str, token: str, secure: ssl.SSLContext | None, etcd: str = "") -> AsyncIterator[Subject]:
    """A real server somewhere. `etcd` is the URL of its store, for the checks about a past that is gone."""
    yard = Subject(url, token, secure, is_real=True, api=Api(url, token, secure))
    if etcd:
        yard._compact = lambda: _compact_etcd(etcd)
    try:
        await yard.settle()
        yield yard
    finally:
        await yard.close()


@asynccontextmanager
async def real(plane: ControlPlane) -> AsyncIterator[Subject]:
    """A real control plane that is up."""
    etcd = f"http://127.0.0.1:{plane.places.etcd}"
    async with remote(plane.url, plane.token(), plane.identities.secure(""), etcd) as yard:
        yield yard


async def _compact_etcd(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/v3/kv/range", json={"key": "AA=="}) as got:
            revision = (await got.json())["header"]["revision"]
        async with session.post(f"{url}/v3/kv/compaction", json={"revision": revision}) as got:
            assert got.status in (200, 400), await got.text()  # 400: somebody else has just done it
