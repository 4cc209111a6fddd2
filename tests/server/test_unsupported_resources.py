"""Resources that every cluster has and this one does not serve: the error message of a request."""

from __future__ import annotations

import pytest

from tests.server.server_clients import Cluster
from trainyard.server.builtin import BUILT_IN
from trainyard.server.builtin.unsupported_resources import ALTERNATIVES
from trainyard.server.model.errors import StatusError
from trainyard.server.model.resources import Registry

V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.parametrize(("group", "plural"), ALTERNATIVES)
def test_each_unsupported_resource_has_an_alternative(cluster: Cluster, group: str, plural: str) -> None:
    place = f"/apis/{group}/v1" if group else "/api/v1"
    for method, path in (("POST", f"{place}/namespaces/default/{plural}"), ("GET", f"{place}/{plural}")):
        refused = cluster.refused(method, path, {} if method == "POST" else None)
        assert (refused.code, refused.reason) == (404, "NotFound")
        assert refused.message.endswith(f"are not served here: {ALTERNATIVES[group, plural]}")


def test_unsupported_resources_are_not_served() -> None:
    served = {(resource.group, resource.plural) for resource in Registry(BUILT_IN).all()}
    assert not served & set(ALTERNATIVES)


def test_an_unknown_resource_is_not_found_as_usual(cluster: Cluster) -> None:
    assert "could not find the requested resource" in cluster.refused("GET", "/apis/batch/v1/nonsense").message


def test_kubectl_that_does_not_find_a_kind_gets_an_empty_document_to_read(cluster: Cluster) -> None:
    answer = cluster.raw("GET", "/openapi/v2", accept=V2)
    assert (answer.code, answer.body) == (200, b"")
    assert "@" not in answer.content_type  # no media type, kubectl says
    with pytest.raises(StatusError, match="ask for /openapi/v3"):
        cluster.raw("GET", "/openapi/v2")
