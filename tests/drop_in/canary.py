"""Whether the operator and the garbage collector have caught up: a round trip through each.

A canary is a job whose pod is deleted, and a ConfigMap whose owner is deleted. When the operator has created the pod
anew and the ConfigMap is gone, both have handled what was written before, as far as their queues are in order. A busy
machine makes the round trip long.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping

from tests.drop_in.job_set import POD_LABEL
from tests.drop_in.jobs import MPIJOB2, PYTORCHJOB, JobKind
from tests.drop_in.quiet import Objects
from tests.drop_in.scenarios_trainjob import API, trained
from tests.drop_in.snapshot import PLUGINS_GROUP, VOLCANO_GROUP
from tests.support.waiting import until_async
from trainyard.client import ApiClient, NotFound
from trainyard.objects import GVK, Json, labels_of, name_of, uid_of
from trainyard.objects.resources import CONFIG_MAP, POD

PATIENCE = 120.0
KINDS: tuple[tuple[JobKind, Json], ...] = ((PYTORCHJOB, {"Master": 1}), (MPIJOB2, {"Launcher": 1, "Worker": 1}))
"""The kinds of which a canary can be, and its replicas."""
PODS = ("canary-master-0", "canary-worker-0")
POD_GROUPS = (VOLCANO_GROUP, PLUGINS_GROUP)
_numbers = itertools.count(1)


def canary_for(api: ApiClient, objects: Objects, kinds: Mapping[tuple[str, str], GVK], namespace: str) -> Canary:
    """That of an operator which serves these kinds."""
    canary = TrainJobCanary if (API, "TrainJob") in kinds else Canary
    return canary(api, objects, kinds, namespace)


class Canary:
    """In a namespace of its own. `kinds`: those that the operator serves."""

    def __init__(self, api: ApiClient, objects: Objects, kinds: Mapping[tuple[str, str], GVK], namespace: str) -> None:
        self._api, self._objects, self._kinds, self.namespace = api, objects, kinds, namespace

    async def start(self) -> None:
        """Create the job, and wait for its pod."""
        jobs = [kind.job(name="canary", **roles) for kind, roles in KINDS]
        job = next(manifest for manifest in jobs if (manifest["apiVersion"], manifest["kind"]) in self._kinds)
        job["metadata"]["namespace"] = self.namespace
        await self._api.create(self._kinds[job["apiVersion"], job["kind"]], self.namespace, job)
        await self._until(lambda: bool(self._pods() or self._pod_groups()), "children of the canary's job")
        await set_pod_group_phase(self._api, self.namespace, "Running")
        await self._until(lambda: bool(self._pods()), "a pod of the canary's job")

    async def round_trip(self) -> float:
        """How long it took, in seconds."""
        begin = time.monotonic()
        owned = await self._orphan()
        await self._operator_round_trip()
        await self._until(lambda: owned not in self._names(CONFIG_MAP), "the end of a ConfigMap without its owner")
        return time.monotonic() - begin

    async def _operator_round_trip(self) -> None:
        uids = set(self._pods())
        await self._api.delete(POD, self.namespace, next(iter(self._pods().values())), grace_period_seconds=0)
        await self._until(lambda: bool(self._pods().keys() - uids), "a new pod of the canary's job")

    async def _orphan(self) -> str:
        """A ConfigMap whose owner has just been deleted."""
        owner_name, name = (f"{prefix}-{next(_numbers)}" for prefix in ("owner", "owned"))
        owner = await self._create_config_map({"name": owner_name})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner_name, "uid": uid_of(owner)}
        await self._create_config_map({"name": name, "ownerReferences": [reference]})
        await self._until(lambda: name in self._names(CONFIG_MAP), "a ConfigMap")
        await self._api.delete(CONFIG_MAP, self.namespace, owner_name)
        return name

    async def _create_config_map(self, metadata: Json) -> Json:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return await self._api.create(CONFIG_MAP, self.namespace, body)

    def _pods(self) -> dict[str, str]:
        """uid -> name, of the pods that the operator creates itself."""
        pods = self._objects.items(POD, self.namespace)
        return {uid_of(pod): name_of(pod) for pod in pods if name_of(pod) in PODS}

    def _pod_groups(self) -> list[str]:
        return [name for gvk in POD_GROUPS for name in self._names(gvk)]

    def _names(self, gvk: GVK) -> list[str]:
        return [name_of(item) for item in self._objects.items(gvk, self.namespace)]

    async def _until(self, condition: Callable[[], bool], description: str) -> None:
        await until_async(condition, f"{description} in {self.namespace}", seconds=PATIENCE)


class TrainJobCanary(Canary):
    """Each round trip is a new job, until it has a pod: its controllers are Trainer, JobSet and Kubernetes' own."""

    async def start(self) -> None:
        await self._operator_round_trip()

    async def _operator_round_trip(self) -> None:
        gvk = self._kinds[API, "TrainJob"]
        job = trained()
        name = job["metadata"]["name"] = f"canary-{next(_numbers)}"
        job["metadata"]["namespace"] = self.namespace
        await self._api.create(gvk, self.namespace, job)
        await self._until(lambda: name in self._job_sets_of_pods(), "a pod of the canary's job")
        await self._api.delete(gvk, self.namespace, name)

    def _job_sets_of_pods(self) -> set[str]:
        return {str(labels_of(pod).get(POD_LABEL)) for pod in self._objects.items(POD, self.namespace)}


async def set_pod_group_phase(api: ApiClient, namespace: str, phase: str) -> None:
    """Patch the status of each PodGroup there, as its scheduler would: through the subresource, or the object itself
    where the definition has none."""
    body = {"status": {"phase": phase}}
    for gvk in POD_GROUPS:
        with contextlib.suppress(NotFound):
            for group in (await api.list(gvk, namespace))["items"]:
                try:
                    await api.patch(gvk, namespace, name_of(group), body, "status")
                except NotFound:
                    await api.patch(gvk, namespace, name_of(group), body)
