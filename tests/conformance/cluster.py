"""The handle through which a check talks to the server under test: a client, a fresh namespace, raw HTTP.

Rules:
- Every wait has a deadline, which is short for a mutated server.
- `close` deletes what was registered for deletion, without waiting for it to disappear.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from tests.conformance.mutations import Mutation
from tests.conformance.responses import Response, WatchStream
from tests.support.waiting import until_async
from trainyard.objects import Json, encode

TIMEOUT = 20.0
REAL_TIMEOUT = 90.0  # deleted namespaces of earlier checks keep the controllers of a real cluster busy
MUTATED_TIMEOUT = 0.5  # a mutated server may never send what a check waits for
MERGE_PATCH = "application/merge-patch+json"
API_PATHS = {
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
    "podgroups": "apis/scheduling.k8s.io/v1beta1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
}
CLUSTER_SCOPED = ("namespaces", "nodes", "clusterroles", "clusterrolebindings", "customresourcedefinitions")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class CustomResource:
    """A custom resource whose definition was created for a check."""

    group: str
    plural: str
    kind: str
    definition: Json
    collection: str  # the path of its first served version

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"

    def path(self, name: str = "", subresource: str = "") -> str:
        return "/".join(filter(None, (self.collection, quote(name), subresource)))

    def obj(self, name: str, **fields: Any) -> Json:
        meta = {"name": name, **fields.pop("metadata", {})}
        version = self.collection.split("/")[3]
        return {"apiVersion": f"{self.group}/{version}", "kind": self.kind, "metadata": meta, **fields}


class Cluster:
    """One server under test, for one check.

    `compact` discards the history of the store, `start_tls` starts a TLS listener and returns its URL.
    """

    def __init__(
        self,
        url: str,
        token: str,
        secure: ssl.SSLContext | None,
        *,
        is_real: bool,
        compact: Callable[[], Awaitable[None]] | None = None,
        start_tls: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self.url, self.token, self.is_real = url, token, is_real
        self.namespace = ""
        self.mutation: Mutation | None = None
        self._compact, self._start_tls = compact, start_tls
        self._secure = secure
        self._session = aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        self._suffix = f"{secrets.token_hex(3)}{next(_numbers)}"
        self._to_delete: list[str] = []
        self._pods_allowed = False

    @property
    def timeout(self) -> float:
        """How many seconds to wait for a condition or a watch event."""
        return MUTATED_TIMEOUT if self.mutation else REAL_TIMEOUT if self.is_real else TIMEOUT

    # --- requests

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Any = None,
        user: Any = None,
        **query: Any,
    ) -> Response:
        """Send one request. Bytes are sent as they are, without a Content-Type unless `headers` has one.

        `headers` is a mapping, `user` the user to impersonate. A `query` name that is a Python keyword is written with
        a trailing `_`. The types are loose, so that a dict of parameters can be spread.
        """
        url, request_headers, data = self._prepare(method, path, body, headers, user, query)
        async with (
            asyncio.timeout(TIMEOUT),
            self._session.request(
                method, url, data=data, headers=request_headers, ssl=self._secure or True, allow_redirects=False
            ) as http_response,
        ):
            content = await http_response.read()
        code = http_response.status
        response_headers = {name.lower(): value for name, value in http_response.headers.items()}
        if self.mutation is not None:
            code, response_headers, content = self.mutation.mutated_response(code, response_headers, content)
        return Response(code, response_headers, content, f"{method} {path} {dict(query) or ''}")

    def _prepare(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
        user: str | None,
        query: Mapping[str, Any],
    ) -> tuple[URL, dict[str, str], bytes | None]:
        """The URL, the headers and the body of a request."""
        all_headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {self.token}",
        }
        data = body if isinstance(body, bytes | None) else encode(body)
        if data is not None and not isinstance(body, bytes):
            all_headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        if user is not None:
            all_headers["Impersonate-User"] = user
        all_headers.update(headers or {})
        all_headers = {name: value for name, value in all_headers.items() if value}
        if self.mutation is not None:
            all_headers = self.mutation.mutated_request_headers(all_headers)
        parameters = {name.rstrip("_"): value for name, value in query.items()}
        query_string = f"?{urlencode(parameters)}" if parameters else ""
        return URL(self.url + path + query_string, encoded=True), all_headers, data

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Any = None, **query: Any) -> AsyncIterator[WatchStream]:
        """An open watch. Raises AssertionError unless the response is 200."""
        query = {"watch": "true", "timeoutSeconds": "60", **query}
        url, request_headers, _ = self._prepare("GET", path, None, headers, None, query)
        timeout = aiohttp.ClientTimeout(total=120, sock_connect=10)
        request = self._session.get(
            url, headers=request_headers, ssl=self._secure or True, timeout=timeout, read_bufsize=1 << 22
        )
        async with request as http_response:
            code = http_response.status
            if self.mutation is not None:
                code = self.mutation.mutated_response(code, {}, b"")[0]
            content = await http_response.read() if http_response.status != 200 else b""
            assert code == 200, (path, query, code, content)
            yield WatchStream(http_response, self.mutation, self.timeout)

    async def wait_until(self, condition: Callable[[], Awaitable[Any]], awaited: str = "") -> Any:
        """The value of the condition as soon as it is true. `awaited`: in words, by default the function's name."""
        words = awaited or getattr(condition, "__name__", "").replace("_", " ")
        return await until_async(condition, words, seconds=self.timeout)

    async def wait_gone(self, path: str) -> None:
        """Wait until a GET of the path returns 404."""

        async def is_gone() -> bool:
            return (await self.request("GET", path)).code == 404

        await self.wait_until(is_gone, f"{path} is gone")

    async def compact(self) -> None:
        """Compact the store: older resource versions expire, as they do in any cluster after some minutes."""
        assert self._compact is not None, "this cluster cannot be compacted; pass the URL of its etcd"
        await self._compact()

    async def tls_address(self) -> tuple[str, int]:
        """Host and port of a TLS listener."""
        url = URL(await self._start_tls() if self._start_tls is not None else self.url)
        assert url.scheme == "https" and url.host and url.port, url
        return url.host, url.port

    # --- names, paths and objects

    def unique_name(self, prefix: str) -> str:
        """A name that no other check uses, also for cluster-scoped objects."""
        return f"{prefix}-{self._suffix}"

    def path(self, plural: str, name: str = "", subresource: str = "", namespace: str | None = None) -> str:
        """The path of a built-in resource: a collection in the check's namespace, an object, or a subresource."""
        namespace = self.namespace if namespace is None else namespace
        parts = [API_PATHS.get(plural, "api/v1")]
        parts += ["namespaces", namespace] if namespace and plural not in CLUSTER_SCOPED else []
        return "/" + "/".join([*parts, plural, *filter(None, (quote(name), subresource))])

    def delete_at_end(self, path: str) -> None:
        """Register the object for deletion by `close`."""
        self._to_delete.append(path)

    async def create_config_map(self, name: str, /, **meta: Any) -> Json:
        data = meta.pop("data", None)
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
        if data:
            obj["data"] = data
        created: Json = (await self.request("POST", self.path("configmaps"), obj)).expect(201)
        return created

    async def wait_until_pods_allowed(self) -> None:
        """Wait for the default ServiceAccount, without which a real server refuses pods."""
        if not self._pods_allowed:
            if self.is_real:
                path = self.path("serviceaccounts", "default")

                async def account_exists() -> bool:
                    return (await self.request("GET", path)).code == 200

                await self.wait_until(account_exists, "the default ServiceAccount")
            self._pods_allowed = True

    async def create_pod(self, name: str, /, *, meta: Json | None = None, **spec: Any) -> Json:
        """Create a pod. Without `nodeName` it stays pending."""
        await self.wait_until_pods_allowed()
        containers = spec.pop("containers", [{"name": "main", "image": "busybox:1"}])
        obj: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(meta or {})}}
        obj["spec"] = {"containers": containers, "terminationGracePeriodSeconds": 30, **spec}
        created: Json = (await self.request("POST", self.path("pods"), obj)).expect(201)
        return created

    async def create_crd(
        self, *, schema: Json | None = None, version: Json | None = None, **spec: Any
    ) -> CustomResource:
        """Create a definition in a group of its own and wait until it is served.

        `version` is merged into its only version, `spec` into its spec.
        """
        group, plural, kind = f"g{self._suffix}-{next(_numbers)}.example.org", "things", "Thing"
        any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        v1 = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or any_object}}
        obj: Json = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "singular": "thing", "kind": kind, "listKind": "ThingList"},
                "versions": [{**v1, **(version or {})}],
                **spec,
            },
        }
        created = (await self.request("POST", self.path("customresourcedefinitions"), obj)).expect(201)
        self.delete_at_end(self.path("customresourcedefinitions", f"{plural}.{group}"))
        first_served = next(version["name"] for version in obj["spec"]["versions"] if version["served"])
        scope = f"/namespaces/{self.namespace}" if obj["spec"]["scope"] == "Namespaced" else ""
        collection = f"/apis/{group}/{first_served}{scope}/{plural}"

        async def is_served() -> bool:
            return (await self.request("GET", collection)).code == 200

        await self.wait_until(is_served)
        return CustomResource(group, plural, kind, created, collection)

    # --- setup and teardown

    async def create_namespace(self) -> None:
        self.namespace = self.unique_name("check")
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        (await self.request("POST", self.path("namespaces"), obj)).expect(201)
        self.delete_at_end(self.path("namespaces", self.namespace))

    async def close(self) -> None:
        self.mutation = None
        try:
            if self.is_real:
                for path in reversed(self._to_delete):
                    if path == self.path("namespaces", self.namespace):
                        await self._remove_finalizers()
                    await self.request("DELETE", path)
        finally:
            await self._session.close()

    async def _remove_finalizers(self) -> None:
        """Remove the finalizers that checks have put on objects of the namespace."""
        for plural in ("configmaps", "pods", "jobs", "secrets"):
            for item in (await self.request("GET", self.path(plural))).json.get("items", ()):
                if item["metadata"].get("finalizers"):
                    patch = {"metadata": {"finalizers": None}}
                    await self.request("PATCH", self.path(plural, item["metadata"]["name"]), patch)
