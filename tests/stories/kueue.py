"""Kueue's part, played: what its job integration does to a job of ours, with the same updates.

Rules:
- It holds a job back by `suspend: true`, which the user or its webhook has set.
- It admits by one update: what the flavors say goes into the pod templates, counts may become smaller, and
  `suspend` becomes false.
- It evicts by one update, too: `suspend: true` and the templates and counts as they were before.
- It looks at conditions, counts and pods, and asks nobody.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.stories.harness import POD, Harness
from trainyard.client import Conflict
from trainyard.objects import Json, name_of, uid_of
from trainyard.objects.labels import OWNER, ROLE

QUEUE = {"kueue.x-k8s.io/queue-name": "team-queue"}
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Flavor:
    """What an admission adds to a pod template."""

    name: str
    gates: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # by role in lower case: partial admission

    @property
    def label(self) -> dict[str, str]:
        return {"kueue.x-k8s.io/podset": self.name}

    @property
    def annotation(self) -> dict[str, str]:
        return {"kueue.x-k8s.io/workload": f"admitted-{self.name}"}

    @property
    def selector(self) -> dict[str, str]:
        return {"kubernetes.io/os": "linux"}

    @property
    def toleration(self) -> Json:
        return {"key": "example.com/flavor", "operator": "Equal", "value": self.name, "effect": "NoSchedule"}

    def put_into(self, template: Json) -> None:
        meta, spec = template.setdefault("metadata", {}), template["spec"]
        meta["labels"] = {**(meta.get("labels") or {}), **self.label}
        meta["annotations"] = {**(meta.get("annotations") or {}), **self.annotation}
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.selector}
        spec["tolerations"] = [*(spec.get("tolerations") or []), self.toleration]
        if self.gates:
            spec["schedulingGates"] = [{"name": gate} for gate in self.gates]


def replica_specs(spec: Json) -> dict[str, Json]:
    """The replica map of a kind of kubeflow.org/v1 (spec.tfReplicaSpecs and so on); {} for any other kind."""
    names = [name for name in spec if name.endswith("ReplicaSpecs")]
    return dict(spec[names[0]]) if names else {}


def pod_sets(spec: Json) -> dict[str, Json]:
    """By role in lower case, what has a template and maybe a count."""
    roles = {name.lower(): role for name, role in replica_specs(spec).items()}
    for item in spec.get("replicaSpecs") or () if isinstance(spec.get("replicaSpecs"), list) else ():
        roles[str(item.get("tfReplicaType") or item.get("mxReplicaType")).lower()] = item
    named = spec["replicaSpecs"] if isinstance(spec.get("replicaSpecs"), dict) else spec.get("workerSets") or {}
    roles |= {name.lower(): role for name, role in named.items()}
    return roles | ({"master": spec["master"]} if "master" in spec else {})


def set_suspended(spec: Json, suspended: bool) -> None:
    """Where `suspend` stands: in the run policy of kubeflow.org/v1 kinds."""
    holder = spec.setdefault("runPolicy", {}) if replica_specs(spec) else spec
    holder["suspend"] = suspended


def priority_class(spec: Json) -> str:
    """The priority of the Workload of a kubeflow.org/v1 kind: that of its schedulingPolicy, else of the first pod set
    that has one."""
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    of_pods = [pod_set["template"]["spec"].get("priorityClassName") for pod_set in pod_sets(spec).values()]
    return str(policy.get("priorityClass") or next(filter(None, of_pods), ""))


def is_active(job: Json) -> bool:
    """Whether pods of a kubeflow.org/v1 kind run: an evicted job keeps its quota as long."""
    statuses = (job.get("status") or {}).get("replicaStatuses") or {}
    return any(status.get("active") for status in statuses.values())


class Kueue:
    """It manages the job of a harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.original: Json = {}  # the pod sets as the Workload remembers them

    async def admit(self, flavor: Flavor) -> None:
        def start(spec: Json) -> None:
            self.original = copy.deepcopy(pod_sets(spec))
            for role, pod_set in pod_sets(spec).items():
                flavor.put_into(pod_set["template"])
                if role in flavor.counts:
                    pod_set["replicas"] = flavor.counts[role]
            set_suspended(spec, False)

        await self._update(start)

    async def evict(self) -> None:
        def stop(spec: Json) -> None:
            set_suspended(spec, True)
            for role, pod_set in pod_sets(spec).items():
                before = copy.deepcopy(self.original[role])
                pod_set["template"] = before["template"]
                if "replicas" in before:
                    pod_set["replicas"] = before["replicas"]

        await self._update(stop)

    async def _update(self, change: Callable[[Json], None]) -> None:
        """One PUT of the whole job, again when it was changed meanwhile."""
        while True:
            job = await self.harness.job()
            change(job["spec"])
            try:
                await self.harness.api.replace(self.harness.kind.gvk, self.harness.namespace, name_of(job), job)
            except Conflict:
                continue
            return

    async def pods(self) -> list[Json]:
        """Pods of the job that run or will."""
        label = f"{OWNER}={uid_of(await self.harness.job())}"
        listed = (await self.harness.api.list(POD, self.harness.namespace, f"{label},{ROLE}"))["items"]
        return [pod for pod in listed if pod["status"].get("phase") not in OVER]

    async def ungate(self) -> None:
        """Topology was found: the pods may be scheduled."""
        for pod in await self.pods():
            await self.harness.api.patch(POD, self.harness.namespace, name_of(pod), {"spec": {"schedulingGates": None}})
