"""What the built-in resources fill in and refuse, as the real server does."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.server.server_clients import (
    CRDS,
    JOBS,
    MAPS,
    PODS,
    SERVICES,
    THINGS,
    Cluster,
    config_map,
    crd,
    custom_object,
    job,
    pod,
)
from trainyard.objects.structs import replace
from trainyard.server.model.requests import KubeletProxy

MERGE = "application/merge-patch+json"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def causes(no: Any) -> list[tuple[str, str]]:
    assert no.code == 422, no.message
    return [(cause["field"], cause["message"]) for cause in no.details["causes"]]


def test_a_created_pod_gets_the_defaults_that_clients_rely_on(cluster: Cluster) -> None:
    created = cluster.make(PODS, {**pod("a"), "status": {"phase": "Running"}})
    spec = created["spec"]
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["dnsPolicy"]) == (
        "Always",
        30,
        "ClusterFirst",
    )
    assert spec["serviceAccountName"] == "default"
    (container,) = spec["containers"]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(cluster: Cluster, image: str, policy: str) -> None:
    created = cluster.make(PODS, pod("a", containers=[{"name": "c", "image": image}]))
    assert created["spec"]["containers"][0]["imagePullPolicy"] == policy


C = {"name": "c", "image": "i"}
BAD_PODS: list[tuple[str, dict[str, Any], str, str]] = [
    ("no containers", {"containers": []}, "spec.containers", "Required value"),
    ("no image", {"containers": [{"name": "c"}]}, "spec.containers[0].image", "Required value"),
    ("no name", {"containers": [{"image": "i"}]}, "spec.containers[0].name", "Required value"),
    ("a bad name", {"containers": [{"name": "C", "image": "i"}]}, "spec.containers[0].name", "Invalid value"),
    ("a name twice", {"containers": [C, C]}, "spec.containers[1].name", "Duplicate value"),
    ("a name twice over groups", {"containers": [C], "initContainers": [C]},
     "spec.initContainers[0].name", "Duplicate value"),
    ("a policy", {"restartPolicy": "Sometimes"}, "spec.restartPolicy", 'Unsupported value: "Sometimes"'),
    ("no volume", {"containers": [{**C, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
     "spec.containers[0].volumeMounts[0].name", 'Not found: "v"'),
    ("an environment", {"containers": [{**C, "env": [{"name": "A=B"}]}]}, "spec.containers[0].env[0].name", "Invalid"),
    ("a host name", {"hostname": "a.b"}, "spec.hostname", "Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "path", "text"), [pytest.param(*row[1:], id=row[0]) for row in BAD_PODS])
def test_a_wrong_pod_is_refused_at_its_place(cluster: Cluster, spec: dict[str, Any], path: str, text: str) -> None:
    field_causes = causes(cluster.refused("POST", PODS, pod("a", **spec)))
    assert any(field == path and message.startswith(text) for field, message in field_causes), field_causes


def test_a_pod_that_cannot_be_read_is_a_bad_request(cluster: Cluster) -> None:
    no = cluster.refused("POST", PODS, pod("a", terminationGracePeriodSeconds="x"))
    assert no.code == 400 and "spec.terminationGracePeriodSeconds: Invalid value" in no.message


def test_a_pods_spec_stays_but_for_its_images(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    no = cluster.refused("PATCH", f"{PODS}/a", {"spec": {"nodeName": "n"}}, MERGE)
    assert no.code == 422 and "pod updates may not change fields other than" in no.message
    created = cluster.get(f"{PODS}/a")
    created["spec"]["containers"][0]["image"] = "busybox:2"
    assert cluster.ask("PUT", f"{PODS}/a", created)["spec"]["containers"][0]["image"] == "busybox:2"


def binding(node: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": node}}


def test_a_pod_is_bound_once(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    assert cluster.make(f"{PODS}/a/binding", binding("n"))["status"] == "Success"
    bound = cluster.get(f"{PODS}/a")
    assert bound["spec"]["nodeName"] == "n"
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    no = cluster.refused("POST", f"{PODS}/a/binding", binding("m"))
    assert no.code == 409 and 'pod a is already assigned to node "n"' in no.message
    assert cluster.refused("POST", f"{PODS}/a/binding", binding(5)).code == 400
    assert cluster.refused("POST", f"{PODS}/zzz/binding", binding("n")).code == 404


def test_a_pods_log_is_at_its_nodes_kubelet(cluster: Cluster) -> None:
    two = [{"name": "x", "image": "i"}, {"name": "y", "image": "i"}]
    cluster.make(PODS, pod("a", containers=two))
    no = cluster.refused("GET", f"{PODS}/a/log", container="x")
    assert "does not have a host assigned" in no.message
    cluster.make(f"{PODS}/a/binding", binding("n"))
    assert 'nodes "n" not found' in cluster.refused("GET", f"{PODS}/a/log", container="x").message
    status = {
        "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}
    assert cluster.make("/api/v1/nodes", node)["status"] == status
    no = cluster.refused("GET", f"{PODS}/a/log")
    assert no.code == 400 and "a container name must be specified for pod a, choose one of: [x y]" in no.message
    assert "not valid for pod a" in cluster.refused("GET", f"{PODS}/a/log", container="z").message
    log_text = cluster.raw("GET", f"{PODS}/a/log", container="y", follow="true", tailLines="5")
    url = "http://127.0.0.1:10250/containerLogs/default/a/y?follow=true&tailLines=5"
    assert log_text == KubeletProxy(url)


def test_a_job_gets_its_selector_and_labels(cluster: Cluster) -> None:
    created = cluster.make(JOBS, job("j"))
    uid, spec = created["metadata"]["uid"], created["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"], spec["suspend"]) == (1, 1, 6, False)
    assert created["status"] == {}


def test_a_job_with_labels_of_its_own_does_not_get_its_templates(cluster: Cluster) -> None:
    """Only a Job without labels gets the generated ones, as the real server has it."""
    template = {"metadata": {"labels": {"app": "sum"}}, "spec": {"containers": [C], "restartPolicy": "Never"}}
    for name, labels in (("with", {"app": "sum"}), ("without", {})):
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"template": template}}
        created = cluster.make(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **body})
        assert ("job-name" in created["metadata"]["labels"]) == (name == "without")


@pytest.mark.parametrize("policy", [None, "Always"])
def test_a_batch_job_refuses_restart_policy_always(cluster: Cluster, policy: str | None) -> None:
    wrong = job("j")
    wrong["spec"]["template"]["spec"]["restartPolicy"] = policy
    if policy is None:
        del wrong["spec"]["template"]["spec"]["restartPolicy"]
    no = cluster.refused("POST", JOBS, wrong)
    assert causes(no) == [("spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')]
    assert no.message.startswith('Job.batch "j" is invalid: spec.template.spec.restartPolicy: Required value')


def test_a_jobs_template_stays_and_suspend_does_not(cluster: Cluster) -> None:
    cluster.make(JOBS, job("j"))
    changed = cluster.merge(f"{JOBS}/j", {"spec": {"suspend": True}})
    assert changed["spec"]["suspend"] is True and changed["metadata"]["generation"] == 2
    template = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    no = cluster.refused("PATCH", f"{JOBS}/j", {"spec": {"template": template}}, MERGE)
    (cause,) = causes(no)
    assert cause[0] == "spec.template.spec" and cause[1].endswith("field is immutable")


def test_a_replace_with_a_jobs_manifest_lacks_generated_fields_and_is_refused(cluster: Cluster) -> None:
    cluster.make(JOBS, job("j"))
    field_causes = causes(cluster.refused("PUT", f"{JOBS}/j", job("j")))
    assert ("spec.selector", "Required value") in field_causes


def test_a_service_gets_an_address_of_its_own(cluster: Cluster) -> None:
    def service(name: str, **spec: Any) -> dict[str, Any]:
        more = {"ports": [{"port": 80}], **spec}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": more}

    first, second = cluster.make(SERVICES, service("a")), cluster.make(SERVICES, service("b"))
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]
    assert all(service["spec"]["clusterIP"].startswith("10.96.") for service in (first, second))
    assert first["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    headless = cluster.make(SERVICES, service("c", clusterIP="None", ports=[]))
    assert headless["spec"]["clusterIP"] == "None"
    no = cluster.refused("POST", SERVICES, service("d", clusterIP=first["spec"]["clusterIP"]))
    assert "provided IP is already allocated" in no.message
    cluster.delete(f"{SERVICES}/a")
    again = cluster.make(SERVICES, service("d", clusterIP=first["spec"]["clusterIP"]))
    assert again["spec"]["clusterIP"] == first["spec"]["clusterIP"]
    assert "spec.ports: Required value" in cluster.refused("POST", SERVICES, service("e", ports=[])).message
    assert "valid range" in cluster.refused("POST", SERVICES, service("e", clusterIP="1.2.3.4")).message
    assert cluster.refused("POST", SERVICES, service("a.b")).code == 422
    kept = cluster.merge(f"{SERVICES}/b", {"spec": {"ports": [{"port": 81}], "clusterIP": None}})
    assert kept["spec"]["clusterIP"] == second["spec"]["clusterIP"]
    assert cluster.refused("PATCH", f"{SERVICES}/b", {"spec": {"clusterIP": "None"}}, MERGE).code == 422


def deployment(labels: dict[str, str], **template: Any) -> dict[str, Any]:
    inner = {"metadata": {"labels": labels}, "spec": {"containers": [C], **template}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": inner}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def test_a_deployments_selector_must_select_its_pods(cluster: Cluster) -> None:
    no = cluster.refused("POST", DEPLOYMENTS, deployment({"a": "c"}))
    assert "`selector` does not match template `labels`" in no.message
    no = cluster.refused("POST", DEPLOYMENTS, deployment({"a": "b"}, restartPolicy="Never"))
    assert 'spec.template.spec.restartPolicy: Unsupported value: "Never"' in no.message
    created = cluster.make(DEPLOYMENTS, deployment({"a": "b"}))
    assert created["spec"]["replicas"] == 1 and created["spec"]["strategy"]["type"] == "RollingUpdate"
    no = cluster.refused("PATCH", f"{DEPLOYMENTS}/d", {"spec": {"selector": {"matchLabels": {"a": None}}}}, MERGE)
    assert "spec.selector" in no.message


def test_a_secret_is_base64_and_never_in_an_error_message(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/secrets"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    created = cluster.make(path, {**secret, "stringData": {"k": "v"}})
    assert created["data"] == {"k": base64.b64encode(b"v").decode()} and created["type"] == "Opaque"
    assert "stringData" not in created
    no = cluster.refused("POST", path, {**secret, "metadata": {"name": "t"}, "data": {"k": "canary!"}})
    assert no.code == 400 and "canary" not in no.message


def test_immutable_fields_cannot_change(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a", data={"k": "v"}, immutable=True))
    no = cluster.refused("PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, MERGE)
    assert "field is immutable when `immutable` is set" in no.message


def test_an_event_has_two_names(cluster: Cluster) -> None:
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    old = "/api/v1/namespaces/default/events"
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "reason": "Why",
        "action": "Say",
        "type": "Normal",
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "x.io/y",
        "reportingInstance": "z",
    }
    assert cluster.make(new, event)["note"] == "hello"
    core = cluster.get(f"{old}/e")
    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "hello", "p")
    assert "note" not in core
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}
    patched = cluster.merge(f"{new}/e", {"series": series})
    assert patched["series"] == series and patched["apiVersion"] == "events.k8s.io/v1"
    assert cluster.merge(f"{old}/e", {"message": "again"})["message"] == "again"
    assert len(cluster.get(old, fieldSelector="involvedObject.name=p,reason=Why")["items"]) == 1
    assert cluster.get(new)["items"][0]["note"] == "again"


def test_an_event_is_forgotten_after_an_hour(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/events"
    for name in ("old", "new"):
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": {"kind": "Pod"}}
        cluster.make(path, event)
        cluster.now += 1801
    cluster.verbs.writes.expire_objects(cluster.now)
    assert [item["metadata"]["name"] for item in cluster.get(path)["items"]] == ["new"]


def test_the_oldest_of_too_many_events_are_forgotten(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/events"
    for name in ("c", "a", "b"):
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": {"kind": "Pod"}}
        cluster.make(path, event)
    registry = cluster.verbs.writes.registry
    for resource in [candidate for candidate in registry.all() if candidate.plural == "events"]:
        registry.add(replace(resource, max_objects=2))
    cluster.verbs.writes.expire_objects(cluster.now)
    assert [event["metadata"]["name"] for event in cluster.get(path)["items"]] == ["a", "b"]


def test_the_status_of_a_job_stored_under_an_older_crd_can_be_updated_and_its_spec_fixed(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a", replicas=5))
    tighter = cluster.get(f"{CRDS}/things.example.org")
    properties = tighter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["replicas"]["maximum"] = 3
    properties["status"]["properties"] = {"count": {"type": "integer"}}
    cluster.ask("PUT", f"{CRDS}/things.example.org", tighter)
    assert cluster.merge(f"{THINGS}/a/status", {"status": {"count": 1}})["status"] == {"count": 1}
    assert cluster.merge(f"{THINGS}/a", {"metadata": {"labels": {"x": "y"}}})["metadata"]["labels"] == {"x": "y"}
    assert (
        causes(cluster.refused("PATCH", f"{THINGS}/a/status", {"status": {"count": "x"}}, MERGE))[0][0]
        == "status.count"
    )
    assert causes(cluster.refused("PATCH", f"{THINGS}/a", {"spec": {"replicas": 6}}, MERGE))[0][0] == "spec.replicas"
    assert cluster.merge(f"{THINGS}/a", {"spec": {"replicas": 2}})["spec"]["replicas"] == 2


def test_a_crd_is_established_in_the_response(cluster: Cluster) -> None:
    created = cluster.make(CRDS, crd())
    assert {condition["type"]: condition["status"] for condition in created["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert created["spec"]["names"]["listKind"] == "ThingList" and created["status"]["storedVersions"] == ["v1"]
    assert cluster.get(THINGS)["kind"] == "ThingList"


def test_a_custom_resource_is_pruned_defaulted_and_checked(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    created = cluster.make(THINGS, {**custom_object("a", junk=1, template={"free": {"x": [1]}}), "more": 1})
    assert created["spec"] == {"replicas": 1, "template": {"free": {"x": [1]}}, "mode": "fast"}
    assert "more" not in created and created["metadata"]["generation"] == 1
    no = cluster.refused("POST", THINGS, custom_object("b", replicas=-1, mode="odd"))
    assert causes(no) == [
        ("spec.replicas", "Invalid value: -1: must be greater than or equal to 0"),
        ("spec.mode", 'Unsupported value: "odd": supported values: "fast", "slow"'),
    ]
    assert no.message.startswith('Thing.example.org "b" is invalid: [spec.replicas: Invalid value')


BAD_CRDS: list[tuple[str, dict[str, Any], str]] = [
    ("a name that does not fit", {**crd(), "metadata": {"name": "x"}}, 'must be spec.names.plural+"."+spec.group'),
    ("a schema that cannot be", crd(schema={"openAPIV3Schema": {"type": "strng"}}), 'Unsupported value: "strng"'),
    ("a pattern that cannot be", crd(schema={"openAPIV3Schema": {"type": "object", "pattern": "("}}), "valid regular"),
    ("no storage version", crd(storage=False), "exactly one version marked as storage version"),
    ("no schema", crd(schema={}), "schemas are required"),
    ("a column that cannot be",
     crd(additionalPrinterColumns=[{"name": "x", "type": "string", "jsonPath": "x"}]), "json path"),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "text"), [pytest.param(*row[1:], id=row[0]) for row in BAD_CRDS])
def test_a_wrong_definition_is_refused(cluster: Cluster, definition: dict[str, Any], text: str) -> None:
    no = cluster.refused("POST", CRDS, definition)
    assert no.code == 422 and text in no.message
    assert cluster.raw("GET", THINGS).code == 404


def test_a_crd_can_be_updated_while_it_is_served(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a"))
    created = cluster.get(f"{CRDS}/things.example.org")
    properties = created["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["mode"]["enum"].append("odd")
    cluster.ask("PUT", f"{CRDS}/things.example.org", created)
    assert cluster.merge(f"{THINGS}/a", {"spec": {"mode": "odd"}})["spec"]["mode"] == "odd"


def test_two_versions_of_a_definition_are_one_object(cluster: Cluster) -> None:
    both = crd()
    first = both["spec"]["versions"][0]
    both["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    cluster.make(CRDS, both)
    cluster.make(THINGS, custom_object("a"))
    newer = THINGS.replace("/v1/", "/v2/")
    assert cluster.get(f"{newer}/a")["apiVersion"] == "example.org/v2"
    changed = cluster.merge(f"{newer}/a", {"spec": {"replicas": 2}})
    assert changed["apiVersion"] == "example.org/v2"
    assert cluster.get(f"{THINGS}/a")["apiVersion"] == "example.org/v1"
    assert cluster.get(f"{THINGS}/a")["spec"]["replicas"] == 2


def test_cluster_scoped_custom_resources_have_no_namespace(cluster: Cluster) -> None:
    wide = crd()
    wide["spec"]["scope"] = "Cluster"
    cluster.make(CRDS, wide)
    created = cluster.make("/apis/example.org/v1/things", custom_object("a"))
    assert "namespace" not in created["metadata"]
    assert cluster.refused("POST", THINGS, custom_object("b")).code == 404


TIMES = [
    ("in another zone", "0500-01-01T00:00:00+01:00", "0499-12-31T23:00:00Z"),
    ("none", "0001-01-01T00:00:00Z", None),
    ("before the first year", "0001-01-01T00:00:00+05:00", "0001-01-01T00:00:00+05:00"),
    ("after the last year", "9999-12-31T23:59:59-05:00", "9999-12-31T23:59:59-05:00"),
]


@pytest.mark.parametrize(("sent", "kept"), [pytest.param(*row[1:], id=row[0]) for row in TIMES])
def test_a_time_is_stored_in_utc_where_that_can_be_written(cluster: Cluster, sent: str, kept: str | None) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "firstTimestamp": sent}
    created = cluster.make("/api/v1/namespaces/default/events", {"apiVersion": "v1", "kind": "Event", **event})
    assert created["firstTimestamp"] == kept
