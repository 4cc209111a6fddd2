"""The gang of a pod: the pods of its PodGroup, or the pod alone. Pure."""

from __future__ import annotations

from trainyard.objects import GVK, Json, NamespacedName, parse_time, uid_of
from trainyard.objects.resources import NATIVE_POD_GROUP, POD
from trainyard.workloads import pod_groups
from trainyard.workloads.device_admission import Gang
from trainyard.workloads.graph import Graph


class Gangs:
    """The gangs of the pods of one decision; each group is looked at once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._by_group: dict[NamespacedName, Gang] = {}
        self._positions: dict[GVK, dict[str, int]] = {}

    def of(self, pod: Json) -> Gang:
        """The gang of the pod."""
        key = pod_groups.group_of(pod)
        if key is None:
            return Gang(uid_of(pod), self._order(POD, pod))
        if key not in self._by_group:
            self._by_group[key] = self.of_group(key)
        return self._by_group[key]

    def of_group(self, key: NamespacedName) -> Gang:
        """The gang of a PodGroup, which need not exist."""
        group, members = self._graph.get(NATIVE_POD_GROUP, key), self._graph.members_of(key)
        if group is None:
            return Gang(f"{key}", (0.0, 0, ""), is_held=True)
        min_count = pod_groups.min_count(group)
        is_held = pod_groups.is_held(group, members)
        return Gang(uid_of(group), self._order(NATIVE_POD_GROUP, group), min_count, is_held)

    def _order(self, gvk: GVK, obj: Json) -> tuple[float, int, str]:
        """creationTimestamp has whole seconds; in a second the watch has had the older objects first."""
        if gvk not in self._positions:
            self._positions[gvk] = {uid_of(other): position for position, other in enumerate(self._graph.all(gvk))}
        created = parse_time((obj.get("metadata") or {}).get("creationTimestamp")) or 0.0
        return created, self._positions[gvk].get(uid_of(obj), 0), uid_of(obj)
