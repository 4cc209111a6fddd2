"""What the node says to the API server and hears from it: all of its API use is in this file.

Rules: a watch resumes where it was and lists again after 410; a write that fails because the world does is tried again,
longer each time; a pod that is gone is no error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from trainyard.client import AlreadyExists, Api, ApiError, Conflict, Gone, NotFound, Unavailable
from trainyard.node.pods import Ref, TokenAsked
from trainyard.objects import GVK, Json, decode, format_time, parse_time, revision_of, uid_of

POD = GVK("", "v1", "Pod", "pods")
SERVICE = GVK("", "v1", "Service", "services")
NODE = GVK("", "v1", "Node", "nodes")
SERVICE_ACCOUNT = GVK("", "v1", "ServiceAccount", "serviceaccounts")
_KINDS = {"configmap": GVK("", "v1", "ConfigMap", "configmaps"), "secret": GVK("", "v1", "Secret", "secrets")}
_SHORTEST, _LONGEST = 0.1, 15.0

Say = Callable[[str], object]


def capacity() -> dict[str, str]:
    """What this machine has, as a Node object says it."""
    memory = 0
    with contextlib.suppress(ValueError, OSError):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory}Ki",
        "ephemeral-storage": "0",
        "pods": "1000",
    }


class Cluster:
    def __init__(self, api: Api, node: str, say: Say) -> None:
        self._api, self._node, self._say = api, node, say

    async def register(self, port: int, now: float) -> None:
        """Make or renew the Node object: ready, and its kubelet on loopback at `port`."""
        labels = {
            "kubernetes.io/hostname": self._node,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        }
        node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node, "labels": labels}}
        with contextlib.suppress(AlreadyExists):
            await self._api.create(NODE, "", node)
        stamp = format_time(now)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "pods run as processes of this machine",
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        status = {
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self._node},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "capacity": capacity(),
            "allocatable": capacity(),
            "conditions": [ready],
        }
        await self._api.patch(NODE, "", self._node, {"status": status}, "status")

    async def follow_pods(self, replaced: Callable[[list[Json]], None], changed: Callable[[str, Json], None]) -> None:
        await self._follow(POD, f"spec.nodeName={self._node}", replaced, changed)

    async def follow_services(
        self, replaced: Callable[[list[Json]], None], changed: Callable[[str, Json], None]
    ) -> None:
        await self._follow(SERVICE, "", replaced, changed)

    async def _follow(
        self,
        gvk: GVK,
        fields: str,
        replaced: Callable[[list[Json]], None],
        changed: Callable[[str, Json], None],
    ) -> None:
        """Tell what there is and what becomes of it, for ever. A relist replaces."""
        failures, revision = 0, ""
        while True:
            try:
                if not revision:
                    listed = await self._api.list(gvk, "", "", fields)
                    revision = revision_of(listed)
                    replaced(list(listed.get("items") or []))
                lines = self._api.watch(gvk, "", revision, "", fields)
                async with aclosing(lines) as stream:
                    async for line in stream:
                        failures = 0
                        revision = self._line(decode(line), revision, changed)
            except Gone:
                revision = ""
            except ApiError as error:
                failures += 1
                if not isinstance(error, Unavailable):
                    revision = ""
                    self._say(f"node: watching {gvk.plural}: {error}")
                await _pause(failures, error)

    @staticmethod
    def _line(line: Json, revision: str, changed: Callable[[str, Json], None]) -> str:
        verb, obj = str(line.get("type")), line.get("object") or {}
        if verb == "ERROR":
            if obj.get("code") == 410:
                raise Gone(410, str(obj.get("reason")), str(obj.get("message")))
            raise ApiError(int(obj.get("code") or 500), str(obj.get("reason")), str(obj.get("message")))
        if verb in ("ADDED", "MODIFIED", "DELETED"):
            changed(verb, obj)
        return revision_of(obj) or revision

    async def fetch(self, namespace: str, refs: set[Ref]) -> dict[Ref, Json | None]:
        """The ConfigMaps and Secrets of those names; None for one that is not there."""
        found: dict[Ref, Json | None] = {}
        for kind, name in sorted(refs):
            ask = partial(self._api.get, _KINDS[kind], namespace, name)
            try:
                found[kind, name] = await self._keep_trying(ask)
            except NotFound:
                found[kind, name] = None
        return found

    async def changes(self, namespace: str, ref: Ref, seen: Json | None) -> None:
        """Wait until that object is another than `seen`, or there at all. No polling: a watch of this one name."""
        kind, name = ref
        failures = 0
        while True:
            try:
                listed = await self._api.list(_KINDS[kind], namespace, "", f"metadata.name={name}")
                if any(revision_of(one) != revision_of(seen or {}) for one in listed.get("items") or []):
                    return
                watch = self._api.watch(_KINDS[kind], namespace, revision_of(listed), "", f"metadata.name={name}")
                async with aclosing(watch) as stream:
                    async for line in stream:
                        if decode(line).get("type") in ("ADDED", "MODIFIED"):
                            return
            except ApiError as error:
                failures += 1
                await _pause(failures, error)

    async def token(self, pod: Json, asked: TokenAsked) -> tuple[str, float]:
        """A token of the pod's service account, bound to the pod, and when it expires. Raises ApiError, ValueError."""
        meta, account = pod["metadata"], str((pod.get("spec") or {}).get("serviceAccountName") or "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": uid_of(pod)}
        body: Json = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": account},
            "spec": {"expirationSeconds": asked.seconds, "boundObjectRef": bound},
        }
        body["spec"]["audiences"] = [asked.audience] if asked.audience else []
        ask = partial(self._api.create, SERVICE_ACCOUNT, meta["namespace"], body, "token")
        status = (await self._keep_trying(ask)).get("status") or {}
        end = parse_time(str(status.get("expirationTimestamp")))
        if not status.get("token") or end is None:
            raise ValueError("the API server answered without a token and its expirationTimestamp")
        return str(status["token"]), end

    async def write_status(self, pod: Json, status: Json) -> Json | None:
        """Merge the status into the pod as we know it. None when it is gone; Conflict when it has changed since."""
        meta = pod["metadata"]
        body = {"metadata": {"uid": uid_of(pod), "resourceVersion": revision_of(pod)}, "status": status}
        ask = partial(self._api.patch, POD, meta["namespace"], meta["name"], body, "status")
        try:
            return await self._keep_trying(ask)
        except NotFound:
            return None

    async def pod(self, pod: Json) -> Json | None:
        """The pod as it is now; None when it is gone, or another has its name."""
        meta = pod["metadata"]
        try:
            found = await self._keep_trying(partial(self._api.get, POD, meta["namespace"], meta["name"]))
        except NotFound:
            return None
        return found if uid_of(found) == uid_of(pod) else None

    async def forget(self, pod: Json) -> None:
        """Delete the object of a pod that has been stopped."""
        meta = pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            await self._keep_trying(
                partial(self._api.delete, POD, meta["namespace"], meta["name"], uid=uid_of(pod), grace=0)
            )

    @staticmethod
    async def _keep_trying(ask: Callable[[], Awaitable[Json]]) -> Json:
        failures = 0
        while True:
            try:
                return await ask()
            except Unavailable as error:
                failures += 1
                await _pause(failures, error)


async def _pause(failures: int, error: ApiError) -> None:
    seconds = min(_SHORTEST * 2.0 ** min(failures, 10), _LONGEST) * random.uniform(0.5, 1.0)
    if isinstance(error, Unavailable) and error.retry_after:
        seconds = max(seconds, error.retry_after)
    await asyncio.sleep(seconds)
