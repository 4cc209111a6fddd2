"""metrics.k8s.io: the usage of pods and nodes as metrics-server serves it, for `kubectl top`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.server_clients import PODS, START, Cluster, pod
from trainyard.objects import decode
from trainyard.objects.structs import replace
from trainyard.objects.usage import ContainerUsage, NodeUsage, PodUsage, UsageReport
from trainyard.server.builtin import metrics
from trainyard.server.model.errors import StatusError
from trainyard.server.model.users import User

METRICS = "/apis/metrics.k8s.io/v1beta1"
MIB = 1 << 20


class Usage(Cluster):
    """A cluster with two running pods, of which the node has measured one, and a pod that has not started."""

    def __init__(self) -> None:
        super().__init__()
        self.report = UsageReport()
        for resource in metrics.resources(lambda: self.report):
            self.verbs._registry.add(resource)
        self.make("/api/v1/nodes", {"kind": "Node", "metadata": {"name": "local", "labels": {"zone": "a"}}})
        self.make("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "other"}})
        for name in ("b", "a", "new"):
            created = self.make(PODS, pod(name, metadata={"labels": {"app": name}}))
            if name != "new":
                self.ask("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}}, MERGE)
            if name != "b":
                continue
            container = ContainerUsage("main", 1, 0.9876543214, 200 * MIB + 1, 300 * MIB, True)
            usage = PodUsage("default", "b", created["metadata"]["uid"], START, 2.0034, (container,))
            self.report = UsageReport((usage,), NodeUsage("local", START, 61.5, 1.5, 1024))


MERGE = "application/merge-patch+json"


@pytest.fixture
def cluster() -> Usage:
    return Usage()


def table(cluster: Usage, path: str) -> Any:
    return decode(cluster.raw("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io").body)


def test_a_pod_has_its_usage_its_labels_and_the_peak_of_its_memory(cluster: Usage) -> None:
    metric = cluster.ask("GET", f"{METRICS}/namespaces/default/pods/b")
    meta = metric.pop("metadata")
    assert metric == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "timestamp": "2027-01-15T08:00:00Z",
        "window": "2.003s",
        "containers": [{"name": "main", "usage": {"cpu": "987654321n", "memory": "204801Ki"}}],
    }
    assert (meta["name"], meta["namespace"], meta["labels"]) == ("b", "default", {"app": "b"})
    assert json.loads(meta["annotations"]["trainyard.dev/peak-memory"]) == {"main/1": 300 * MIB}
    assert meta["annotations"]["trainyard.dev/memory-measure"] == "PSS"


def test_the_node_has_the_usage_of_the_machine(cluster: Usage) -> None:
    (metric,) = cluster.ask("GET", f"{METRICS}/nodes")["items"]
    assert (metric["usage"], metric["window"]) == ({"cpu": "1500000000n", "memory": "1Ki"}, "1m1.5s")
    assert cluster.ask("GET", f"{METRICS}/nodes/local")["metadata"]["labels"] == {"zone": "a"}
    assert cluster.ask("GET", f"{METRICS}/nodes", labelSelector="zone=b")["items"] == []


@pytest.mark.parametrize(
    ("path", "query", "names"),
    [
        ("/pods", {}, ["b"]),
        ("/namespaces/default/pods", {}, ["b"]),
        ("/namespaces/other/pods", {}, []),
        ("/pods", {"labelSelector": "app=b"}, ["b"]),
        ("/pods", {"labelSelector": "app!=b"}, []),
        ("/pods", {"fieldSelector": "metadata.name=b"}, ["b"]),
        ("/pods", {"fieldSelector": "metadata.name=a"}, []),
    ],
)
def test_lists_are_selected_as_those_of_pods(
    cluster: Usage, path: str, query: dict[str, str], names: list[str]
) -> None:
    listed = cluster.ask("GET", f"{METRICS}{path}", **query)
    assert (listed["kind"], listed["apiVersion"]) == ("PodMetricsList", "metrics.k8s.io/v1beta1")
    assert [item["metadata"]["name"] for item in listed["items"]] == names


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/namespaces/default/pods/a", 'podmetrics.metrics.k8s.io "default/a" not found'),
        ("/namespaces/default/pods/new", 'podmetrics.metrics.k8s.io "default/new" not found'),
        ("/namespaces/default/pods/none", 'pods "none" not found'),
        ("/nodes/none", 'nodes "none" not found'),
    ],
)
def test_what_has_no_measurement_is_not_found_as_with_metrics_server(cluster: Usage, path: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        cluster.ask("GET", f"{METRICS}{path}")
    assert (refused.value.code, refused.value.message) == (404, message)


def test_a_node_that_has_not_been_measured_is_not_found(cluster: Usage) -> None:
    cluster.report = UsageReport()
    assert cluster.ask("GET", f"{METRICS}/nodes")["items"] == []
    with pytest.raises(StatusError, match=r'nodemetrics\.metrics\.k8s\.io "local" not found'):
        cluster.ask("GET", f"{METRICS}/nodes/local")


def test_a_measurement_is_not_that_of_a_pod_with_the_same_name_or_that_has_ended(cluster: Usage) -> None:
    (usage,) = cluster.report.pods
    cluster.report = UsageReport((replace(usage, uid="other"),))
    assert cluster.ask("GET", f"{METRICS}/pods")["items"] == []
    cluster.report = UsageReport((usage,))
    cluster.ask("PATCH", f"{PODS}/b/status", {"status": {"phase": "Succeeded"}}, MERGE)
    assert cluster.ask("GET", f"{METRICS}/pods")["items"] == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/nodes", "/nodes/local", "/namespaces/default/pods", "/namespaces/default/pods/b"])
def test_it_is_only_read(cluster: Usage, method: str, path: str) -> None:
    with pytest.raises(StatusError) as refused:
        cluster.ask(
            method, f"{METRICS}{path}", {"metadata": {"name": "b"}}, MERGE if method == "PATCH" else "application/json"
        )
    assert refused.value.code == 405


def test_it_is_not_watched(cluster: Usage) -> None:
    with pytest.raises(StatusError) as refused:
        cluster.ask("GET", f"{METRICS}/pods", watch="1")
    assert refused.value.code == 405


def test_a_table_has_the_columns_of_metrics_server(cluster: Usage) -> None:
    pods = table(cluster, f"{METRICS}/namespaces/default/pods")
    assert [column["name"] for column in pods["columnDefinitions"]] == ["Name", "cpu", "memory", "Window"]
    assert pods["rows"][0]["cells"] == ["b", "987654321n", "204801Ki", "2.003s"]
    assert table(cluster, f"{METRICS}/nodes/local")["rows"][0]["cells"] == ["local", "1500000000n", "1Ki", "1m1.5s"]


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json", 200),
        ("application/vnd.kubernetes.protobuf", 406),
    ],
)
def test_json_is_answered_and_protobuf_alone_is_refused(cluster: Usage, accept: str, code: int) -> None:
    for path in (f"{METRICS}/pods", f"{METRICS}/nodes/local"):
        if code == 200:
            assert cluster.raw("GET", path, accept=accept).code == 200
        else:
            with pytest.raises(StatusError) as refused:
                cluster.raw("GET", path, accept=accept)
            assert refused.value.code == code


def test_discovery_names_it_last_so_that_pods_are_those_of_the_core_group(cluster: Usage) -> None:
    groups = cluster.ask("GET", "/apis")["groups"]
    assert groups[-1]["name"] == "metrics.k8s.io"
    listed = cluster.ask("GET", METRICS)["resources"]
    assert [(entry["name"], entry["kind"], entry["namespaced"], entry["verbs"]) for entry in listed] == [
        ("nodes", "NodeMetrics", False, ["get", "list"]),
        ("pods", "PodMetrics", True, ["get", "list"]),
    ]
    assert all("storageVersionHash" not in entry for entry in listed)
    assert "apis/metrics.k8s.io/v1beta1" not in cluster.ask("GET", "/openapi/v3")["paths"]


def test_rbac_decides_who_reads_it(cluster: Usage) -> None:
    cluster.make(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "metadata": {"name": "top"},
            "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["get", "list"]}],
        },
    )
    cluster.make(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        {
            "metadata": {"name": "top"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "top"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}],
        },
    )
    with cluster.acting(User("eve")):
        assert len(cluster.ask("GET", f"{METRICS}/namespaces/default/pods")["items"]) == 1
        for path in ("/pods", "/nodes", "/namespaces/other/pods"):
            with pytest.raises(StatusError) as refused:
                cluster.ask("GET", f"{METRICS}{path}")
            assert refused.value.code == 403 and 'in API group "metrics.k8s.io"' in refused.value.message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2s"), (0.5, "0.5s"), (2.0004, "2s"), (59.9996, "1m0s"), (90.25, "1m30.25s"), (7200, "2h0m0s")],
)
def test_windows_are_durations_as_go_writes_them(seconds: float, text: str) -> None:
    assert metrics._window(seconds) == text


def test_a_pod_of_which_one_process_cannot_be_measured_proportionally_says_rss(cluster: Usage) -> None:
    (usage,) = cluster.report.pods
    side = replace(usage.containers[0], name="side", is_proportional=False)
    cluster.report = UsageReport((replace(usage, containers=(usage.containers[0], side)),))
    metric = cluster.ask("GET", f"{METRICS}/namespaces/default/pods/b")
    assert metric["metadata"]["annotations"]["trainyard.dev/memory-measure"] == "RSS"
    assert table(cluster, f"{METRICS}/pods")["rows"][0]["cells"][1] == "1975308642n"
