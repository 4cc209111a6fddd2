"""What is said where no PodMetrics can be read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trainyard.app.evidence.pod_metrics import read_pod_metrics
from trainyard.client import ApiClient, ApiError, Forbidden, NotFound
from trainyard.objects import Json

MAY_NOT_LIST = 'pods.metrics.k8s.io is forbidden: User "alice" cannot list resource "pods" in API group'


class OfAUser:
    """A cluster whose RBAC lets a user read discovery, and no PodMetrics; it answers before the 404 of the resource."""

    def __init__(self, discovery: ApiError | None) -> None:
        self.discovery = discovery

    async def list(self, *arguments: Any) -> Json:
        raise Forbidden(403, "Forbidden", MAY_NOT_LIST)

    async def request(self, method: str, path: str) -> bytes:
        assert (method, path) == ("GET", "/apis/metrics.k8s.io/v1beta1")
        if self.discovery is not None:
            raise self.discovery
        return b'{"kind": "APIResourceList", "resources": [{"name": "nodes"}, {"name": "pods"}]}'


@pytest.mark.parametrize(
    ("discovery", "says"),
    [
        (NotFound(404, "NotFound", "the server could not find the requested resource"), "install metrics-server"),
        (None, "ask for a Role"),
        (Forbidden(403, "Forbidden", "cannot get path"), "ask for a Role"),
    ],
)
async def test_a_cluster_without_metrics_says_so_to_a_user_who_may_not_list_them(
    discovery: ApiError | None, says: str
) -> None:
    items, text = await read_pod_metrics(cast(ApiClient, OfAUser(discovery)), "default", "")
    assert not items and says in text, text
