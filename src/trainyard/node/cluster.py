"""What the node says to the API server and hears from it: all of its API use is in this file.

Rules: a watch resumes where it was and lists again after 410; a write that fails because the world does is tried again,
longer each time; a pod that is gone is no error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from trainyard.client import AlreadyExists, Api, ApiError, Conflict, NotFound, Selection, Unavailable
from trainyard.controller_runtime import Backoff, Reflector, WatchBackoff, WatchTarget
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import ListReplaced, ObjectChanged, StoreEvent
from trainyard.node.events import PodEvent
from trainyard.node.pods import Ref, TokenAsked
from trainyard.node.registration import CORDONED, MADE, Member, marked, node_object, node_status
from trainyard.objects import GVK, Json, decode, format_time, name_of, namespace_of, parse_time, revision_of, uid_of
from trainyard.objects.resources import EVENT, NODE, POD, SERVICE, SERVICE_ACCOUNT

log = logging.getLogger(__name__)

_KINDS = {"configmap": GVK("", "v1", "ConfigMap", "configmaps"), "secret": GVK("", "v1", "Secret", "secrets")}
_SHORTEST, _LONGEST = 0.1, 15.0
_LONGEST_MESSAGE = 1024  # of an event

Say = Callable[[str], object]
ReplacedHandler = Callable[[list[Json]], None]
ChangedHandler = Callable[[str, Json], None]


class Cluster:
    def __init__(self, api: Api, node: str, say: Say, member: Member | None = None) -> None:
        self._api, self._node, self.say, self._member = api, node, say, member or Member()
        self._port = 0
        self._refusals: set[str] = set()  # said already

    # The Node object.

    async def register(self, port: int, now: float, problem: str = "") -> None:
        """Make or renew the Node object, its kubelet on loopback at `port`: ready, unless there is a `problem`."""
        self._port = port
        try:
            node = await self._api.create(NODE, "", node_object(self._node, self._member))
        except AlreadyExists:
            node = await self._api.get(NODE, "", self._node)
            if marked(node, CORDONED):  # by us, when we went
                body = {"metadata": {"annotations": {CORDONED: None}}, "spec": {"unschedulable": None}}
                node = await self._api.patch(NODE, "", self._node, body)
        await self.stand(node, now, problem=problem)

    async def stand(self, node: Json, now: float, stopping: bool = False, problem: str = "") -> None:
        """Say that the node is ready, or that it is not any more. `node` is the Node as it was seen last."""
        known = [one for one in (node.get("status") or {}).get("conditions") or [] if isinstance(one, dict)]
        status = node_status(self._port, self._member, known, now, stopping, problem)
        await self._api.patch(NODE, "", self._node, {"status": status}, "status")

    async def go(self, now: float) -> None:
        """Nothing is to be placed here any more."""
        body = {"metadata": {"annotations": {CORDONED: "true"}}, "spec": {"unschedulable": True}}
        with contextlib.suppress(NotFound):
            await self.stand(await self._api.patch(NODE, "", self._node, body), now, stopping=True)

    async def withdraw(self) -> bool:
        """Delete the Node object if a life of this node has made it. Did it?"""
        try:
            node = await self._api.get(NODE, "", self._node)
            if not marked(node, MADE):
                return False
            await self._api.delete(NODE, "", self._node, uid=uid_of(node))
        except (NotFound, Conflict):
            pass
        return True

    def node(self, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """The watch of the node's own object."""
        return self._feed(NODE, f"metadata.name={self._node}", replaced, changed)

    # Pods and Services.

    def pods(self, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """The watch of the pods that are placed on this node."""
        return self._feed(POD, f"spec.nodeName={self._node}", replaced, changed)

    def services(self, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """The watch of all Services."""
        return self._feed(SERVICE, "", replaced, changed)

    def _feed(self, gvk: GVK, fields: str, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """`replaced` hears of all objects after a list, `changed` of each watch event."""

        def apply(said: StoreEvent[Json]) -> None:
            if isinstance(said, ListReplaced):
                replaced(list(said.objs))
            elif isinstance(said, ObjectChanged):
                changed(said.type, said.obj)

        def refused(why: str) -> None:
            self.say(f"node: watching {gvk.plural}: {why}")

        source = WatchTarget(gvk, selection=Selection("", fields))
        return Reflector(
            self._api, source, dict_adapter(api_version=gvk.api_version, kind=gvk.kind), apply, on_refused=refused
        )

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
        clock, backoff = asyncio.get_running_loop().time, WatchBackoff(_SHORTEST, _LONGEST)
        while True:
            try:
                listed = await self._api.list(_KINDS[kind], namespace, "", f"metadata.name={name}")
                if any(revision_of(one) != revision_of(seen or {}) for one in listed.get("items") or []):
                    return
                began = clock()
                watch = self._api.watch(_KINDS[kind], namespace, revision_of(listed), "", f"metadata.name={name}")
                async with aclosing(watch) as stream:
                    async for line in stream:
                        if decode(line).get("type") in ("ADDED", "MODIFIED"):
                            return
                pause = backoff.watch_closed(clock() - began, advanced=False)
                await asyncio.sleep(backoff.next_delay() if pause is None else pause)
            except ApiError as error:
                await asyncio.sleep(backoff.next_delay(error.retry_after if isinstance(error, Unavailable) else None))

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
            return await self._keep_trying(ask, self._told)
        except NotFound:
            return None

    async def end_pod(self, pod: Json, reason: str, message: str) -> None:
        """Write that the pod has failed, with that reason, whatever else has been written. Nothing when it is gone."""
        meta, status = pod["metadata"], {"phase": "Failed", "reason": reason, "message": message[:_LONGEST_MESSAGE]}
        ask = partial(self._api.patch, POD, meta["namespace"], meta["name"], {"status": status}, "status")
        if await self.pod(pod) is not None:
            with contextlib.suppress(NotFound):
                await self._keep_trying(ask, self._told)

    async def pod(self, pod: Json) -> Json | None:
        """The pod as it is now; None when it is gone, or another has its name."""
        meta = pod["metadata"]
        try:
            ask = partial(self._api.get, POD, meta["namespace"], meta["name"])
            found = await self._keep_trying(ask, self._told)
        except NotFound:
            return None
        return found if uid_of(found) == uid_of(pod) else None

    async def forget(self, pod: Json) -> None:
        """Delete the object of a pod that has been stopped."""
        meta = pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            ask = partial(
                self._api.delete, POD, meta["namespace"], meta["name"], uid=uid_of(pod), grace_period_seconds=0
            )
            await self._keep_trying(ask, self._told)

    async def write_event(self, pod: Json, event: PodEvent, now: float) -> None:
        """One try: an event is for people, nothing depends on it."""
        at, namespace = format_time(now), namespace_of(pod)
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name_of(pod), "uid": uid_of(pod)}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": f"{name_of(pod)[:200]}.{time.time_ns():x}"},
            "involvedObject": {**about, **({"fieldPath": event.field} if event.field else {})},
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:_LONGEST_MESSAGE],
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": "kubelet", "host": self._node},
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
        }
        try:
            await self._api.create(EVENT, namespace, body)
        except ApiError as error:
            log.debug("event not written pod=%s reason=%s error=%s", name_of(pod), event.reason, error)

    def _told(self, error: ApiError) -> bool:
        """Rights and tokens can be given back: what a pod has come to is still true then."""
        if error.code in (401, 403) and str(error) not in self._refusals:
            self._refusals.add(str(error))
            self.say(f"node: {error}")
        return error.code in (401, 403)

    @staticmethod
    async def _keep_trying(
        ask: Callable[[], Awaitable[Json]], passing: Callable[[ApiError], bool] = lambda error: False
    ) -> Json:
        """Until it is answered. `passing` says of other errors that they pass, too."""
        backoff = Backoff(_SHORTEST, _LONGEST)
        while True:
            try:
                return await ask()
            except ApiError as error:
                if not isinstance(error, Unavailable) and not passing(error):
                    raise
                await asyncio.sleep(backoff.next_delay(error.retry_after if isinstance(error, Unavailable) else None))
