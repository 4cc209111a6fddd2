"""Garbage is accepted or refused by name; any other exception is a bug of ours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.server_clients import CRDS, Cluster, crd
from trainyard.objects import decode, encode
from trainyard.server.model.errors import StatusError
from trainyard.server.model.requests import Request

pytestmark = pytest.mark.slow

FIELDS = """
    apiVersion kind metadata spec status name labels annotations finalizers ownerReferences generateName template
    containers image env ports selector matchLabels group versions names plural schema data type clusterIP port
    restartPolicy volumes resourceVersion uid preconditions propagationPolicy gracePeriodSeconds target
"""
QUERIES = """
    watch limit continue resourceVersion resourceVersionMatch labelSelector fieldSelector timeoutSeconds dryRun
    propagationPolicy sendInitialEvents container
"""
FIELD = st.sampled_from(FIELDS.split()) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(FIELD, below, max_size=5),
    max_leaves=30,
)
KINDS = [
    ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap"),
    ("/api/v1/namespaces/default/pods", "v1", "Pod"),
    ("/api/v1/namespaces/default/services", "v1", "Service"),
    ("/api/v1/namespaces/default/secrets", "v1", "Secret"),
    ("/api/v1/namespaces/default/events", "v1", "Event"),
    ("/api/v1/namespaces/default/endpoints", "v1", "Endpoints"),
    ("/apis/events.k8s.io/v1/namespaces/default/events", "events.k8s.io/v1", "Event"),
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "discovery.k8s.io/v1", "EndpointSlice"),
    ("/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", "scheduling.k8s.io/v1beta1", "PodGroup"),
    ("/api/v1/namespaces", "v1", "Namespace"),
    ("/api/v1/nodes", "v1", "Node"),
    ("/apis/batch/v1/namespaces/default/jobs", "batch/v1", "Job"),
    ("/apis/apps/v1/namespaces/default/deployments", "apps/v1", "Deployment"),
    ("/apis/apps/v1/namespaces/default/statefulsets", "apps/v1", "StatefulSet"),
    ("/api/v1/namespaces/default/persistentvolumeclaims", "v1", "PersistentVolumeClaim"),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("/apis/example.org/v1/namespaces/default/things", "example.org/v1", "Thing"),
]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
MERGE = "application/merge-patch+json"


def attempt(cluster: Cluster, request: Request) -> None:
    refused: StatusError | None = None
    try:
        cluster.verbs.answer(request)
    except StatusError as no:
        refused = no
    if refused is not None:
        assert 400 <= refused.code < 500 or refused.code == 504
        assert decode(refused.body())["status"] == "Failure"


def whole_pods() -> st.SearchStrategy[object]:
    """Objects that come close to being right, so that more than the first check is met."""
    container = st.fixed_dictionaries(
        {"name": st.sampled_from("ab"), "image": st.sampled_from(["", "x", "x:1"])},
        optional={"env": JSON, "ports": JSON, "volumeMounts": JSON, "resources": JSON, "command": JSON},
    )
    spec = st.fixed_dictionaries(
        {"containers": st.lists(container, max_size=2)},
        optional={"restartPolicy": JSON, "volumes": JSON, "initContainers": st.lists(container), "dnsConfig": JSON},
    )
    template = st.fixed_dictionaries({"spec": spec}, optional={"metadata": JSON})
    job = st.fixed_dictionaries({"template": template}, optional={"selector": JSON, "completions": JSON})
    return st.fixed_dictionaries({"spec": spec | job}, optional={"metadata": JSON, "status": JSON})


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(KINDS), JSON | whole_pods(), JSON, st.sampled_from(["PUT", "MERGE", "DELETE", "status", "JSON"]))
def test_random_bodies_are_accepted_or_refused_with_their_field(
    kind: tuple[str, str, str], body: object, second: object, then: str
) -> None:
    path, version, field = kind
    cluster = Cluster()
    cluster.make(CRDS, crd())
    if isinstance(body, dict):
        meta = body.get("metadata")
        meta = {**(meta if isinstance(meta, dict) else {}), "name": "a"}
        body = {**body, "apiVersion": version, "kind": field, "metadata": meta}
    attempt(cluster, Request("POST", path, {}, encode(body), "application/json"))
    attempt(cluster, Request("GET", path, {}, accept=TABLE))
    if then == "JSON":
        steps = [{"op": "add", "path": "/spec", "value": second}]
        attempt(cluster, Request("PATCH", f"{path}/a", {}, encode(steps), "application/json-patch+json"))
    elif then == "status":
        attempt(cluster, Request("PATCH", f"{path}/a/status", {}, encode({"status": second}), MERGE))
    elif then == "MERGE":
        attempt(cluster, Request("PATCH", f"{path}/a", {}, encode(second), MERGE))
    else:
        attempt(cluster, Request(then, f"{path}/a", {}, encode(second), "application/json"))
    attempt(cluster, Request("GET", path, {}, accept=TABLE))
    attempt(cluster, Request("DELETE", f"{path}/a"))


WORD = st.sampled_from(["api", "apis", "v1", "batch", "namespaces", "default", "pods", "a", "", "log", "binding"])


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "X"]),
    st.lists(WORD, max_size=8) | st.lists(st.text(max_size=4), max_size=5),
    st.dictionaries(st.sampled_from(QUERIES.split()), st.text(max_size=8), max_size=3),
    st.binary(max_size=20),
)
def test_any_request_line_gets_an_answer(method: str, parts: list[str], query: dict[str, str], body: bytes) -> None:
    attempt(Cluster(), Request(method, "/" + "/".join(parts), query, body, "application/json"))
