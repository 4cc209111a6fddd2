"""All requests of the node to the API server.

Rules: a watch resumes from its last resourceVersion and lists again after 410; a write that fails because the API
server is unavailable is retried with exponential back-off; a deleted pod is no error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial

from trainyard.client import AlreadyExists, ApiClient, ApiError, Conflict, NotFound, Selectors, Unavailable
from trainyard.controller_runtime import Backoff, Reflector, WatchBackoff, WatchTarget
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import ListReplaced, ObjectChanged, StoreEvent
from trainyard.node.devices.manager import DeviceManager
from trainyard.node.kubelet.events import PodEvent
from trainyard.node.kubelet.registration import (
    CORDONED_ANNOTATION,
    CREATED_ANNOTATION,
    DEVICE_USE_ANNOTATION,
    NodeConfig,
    device_metadata,
    has_annotation,
    node_object,
    node_status,
    reported_devices,
    vendors_of_other_nodes,
    vendors_of_others,
    with_devices,
)
from trainyard.node.kubelet.spec.pod_spec import ConfigRef, TokenRequest
from trainyard.objects import (
    GVK,
    Json,
    decode,
    format_time,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    resource_version_of,
    uid_of,
)
from trainyard.objects.extended_resources import gpu_vendor
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import CONFIG_MAP, EVENT, NODE, POD, SECRET, SERVICE, SERVICE_ACCOUNT

log = logging.getLogger(__name__)

_GVKS = {"configmap": CONFIG_MAP, "secret": SECRET}
_MIN_DELAY, _MAX_DELAY = 0.1, 15.0
_MAX_MESSAGE = 1024  # of an event

Say = Callable[[str], object]
ReplacedHandler = Callable[[list[Json]], None]
ChangedHandler = Callable[[str, Json], None]


class NodeApiClient:
    """The requests and watches of one node. More than 15 methods: one for each request."""

    def __init__(self, api: ApiClient, node: str, say: Say, member: NodeConfig | None = None) -> None:
        self._api, self._node, self.say, self._member = api, node, say, member or NodeConfig()
        self._port = 0
        self._device_use = ""
        self.devices = DeviceManager()
        # The vendors of GPUs in a Node of others before this node; known after the start.
        self._vendors_of_others: frozenset[str] | None = None
        self._reported_errors: set[str] = set()  # printed already

    # The Node object.

    async def register(self, port: int, now: float, problem: str = "") -> None:
        """Create or update the Node object, with the kubelet endpoint at `port` on loopback: Ready unless there is a
        `problem`. Raises ApiError."""
        self._port = port
        try:
            node = await self._api.create(NODE, "", node_object(self._node, self._member))
        except AlreadyExists:
            node = await self._api.get(NODE, "", self._node)
            if has_annotation(node, CORDONED_ANNOTATION):  # by an earlier process of this node, when it stopped
                body = {"metadata": {"annotations": {CORDONED_ANNOTATION: None}}, "spec": {"unschedulable": None}}
                node = await self._api.patch(NODE, "", self._node, body)
        await self.set_ready(node, now, problem=problem)

    async def set_ready(self, node: Json, now: float, stopping: bool = False, problem: str = "") -> None:
        """Write the Node's status: ready, or not (`stopping`, `problem`). `node`: the Node object as last seen."""
        conditions = [
            condition for condition in (node.get("status") or {}).get("conditions") or [] if isinstance(condition, dict)
        ]
        status = node_status(self._port, self._member, conditions, now, stopping, problem)
        if self._vendors_of_others is None:
            self._vendors_of_others = vendors_of_others(node)
        if not stopping:
            await self._leave_devices_to_others(node, self._vendors_of_others)
        counts = self.devices.capacity()
        stored = {name for name in reported_devices(node) if gpu_vendor(name) not in self._vendors_of_others}
        status["capacity"] = with_devices(status, "capacity", counts, stored)
        status["allocatable"] = with_devices(status, "allocatable", self.devices.allocatable(), stored)
        body: Json = {"status": status}
        if self.devices.has_driver or stored:
            given = [device for device in self.devices.devices if device.resource in counts]
            body["metadata"] = device_metadata(node, given, "" if stopping else self._device_use)
        await self._api.patch(NODE, "", self._node, body, "status")

    async def write_device_use(self, text: str) -> None:
        """Write the annotation DEVICE_USE_ANNOTATION of the Node, without a retry: nothing depends on it, and the next
        heartbeat writes it, too."""
        self._device_use = text
        try:
            body = {"metadata": {"annotations": {DEVICE_USE_ANNOTATION: text or None}}}
            await self._api.patch(NODE, "", self._node, body)
        except ApiError as error:
            log.debug("the use of the GPUs not written error=%s", error)

    async def _leave_devices_to_others(self, node: Json, of_others: Collection[str]) -> None:
        """Have the manager give out no devices that a device plugin or another node of this machine does, unless the
        user has stated how many there are. `of_others`: the vendors in the Node object before this node."""
        reasons = dict.fromkeys(of_others, "its Node object had some before, which others count")
        if self._member.joined and self.devices.has_driver:
            nodes = (await self._api.list(NODE)).get("items") or []
            others = vendors_of_other_nodes(nodes, node)
            reasons |= {vendor: f"node {name} of this machine does" for vendor, name in others.items()}
        stated = set(map(gpu_vendor, self._member.extra_resources))
        self.devices.withhold({vendor: reason for vendor, reason in reasons.items() if vendor not in stated})

    async def cordon(self, now: float) -> None:
        """Cordon the Node and set it not ready: no more pods are scheduled here."""
        body = {"metadata": {"annotations": {CORDONED_ANNOTATION: "true"}}, "spec": {"unschedulable": True}}
        with contextlib.suppress(NotFound):
            await self.set_ready(await self._api.patch(NODE, "", self._node, body), now, stopping=True)

    async def deregister(self) -> bool:
        """Delete the Node object if this node has created it. Returns False when it has not."""
        try:
            node = await self._api.get(NODE, "", self._node)
            if not has_annotation(node, CREATED_ANNOTATION):
                return False
            await self._api.delete(NODE, "", self._node, uid=uid_of(node))
        except (NotFound, Conflict):
            pass
        return True

    def node(self, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """The watch of this node's Node object."""
        return self._reflector(NODE, f"metadata.name={self._node}", replaced, changed)

    # Pods and Services.

    def pods(self, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """The watch of the pods that are scheduled to this node."""
        return self._reflector(POD, f"spec.nodeName={self._node}", replaced, changed)

    def services(self, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """The watch of all Services."""
        return self._reflector(SERVICE, "", replaced, changed)

    def _reflector(self, gvk: GVK, fields: str, replaced: ReplacedHandler, changed: ChangedHandler) -> Reflector[Json]:
        """`replaced` is called with all objects after a list, `changed` with type and object of each watch event."""

        def apply(event: StoreEvent[Json]) -> None:
            if isinstance(event, ListReplaced):
                replaced(list(event.objs))
            elif isinstance(event, ObjectChanged):
                changed(event.type, event.obj)

        def refused(reason: str) -> None:
            self.say(f"node: watching {gvk.plural}: {reason}")

        target = WatchTarget(gvk, selection=Selectors("", fields))
        return Reflector(
            self._api, target, dict_adapter(api_version=gvk.api_version, kind=gvk.kind), apply, on_refused=refused
        )

    async def fetch(self, namespace: str, refs: set[ConfigRef]) -> dict[ConfigRef, Json | None]:
        """The ConfigMaps and Secrets in `refs`; None for one that does not exist."""
        objects: dict[ConfigRef, Json | None] = {}
        for kind, name in sorted(refs):
            request = partial(self._api.get, _GVKS[kind], namespace, name)
            try:
                objects[kind, name] = await self._retry(request)
            except NotFound:
                objects[kind, name] = None
        return objects

    async def wait_for_change(self, namespace: str, ref: ConfigRef, known: Json | None) -> None:
        """Wait until the object exists with a resourceVersion other than that of `known`. Without polling: by a watch
        of this name."""
        kind, name = ref
        clock, backoff = asyncio.get_running_loop().time, WatchBackoff(_MIN_DELAY, _MAX_DELAY)
        while True:
            try:
                listed = await self._api.list(_GVKS[kind], namespace, "", f"metadata.name={name}")
                if any(
                    resource_version_of(obj) != resource_version_of(known or {}) for obj in listed.get("items") or []
                ):
                    return
                began = clock()
                watch = self._api.watch(
                    _GVKS[kind], namespace, resource_version_of(listed), "", f"metadata.name={name}"
                )
                async with aclosing(watch) as stream:
                    async for line in stream:
                        if decode(line).get("type") in ("ADDED", "MODIFIED"):
                            return
                pause = backoff.watch_closed(clock() - began, advanced=False)
                await asyncio.sleep(backoff.next_delay() if pause is None else pause)
            except ApiError as error:
                await asyncio.sleep(backoff.next_delay(error.retry_after if isinstance(error, Unavailable) else None))

    async def token(self, pod: Json, request: TokenRequest) -> tuple[str, float]:
        """A token of the pod's service account, bound to the pod, and its expiry (Unix time). Raises ApiError,
        ValueError."""
        meta, account = pod["metadata"], str((pod.get("spec") or {}).get("serviceAccountName") or "default")
        bound_ref = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": uid_of(pod)}
        body: Json = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": account},
            "spec": {"expirationSeconds": request.seconds, "boundObjectRef": bound_ref},
        }
        body["spec"]["audiences"] = [request.audience] if request.audience else []
        create_token = partial(self._api.create, SERVICE_ACCOUNT, meta["namespace"], body, "token")
        status = (await self._retry(create_token)).get("status") or {}
        expiry = parse_time(str(status.get("expirationTimestamp")))
        if not status.get("token") or expiry is None:
            raise ValueError("the API server answered without a token and its expirationTimestamp")
        return str(status["token"]), expiry

    async def write_status(self, pod: Json, status: Json, annotations: Mapping[str, str | None]) -> Json | None:
        """Patch the status of the pod at its resourceVersion, and set the annotations (None: remove it). Returns the
        pod, None when it is deleted; raises Conflict when it has changed, ApiError when the status is refused."""
        meta = pod["metadata"]
        body: Json = {"metadata": {"uid": uid_of(pod), "resourceVersion": resource_version_of(pod)}, "status": status}
        if annotations:
            body["metadata"]["annotations"] = dict(annotations)
        request = partial(self._api.patch, POD, meta["namespace"], meta["name"], body, "status")
        try:
            return await self._retry(request, self._report_authorization_error)
        except NotFound:
            return None

    async def end_pod(self, pod: Json, reason: str, message: str) -> None:
        """Write the phase Failed with that reason, whatever the resourceVersion of the pod. No effect when it is
        deleted."""
        meta, status = pod["metadata"], {"phase": "Failed", "reason": reason, "message": message[:_MAX_MESSAGE]}
        request = partial(self._api.patch, POD, meta["namespace"], meta["name"], {"status": status}, "status")
        if await self.pod(pod) is not None:
            with contextlib.suppress(NotFound):
                await self._retry(request, self._report_authorization_error)

    async def pod(self, pod: Json) -> Json | None:
        """The pod as it is now; None when it is deleted or when another pod has its name."""
        meta = pod["metadata"]
        try:
            request = partial(self._api.get, POD, meta["namespace"], meta["name"])
            current = await self._retry(request, self._report_authorization_error)
        except NotFound:
            return None
        return current if uid_of(current) == uid_of(pod) else None

    async def delete_pod(self, pod: Json) -> None:
        """Delete the object of a stopped pod, with a grace period of 0."""
        meta = pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            request = partial(
                self._api.delete, POD, meta["namespace"], meta["name"], uid=uid_of(pod), grace_period_seconds=0
            )
            await self._retry(request, self._report_authorization_error)

    async def write_event(self, pod: Json, event: PodEvent, now: float) -> None:
        """Create an Event, without a retry: nothing depends on it. That about a pod of a job has the pod's label OWNER:
        the job's events include those of pods that are gone."""
        timestamp, namespace = format_time(now), namespace_of(pod)
        involved = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name_of(pod), "uid": uid_of(pod)}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": namespace,
                "name": f"{name_of(pod)[:200]}.{time.time_ns():x}",
                **({"labels": {OWNER: owner}} if (owner := labels_of(pod).get(OWNER)) else {}),
            },
            "involvedObject": {**involved, **({"fieldPath": event.field} if event.field else {})},
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:_MAX_MESSAGE],
            "count": 1,
            "firstTimestamp": timestamp,
            "lastTimestamp": timestamp,
            "source": {"component": "kubelet", "host": self._node},
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
        }
        try:
            await self._api.create(EVENT, namespace, body)
        except ApiError as error:
            log.debug("event not written pod=%s reason=%s error=%s", name_of(pod), event.reason, error)

    def _report_authorization_error(self, error: ApiError) -> bool:
        """Print a 401 or 403 once; True for these codes. The write is retried, because permissions and tokens can be
        restored."""
        if error.code in (401, 403) and str(error) not in self._reported_errors:
            self._reported_errors.add(str(error))
            self.say(f"node: {error}")
        return error.code in (401, 403)

    @staticmethod
    async def _retry(
        request: Callable[[], Awaitable[Json]], is_retryable: Callable[[ApiError], bool] = lambda error: False
    ) -> Json:
        """Retry `request` while the API server is unavailable, or `is_retryable` is true of its error. Raises
        ApiError."""
        backoff = Backoff(_MIN_DELAY, _MAX_DELAY)
        while True:
            try:
                return await request()
            except ApiError as error:
                if not isinstance(error, Unavailable) and not is_retryable(error):
                    raise
                await asyncio.sleep(backoff.next_delay(error.retry_after if isinstance(error, Unavailable) else None))
