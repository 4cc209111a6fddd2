"""What the benchmarks read from an API server, and create again for a ceiling."""

from __future__ import annotations

import msgspec

from bench.kubelet import Event
from bench.measurements import copy_of
from tests.drop_in.job_set import POD_LABEL
from trainyard.objects.resources import JOB, POD, SERVICE


def test_a_bookmark_of_pods_has_no_containers() -> None:
    line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"},"spec":{"containers":null},"status":{}}}'
    event = msgspec.json.decode(line, type=Event)
    assert (event.type, event.object.metadata.resourceVersion, event.object.spec.containers) == ("BOOKMARK", "7", None)


def test_a_copy_of_a_pod_meets_no_webhook_and_has_no_owner() -> None:
    metadata = {"name": "a", "uid": "1", "ownerReferences": [{}], "labels": {POD_LABEL: "a", "role": "worker"}}
    pod = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Running"}}
    assert copy_of(POD, pod, POD_LABEL) == {
        "metadata": {"name": "a", "labels": {"role": "worker"}},
        "spec": {"containers": []},
    }


def test_a_copy_of_a_service_has_another_address() -> None:
    service = {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": []}}
    assert copy_of(SERVICE, service)["spec"] == {"ports": []}
    headless = {"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}
    assert copy_of(SERVICE, headless)["spec"] == {"clusterIP": "None"}


def test_a_copy_of_a_batch_job_has_no_selector_of_the_original() -> None:
    labels = {"batch.kubernetes.io/controller-uid": "1", "controller-uid": "1", "job-name": "a", "role": "worker"}
    spec = {
        "selector": {"matchLabels": {"controller-uid": "1"}},
        "template": {"metadata": {"labels": labels}, "spec": {}},
    }
    copy = copy_of(JOB, {"metadata": {"name": "a"}, "spec": spec})
    assert copy["spec"] == {"template": {"metadata": {"labels": {"role": "worker"}}, "spec": {}}}
