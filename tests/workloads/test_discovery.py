"""For which custom resources API discovery is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.objects import GVK, Json
from trainyard.workloads.discovery import awaited


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
def test_discovery_is_asked_again_while_an_established_resource_is_missing(
    definition: Json, served: GVK, names: list[str]
) -> None:
    assert awaited([definition], [served]) == names
