"""Lists: selectors, pages of one snapshot, old revisions, forms."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.server_clients import (
    CRDS,
    JOBS,
    MAPS,
    PODS,
    THINGS,
    Cluster,
    config_map,
    crd,
    custom_object,
    job,
    pod,
)
from trainyard.objects import decode

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def names(answer: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_a_list_is_sorted_and_has_its_resource_version(cluster: Cluster) -> None:
    for name in ("c", "a", "b"):
        cluster.make(MAPS, config_map(name))
    got = cluster.get(MAPS)
    assert names(got) == ["a", "b", "c"]
    assert (got["kind"], got["apiVersion"], got["metadata"]) == ("ConfigMapList", "v1", {"resourceVersion": "4"})
    assert names(cluster.get("/api/v1/configmaps")) == ["a", "b", "c"]
    assert cluster.get("/api/v1/namespaces/other/configmaps")["items"] == []


def test_selectors_choose(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", nodeName="n1", metadata={"labels": {"app": "x", "tier": "1"}}))
    cluster.make(PODS, pod("b", metadata={"labels": {"app": "y"}}))
    for labels, fields, expected in [
        ("app=x", "", ["a"]),
        ("app!=x", "", ["b"]),
        ("app in (x,y),!tier", "", ["b"]),
        ("", "spec.nodeName=n1", ["a"]),
        ("", "spec.nodeName=", ["b"]),
        ("", "spec.nodeName!=n1,status.phase=Pending", ["b"]),
        ("", "metadata.name=a", ["a"]),
        ("app", "metadata.namespace=default,metadata.name==b", ["b"]),
        ("app=x", "spec.nodeName!=n1", []),
    ]:
        assert names(cluster.get(PODS, labelSelector=labels, fieldSelector=fields)) == expected, (labels, fields)


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in (b"},
        {"labelSelector": "=x"},
        {"fieldSelector": "spec.color=red"},
        {"fieldSelector": "nonsense"},
        {"limit": ""},
        {"limit": "x"},
        {"continue": "garbage"},
        {"continue": "e30"},
        {"resourceVersion": "x"},
        {"timeoutSeconds": "x"},
    ],
)
def test_a_malformed_query_is_a_bad_request(cluster: Cluster, query: dict[str, str]) -> None:
    assert cluster.refused("GET", PODS, **query).code == 400


def test_a_selector_is_parsed_once_however_long_it_is(cluster: Cluster) -> None:
    began = time.process_time()
    assert cluster.refused("GET", PODS, fieldSelector=f"metadata.name={' ' * 30_000}\\").code == 400
    assert time.process_time() - began < 5, "everybody else waits for it"


def test_all_pages_of_a_list_are_of_one_snapshot(cluster: Cluster) -> None:
    for name in "abcde":
        cluster.make(MAPS, config_map(name))
    first = cluster.get(MAPS, limit="2")
    assert names(first) == ["a", "b"] and first["metadata"]["remainingItemCount"] == 3
    cluster.delete(f"{MAPS}/c")
    cluster.make(MAPS, config_map("bb"))
    cluster.merge(f"{MAPS}/d", {"data": {"changed": "yes"}})
    second = cluster.get(MAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c", "d"] and "data" not in second["items"][1]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = cluster.get(MAPS, limit="2", **{"continue": second["metadata"]["continue"]})
    assert names(third) == ["e"] and "continue" not in third["metadata"]


def test_a_page_of_a_past_that_is_gone_is_refused(cluster: Cluster) -> None:
    for name in "abc":
        cluster.make(MAPS, config_map(name))
    token = cluster.get(MAPS, limit="1")["metadata"]["continue"]
    cluster.make(MAPS, config_map("d"))
    cluster.log.compact(cluster.log.revision)
    no = cluster.refused("GET", MAPS, limit="1", **{"continue": token})
    assert (no.code, no.reason) == (410, "Expired")


def test_a_list_at_a_revision_is_that_revision_or_gone(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    then = str(cluster.log.revision)
    cluster.make(MAPS, config_map("b"))
    assert names(cluster.get(MAPS, resourceVersion=then, resourceVersionMatch="Exact")) == ["a"]
    assert names(cluster.get(MAPS, resourceVersion=then, resourceVersionMatch="NotOlderThan")) == ["a", "b"]
    assert names(cluster.get(MAPS, resourceVersion="0")) == ["a", "b"]
    cluster.log.compact(cluster.log.revision)
    assert cluster.refused("GET", MAPS, resourceVersion=then, resourceVersionMatch="Exact").code == 410
    no = cluster.refused("GET", MAPS, resourceVersion="99")
    assert no.code == 504 and no.message == "Timeout: Too large resource version: 99, current: 3"


@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.integers(1, 4), st.sampled_from(["", "k=1", "k=2"]))
def test_pages_together_are_the_list(chosen: list[str], limit: int, selector: str) -> None:
    cluster = Cluster()
    for name in chosen:
        cluster.make(MAPS, config_map(name, metadata={"labels": {"k": "1" if name < "e" else "2"}}))
    listed: list[str] = []
    query: dict[str, Any] = {"limit": str(limit), "labelSelector": selector}
    while True:
        page = cluster.get(MAPS, **query)
        listed += names(page)
        assert len(page["items"]) <= limit
        if "continue" not in page["metadata"]:
            break
        query["continue"] = page["metadata"]["continue"]
    assert listed == names(cluster.get(MAPS, labelSelector=selector))


def table(cluster: Cluster, path: str, **query: Any) -> tuple[list[str], list[list[Any]]]:
    got = decode(cluster.raw("GET", path, accept=TABLE, **query).body)
    assert got["kind"] == "Table" and got["apiVersion"] == "meta.k8s.io/v1"
    return [column["name"] for column in got["columnDefinitions"]], [row["cells"] for row in got["rows"]]


def test_kubectl_gets_a_table(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", nodeName="n", containers=[{"name": "x", "image": "i"}, {"name": "y", "image": "i"}]))
    states = [
        {"name": "x", "ready": True, "restartCount": 1, "state": {"running": {}},
         "lastState": {"terminated": {"finishedAt": "2027-01-15T08:00:00Z"}}},
        {"name": "y", "ready": False, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]  # fmt: skip
    cluster.merge(
        f"{PODS}/a/status", {"status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": states}}
    )
    cluster.now += 300
    columns, rows = table(cluster, PODS)
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
    assert rows == [["a", "1/2", "CrashLoopBackOff", "3 (5m ago)", "5m", "10.0.0.1", "n", "<none>", "<none>"]]
    cluster.delete(f"{PODS}/a")
    assert table(cluster, PODS)[1][0][2] == "Terminating"


def test_the_table_of_a_job_has_its_columns(cluster: Cluster) -> None:
    cluster.make(JOBS, job("j"))
    status = {"startTime": "2027-01-15T08:00:00Z", "completionTime": "2027-01-15T08:01:00Z", "succeeded": 1,
              "conditions": [{"type": "Complete", "status": "True"}]}  # fmt: skip
    cluster.merge(f"{JOBS}/j/status", {"status": status})
    cluster.now += 7200
    assert table(cluster, JOBS)[1][0][:6] == ["j", "Complete", "1/1", "60s", "120m", "main"]


def test_a_definition_brings_its_own_columns(cluster: Cluster) -> None:
    columns = [
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    cluster.make(CRDS, crd(additionalPrinterColumns=columns))
    cluster.make(THINGS, custom_object("a"))
    conditions = [{"type": "Ready", "status": "True"}]
    cluster.merge(f"{THINGS}/a/status", {"status": {"state": "Running", "conditions": conditions}})
    cluster.make(THINGS, custom_object("b"))
    heads, rows = table(cluster, THINGS)
    assert heads == ["Name", "State", "Replicas", "Ready", "Since"]
    assert rows == [["a", "Running", 1, "True", "0s"], ["b", None, 1, None, "0s"]]


def test_a_table_survives_objects_of_any_shape(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    cluster.merge(f"{PODS}/a/status", {"status": {"containerStatuses": [{}], "initContainerStatuses": [None]}})
    assert table(cluster, PODS)[1][0][0] == "a"


def test_a_table_row_has_metadata_the_object_or_nothing(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a", data={"k": "v"}))
    for include, shape in (("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")):
        row = decode(cluster.raw("GET", MAPS, accept=TABLE, includeObject=include).body)["rows"][0]
        assert (row.get("object") or {}).get("kind") == shape
        assert row["cells"] == ["a", 1, "0s"]


def test_partial_object_metadata_can_be_requested(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a", data={"k": "v"}))
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    got = decode(cluster.raw("GET", MAPS, accept=accept).body)
    assert got["kind"] == "PartialObjectMetadataList" and "data" not in got["items"][0]


def test_a_form_that_the_server_has_not_is_refused(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    with pytest.raises(Exception, match="406: Not Acceptable"):
        cluster.raw("GET", MAPS, accept="application/vnd.kubernetes.protobuf")
    before = cluster.log.revision
    with pytest.raises(Exception, match="406: Not Acceptable"):
        cluster.raw("POST", MAPS, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}', accept="text/html")
    assert cluster.log.revision == before


def test_discovery_lists_the_served_resources(cluster: Cluster) -> None:
    assert cluster.get("/api")["versions"] == ["v1"]
    core = {resource["name"]: resource for resource in cluster.get("/api/v1")["resources"]}
    assert core["pods"]["shortNames"] == ["po"] and core["pods"]["namespaced"] is True
    assert {"pods/status", "pods/log", "pods/binding", "nodes", "events"} <= set(core)
    assert "example.org" not in {group["name"] for group in cluster.get("/apis")["groups"]}
    cluster.make(CRDS, crd())
    groups = {group["name"]: group for group in cluster.get("/apis")["groups"]}
    assert groups["example.org"]["preferredVersion"] == {"groupVersion": "example.org/v1", "version": "v1"}
    assert cluster.get("/apis/batch")["name"] == "batch"
    assert [resource["name"] for resource in cluster.get("/apis/example.org/v1")["resources"]] == [
        "things",
        "things/status",
    ]
    assert cluster.get("/version")["major"] == "1"
    for health in ("/healthz", "/livez", "/readyz"):
        assert cluster.raw("GET", health).body == b"ok"
    assert cluster.refused("GET", "/apis/nope").code == 404
    assert cluster.refused("GET", "/openapi/v2").code == 404
