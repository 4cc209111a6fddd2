"""The gang of a pod: the replicas of its training job, with what each requests. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping

from trainyard import kinds
from trainyard.core import Config, Job, parse_job
from trainyard.kinds.kubeflow_v1.framework import total_replicas
from trainyard.kinds.kubeflow_v1.gang import fewest_members
from trainyard.kinds.pods.templates import whole_number
from trainyard.objects import GVK, Json, labels_of, parse_time, uid_of
from trainyard.objects.extended_resources import pod_requests
from trainyard.objects.labels import OWNER, index_of, role_of
from trainyard.objects.resources import POD
from trainyard.workloads.device_admission import Gang
from trainyard.workloads.graph import Graph


class Gangs:
    """The gangs of the pods of one decision; each job is parsed once. `listed`: the resources that nodes list."""

    def __init__(self, graph: Graph, listed: Container[str]) -> None:
        self._graph, self._listed = graph, listed
        self._by_job: dict[str, Gang | None] = {}
        self._positions: dict[GVK, dict[str, int]] = {}

    def of(self, pod: Json) -> tuple[Gang, str]:
        """The gang of the pod, and the key of the pod among its members."""
        owner = str(labels_of(pod).get(OWNER) or "")
        if owner and owner not in self._by_job:
            job = self._graph.by_uid(owner)
            self._by_job[owner] = self._gang(*job) if job is not None else None
        gang = self._by_job.get(owner) or Gang(uid_of(pod), self._order(POD, pod))
        return gang, f"{role_of(pod)}/{index_of(pod)}" if role_of(pod) else uid_of(pod)

    def _order(self, gvk: GVK, obj: Json) -> tuple[float, int, str]:
        """creationTimestamp has whole seconds; in a second the watch has had the older objects first."""
        if gvk not in self._positions:
            self._positions[gvk] = {uid_of(other): position for position, other in enumerate(self._graph.all(gvk))}
        created = parse_time((obj.get("metadata") or {}).get("creationTimestamp")) or 0.0
        return created, self._positions[gvk].get(uid_of(obj), 0), uid_of(obj)

    def _gang(self, gvk: GVK, obj: Json) -> Gang | None:
        kind = kinds.kind_of(obj)
        if kind is None:
            return None
        members: dict[str, Mapping[str, int]] = {}
        for key, requested in gang_members(parse_job(kind, obj, Config())).items():
            if requests := {name: count for name, count in requested.items() if name in self._listed}:
                members[key] = requests
        return Gang(uid_of(obj), self._order(gvk, obj), members)


def gang_members(job: Job) -> dict[str, Mapping[str, int]]:
    """What each replica requests that has to fit before any of the job starts, by ROLE/INDEX."""
    members: dict[str, Mapping[str, int]] = {}
    left = _least_replicas(job)
    for role in job.roles:
        requests = pod_requests(role.template if isinstance(role.template, dict) else {})
        count = min(role.replicas, max(left, 0))
        left -= count
        members |= {f"{role.name}/{index}": requests for index in range(count)}
    return members


def _least_replicas(job: Job) -> int:
    """How many replicas have to fit: an elastic job starts with the smallest number of its workers."""
    fewest = fewest_members(job)
    if fewest is None and (least := whole_number(job.parsed.spec.get("minReplicas"))) is not None:
        workers = sum(role.replicas for role in job.roles if role.name.lower() == "worker")
        fewest = total_replicas(job) - workers + min(least, workers)
    return total_replicas(job) if fewest is None else fewest
