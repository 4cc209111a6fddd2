"""StatefulSets as objects: what is filled in, what may change, what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.server_clients import Cluster
from tests.server.test_scale import SETS, workload
from trainyard.objects import decode

FIXED = [
    {"serviceName": "x"}, {"podManagementPolicy": "OrderedReady"}, {"selector": {"matchLabels": {"app": "x"}}},
    {"volumeClaimTemplates": [{"metadata": {"name": "v"}}]},
]  # fmt: skip
FREE = [
    {"replicas": 5}, {"template": {"metadata": {"labels": {"more": "x"}}}}, {"minReadySeconds": 3},
    {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}, {"revisionHistoryLimit": 2},
    {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}, {"ordinals": {"start": 2}},
]  # fmt: skip
WRONG = [
    ({"podManagementPolicy": "Sideways"}, "spec.podManagementPolicy", "Unsupported value"),
    ({"updateStrategy": {"type": "X"}}, "spec.updateStrategy.type", "must be 'RollingUpdate' or 'OnDelete'"),
    ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
     "spec.updateStrategy.rollingUpdate", "only allowed"),
    ({"updateStrategy": {"rollingUpdate": {"partition": -1}}}, "spec.updateStrategy.rollingUpdate.partition", "Inv"),
    ({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "X"}},
     "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Unsupported"),
    ({"replicas": -1}, "spec.replicas", "Invalid"),
    ({"selector": {}}, "spec.selector", "empty selector is invalid for statefulset"),
    ({"selector": {"matchLabels": {"a": "b"}}}, "spec.template.metadata.labels", "does not match"),
    ({"template": {"metadata": {"labels": {"app": "w"}},
                   "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
     "spec.template.spec.restartPolicy", "Unsupported"),
    ({"template": {"metadata": {"labels": {"app": "w"}},
                   "spec": {"activeDeadlineSeconds": 1, "containers": [{"name": "c", "image": "i"}]}}},
     "spec.template.spec.activeDeadlineSeconds", "Forbidden"),
]  # fmt: skip


def test_a_stateful_set_gets_kube_apiservers_defaults(cluster: Cluster) -> None:
    created = cluster.make(SETS, workload("StatefulSet"))
    spec = created["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["revisionHistoryLimit"]) == (1, "OrderedReady", 10)
    rolling = {"partition": 0, "maxUnavailable": 1}
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert created["status"] == {"replicas": 0, "availableReplicas": 0}
    assert created["metadata"]["generation"] == 1


@pytest.mark.parametrize("change", FIXED)
def test_the_spec_stays_but_for_a_few_fields(cluster: Cluster, change: Any) -> None:
    cluster.make(SETS, workload("StatefulSet", serviceName="w", podManagementPolicy="Parallel"))
    refused = cluster.refused("PATCH", f"{SETS}/w", {"spec": change}, "application/merge-patch+json")
    assert refused.code == 422
    assert "field is immutable" in refused.message or "updates to statefulset spec for fields" in refused.message


@pytest.mark.parametrize("change", FREE)
def test_these_fields_may_change(cluster: Cluster, change: Any) -> None:
    cluster.make(SETS, workload("StatefulSet", serviceName="w", podManagementPolicy="Parallel"))
    assert cluster.merge(f"{SETS}/w", {"spec": change})["metadata"]["generation"] == 2


@pytest.mark.parametrize(("spec", "field", "text"), WRONG)
def test_a_wrong_stateful_set_is_refused_at_its_place(cluster: Cluster, spec: Any, field: str, text: str) -> None:
    refused = cluster.refused("POST", SETS, workload("StatefulSet", **spec))
    causes = [(cause["field"], cause["message"]) for cause in (refused.details or {})["causes"]]
    assert refused.code == 422 and any(path == field and text in message for path, message in causes), causes


def test_the_status_has_its_own_path(cluster: Cluster) -> None:
    cluster.make(SETS, workload("StatefulSet"))
    response = cluster.merge(
        f"{SETS}/w/status", {"status": {"replicas": 3, "readyReplicas": 2}, "spec": {"replicas": 9}}
    )
    assert response["status"]["readyReplicas"] == 2 and response["spec"]["replicas"] == 1
    kept = cluster.merge(f"{SETS}/w", {"status": {"readyReplicas": 7}})
    assert kept["status"]["readyReplicas"] == 2
    assert cluster.get(f"{SETS}/w/scale")["status"]["replicas"] == 3


def test_kubectl_shows_how_many_are_ready(cluster: Cluster) -> None:
    cluster.make(SETS, workload("StatefulSet", replicas=3))
    cluster.merge(f"{SETS}/w/status", {"status": {"replicas": 3, "readyReplicas": 2}})
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = decode(cluster.raw("GET", SETS, accept=accept).body)
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [("Name", 0), ("Ready", 0), ("Age", 0), ("Containers", 1), ("Images", 1)]
    assert table["rows"][0]["cells"] == ["w", "2/3", "0s", "c", "i"]
