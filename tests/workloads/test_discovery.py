"""For which custom resources API discovery is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, encode
from trainyard.workloads.discovery import awaited, discover


def crd(group: str = "a.example", established: str = "True", served: bool = True) -> Json:
    status: dict[str, Any] = {"conditions": [{"type": "Established", "status": established}]} if established else {}
    versions = [{"name": "v1", "served": served}]
    return {"spec": {"group": group, "names": {"plural": "things"}, "versions": versions}, "status": status}


@pytest.mark.parametrize(
    ("definition", "served", "names"),
    [
        (crd(), GVK("a.example", "v1", "Thing", "things"), []),
        (crd(), GVK("b.example", "v1", "Thing", "things"), ["things.a.example"]),  # of another group: not the same
        (crd(), GVK("", "v1", "Pod", "pods"), ["things.a.example"]),
        (crd(established="False"), GVK("", "v1", "Pod", "pods"), []),  # a name conflict: found to be asked each second
        (crd(established=""), GVK("", "v1", "Pod", "pods"), []),
        (crd(served=False), GVK("", "v1", "Pod", "pods"), []),
    ],
)
def test_discovery_is_repeated_while_an_established_resource_is_missing(
    definition: Json, served: GVK, names: list[str]
) -> None:
    assert awaited([definition], [served]) == names


class Documents(ApiClient):
    """An API server that has these discovery documents."""

    def __init__(self, documents: Json) -> None:
        self.documents = documents

    async def request(self, method: str, path: str, *args: Any, **options: Any) -> bytes:
        return encode(self.documents[path])


async def test_a_resource_that_only_an_older_version_of_its_group_has_is_discovered() -> None:
    """ChainerJob is in kubeflow.org/v1alpha1 alone, beside the kinds of v1: its jobs were taken for deleted, and the
    garbage collector deleted their children."""

    def resources(group_version: str, *kinds: str) -> Json:
        verbs = ["list", "watch", "delete"]
        listed = [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True, "verbs": verbs} for kind in kinds]
        return {"groupVersion": group_version, "resources": listed}

    versions = [{"groupVersion": "g.example/v1"}, {"groupVersion": "g.example/v1alpha1"}]
    documents = {
        "/api/v1": resources("v1"),
        "/apis": {"groups": [{"preferredVersion": versions[0], "versions": versions}]},
        "/apis/g.example/v1": resources("g.example/v1", "New", "Both"),
        "/apis/g.example/v1alpha1": resources("g.example/v1alpha1", "Both", "Old"),
    }
    mapper = await discover(Documents(documents))
    assert sorted((gvk.version, gvk.kind) for gvk in mapper.namespaced) == [
        ("v1", "Both"),
        ("v1", "New"),
        ("v1alpha1", "Old"),
    ]
