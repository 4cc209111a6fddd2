"""What is read of a job by a user who may not list everything."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trainyard.app.evidence.related_objects import get_related_objects
from trainyard.client import ApiClient, Forbidden, NotFound
from trainyard.kinds import PYTORCHJOB
from trainyard.objects import GVK, Json, encode

JOB: Json = {"kind": "PyTorchJob", "metadata": {"name": "mnist", "namespace": "default", "uid": "uid-of-mnist"}}
VOLCANO, SCHEDULER_PLUGINS = "scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"


class OfAUser:
    """A cluster with some gang schedulers, in which a user may list no PodGroup: RBAC answers before the 404 of a
    resource that does not exist."""

    def __init__(self, discovery: dict[str, Json]) -> None:
        self.discovery = discovery

    async def list(self, gvk: GVK, *arguments: Any) -> Json:
        if gvk.kind == "PodGroup":
            raise Forbidden(403, "Forbidden", "podgroups is forbidden")
        return {"items": []}

    async def request(self, method: str, path: str) -> bytes:
        version = path.removeprefix("/apis/")
        if version not in self.discovery:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        return encode({"kind": "APIResourceList", **self.discovery[version]})


@pytest.mark.parametrize(
    ("discovery", "refused"),
    [
        ({}, []),
        ({SCHEDULER_PLUGINS: {"resources": [{"name": "elasticquotas"}]}}, []),
        ({VOLCANO: {"resources": [{"name": "podgroups"}]}}, [VOLCANO]),
    ],
)
async def test_who_may_not_list_what_the_cluster_does_not_serve_is_not_refused(
    discovery: dict[str, Json], refused: list[str]
) -> None:
    related = await get_related_objects(cast(ApiClient, OfAUser(discovery)), PYTORCHJOB, JOB)
    assert [gvk.api_version for gvk in related.refused] == refused
