"""What a snapshot leaves out, and what it keeps."""

from __future__ import annotations

import base64
from typing import Any

from tests.drop_in.snapshot import snapshot
from trainyard.objects import Json

UID, NAMESPACE = "0b1c2d3e-0000-4000-8000-000000000000", "drop-in-7-123456"


def obj(name: str, **more: Any) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"{UID[:-1]}{len(name)}", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "X", "metadata": {**metadata, **more.pop("metadata", {})}, **more}


JOB = obj("j", metadata={"uid": UID}, spec={"a": 1})


def read(job: Json | None = JOB, events: list[Json] | None = None, **objects: list[Json]) -> Json:
    return snapshot(job, JOB, objects, events or [])


def test_times_uids_the_namespace_and_generated_names_are_replaced() -> None:
    status = {"startTime": "2026-01-01T00:00:00Z", "message": f"Job {NAMESPACE}/j-x1y2z ran"}
    pod = obj("j-x1y2z", metadata={"generateName": "j-", "ownerReferences": [{"name": "j", "uid": UID}]}, spec={})
    taken = read({**JOB, "status": status}, pods=[pod])
    assert taken["job"] == {"status": {"startTime": "<time>", "message": "Job <namespace>/j-<random> ran"}}
    assert taken["phases"] == {"j-<random>": "Pending"}
    metadata = {"name": "j-<random>", "generateName": "j-", "ownerReferences": [{"name": "j"}]}
    assert taken["pods"] == {"j-<random>": {"metadata": metadata, "spec": {"containers": []}}}


def test_the_job_is_shown_where_it_is_not_as_its_user_has_written_it() -> None:
    assert read() == {"job": {"status": {}}}
    assert read(None) == {"job": None}
    assert read({**JOB, "spec": {"a": 2}})["job"]["spec"] == {"a": 2}
    changed = {**JOB, "metadata": {**JOB["metadata"], "annotations": {"x": "y"}}}
    assert read(changed)["job"]["metadata"] == {"annotations": {"x": "y"}}


def test_what_the_cluster_adds_is_left_out() -> None:
    token = "kube-api-access-abc12"
    container = {"name": "c", "volumeMounts": [{"name": token}, {"name": "data"}]}
    spec = {
        "containers": [container],
        "volumes": [{"name": token}, {"name": "data"}],
        "nodeName": "n",
        "tolerations": [],
    }
    service = obj("s", spec={"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": []})
    taken = read(pods=[obj("p", spec=spec)], services=[service], configMaps=[obj("kube-root-ca.crt")])
    kept = {"containers": [{"name": "c", "volumeMounts": [{"name": "data"}]}], "volumes": [{"name": "data"}]}
    assert taken["pods"]["p"]["spec"] == kept
    assert taken["services"]["s"]["spec"] == {}
    assert "configMaps" not in taken


def test_a_key_in_a_secret_is_told_by_its_kind() -> None:
    data = {"key": b"-----BEGIN EC PRIVATE KEY-----\nabc", "pub": b"ecdsa-sha2-nistp521 AAAA"}
    secret = obj("s", data={name: base64.b64encode(value).decode() for name, value in data.items()})
    expected = {"key": "-----BEGIN EC PRIVATE KEY-----", "pub": "ecdsa-sha2-nistp521"}
    assert read(secrets=[secret])["secrets"]["s"]["data"] == expected


def test_events_are_sorted_lines_without_those_of_the_cluster() -> None:
    def event(reason: str, component: str = "operator") -> Json:
        about = {"kind": "TFJob", "name": "j"}
        return {
            "type": "Normal",
            "reason": reason,
            "involvedObject": about,
            "message": "m",
            "source": {"component": component},
        }

    taken = read(events=[event("B"), event("A"), event("A"), event("C", "default-scheduler")])
    assert taken["events"] == ["Normal A TFJob/j: m", "Normal B TFJob/j: m"]
