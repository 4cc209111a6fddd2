"""The indexes by label: they offer every match, and few others however many Services a job has."""

from __future__ import annotations

import itertools

import pytest

from trainyard.controller_runtime.reflector import ListReplaced
from trainyard.controller_runtime.store import Change
from trainyard.objects import Json, name_of, namespace_of
from trainyard.objects.resources import POD, SERVICE
from trainyard.workloads.graph import Graph


def _object(name: str, labels: dict[str, str], selector: dict[str, str] | None = None, namespace: str = "a") -> Json:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    return {"metadata": meta, "spec": {"selector": selector}}


def _graph(services: list[Json], pods: list[Json]) -> Graph:
    graph = Graph()
    for gvk, objs in ((SERVICE, services), (POD, pods)):
        store = graph.add_store(gvk)
        for change in store.apply(ListReplaced(tuple(objs), "1")):
            graph.index(gvk, change)
    return graph


def _job(count: int) -> Graph:
    """A job with one Service for each replica and one for all."""
    replicas = [(f"worker-{index}", {"job": "j", "role": "worker", "index": str(index)}) for index in range(count)]
    services = [_object(name, {}, labels) for name, labels in replicas]
    return _graph([*services, _object("all", {}, {"job": "j"})], [_object(name, labels) for name, labels in replicas])


@pytest.mark.parametrize("count", [10, 1000])
def test_a_change_of_a_pod_looks_at_a_constant_number_of_services(count: int) -> None:
    graph = _job(count)
    pods = list(graph.all(POD))
    for pod in pods:
        assert {name_of(service) for service in graph.services_of(pod)} == {name_of(pod), "all"}
    assert graph.services_by_selector.tried <= 4 * count


@pytest.mark.parametrize("count", [10, 1000])
def test_the_service_of_a_replica_looks_at_a_constant_number_of_pods(count: int) -> None:
    graph = _job(count)
    for service in graph.all(SERVICE):
        expected = count if name_of(service) == "all" else 1
        assert len(graph.selected_pods(service)) == expected
    assert graph.pods_by_label.tried == 2 * count


def test_the_indexes_offer_every_match_of_every_selector() -> None:
    values = [dict(zip("xyz", chosen, strict=True)) for chosen in itertools.product(("1", "2", ""), repeat=3)]
    labels = [{name: value for name, value in chosen.items() if value} for chosen in values]
    objs = [_object(f"{kind}{number}", pairs, pairs) for kind in "sp" for number, pairs in enumerate(labels)]
    half = len(labels)
    elsewhere = [_object("elsewhere", {"x": "1"}, {"x": "1"}, "b")]
    graph = _graph([*objs[:half], *elsewhere], [*objs[half:], *elsewhere])
    for service in graph.all(SERVICE):
        selector = service["spec"]["selector"]
        same_namespace = [pod for pod in graph.all(POD) if namespace_of(pod) == namespace_of(service)]
        selected = [pod for pod in same_namespace if selector and selector.items() <= pod["metadata"]["labels"].items()]
        assert graph.selected_pods(service) == selected
        for pod in same_namespace:
            assert (service in graph.services_of(pod)) == (pod in selected)


def test_an_index_forgets_changed_and_deleted_objects() -> None:
    graph = _job(2)
    (pod, other), (service, *_) = graph.all(POD), graph.all(SERVICE)
    graph.index(POD, Change(pod, _object(name_of(pod), {"job": "k"})))
    graph.index(POD, Change(other, None))
    assert list(graph.pods_by_label.candidates("a", {"job": "j"})) == []
    assert [key.name for key in graph.pods_by_label.candidates("a", {"job": "k"})] == [name_of(pod)]
    for listed in graph.all(SERVICE):
        graph.index(SERVICE, Change(listed, None))
    assert list(graph.services_by_selector.candidates("a", service["spec"]["selector"])) == []
    assert graph.services_by_selector._keys == {}
