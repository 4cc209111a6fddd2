"""The content of `describe` and of the page of a job, as JSON."""

from __future__ import annotations

import json

import msgspec

from tests.views.why_values import NOW, RUNNING, at, child, pod, tfjob
from trainyard.objects import Json, parse_time
from trainyard.views.event_view import event_view
from trainyard.views.job_details import child_state, job_details


def test_the_details_of_a_job_are_plain_json() -> None:
    job = tfjob(RUNNING, backoffLimit=3)
    children = [child("Service", "s"), child("Job", "master-abcd-0", status={"active": 1})]
    event = {"reason": "R", "message": "a\nb", "type": "Normal", "lastTimestamp": at(9), "count": 2}
    details = job_details(job, [pod("MASTER-0")], children, [event], NOW)
    value = json.loads(json.dumps(msgspec.to_builtins(details)))
    assert value["policies"] == {"backoffLimit": 3} and value["runtimeId"] == "abcd" and value["deleted"] is None
    container = {"name": "tensorflow", "image": "x", "command": "train"}
    assert value["roles"][0] == {"name": "MASTER", "replicas": 1, "containers": [container]}
    (replica,) = value["replicas"]
    assert (replica["name"], replica["state"], replica["pod"], replica["node"], replica["exitCode"]) == (
        *("master-0", "Running", "master-0-abcd-x", "here", None),
    )
    (condition,) = value["conditions"]
    assert condition == {
        "type": "Running",
        "status": "True",
        "reason": "JobRunning",
        "message": "at least one replica runs",
        "since": parse_time(at(180)),
    }
    assert [(child["kind"], child["state"]) for child in value["children"]] == [("Job", "1 active"), ("Service", "")]
    assert value["events"][0]["message"] == "a b" and value["events"][0]["count"] == 2


def test_a_replica_that_ended_has_its_exit_code_and_times() -> None:
    end = {"exitCode": 137, "reason": "OOMKilled", "startedAt": at(100), "finishedAt": at(30)}
    failed = pod("WORKER-3", {"state": {"terminated": end}, "restartCount": 1}, "Failed")
    failed["metadata"]["labels"]["trainyard.dev/attempt"] = "2"
    (replica,) = job_details(tfjob(RUNNING), [failed], [], [], NOW).replicas
    assert (replica.role, replica.index, replica.attempt, replica.restarts) == ("worker", "3", 2, 1)
    assert (replica.exit_code, replica.reason, replica.ended_at) == (137, "OOMKilled", parse_time(at(30)))


def test_each_child_has_a_state() -> None:
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    going = child("Service", "s")
    going["metadata"]["deletionTimestamp"] = at(1)
    children = (
        child("Job", "a", status=done),
        child("Job", "b"),
        child("StatefulSet", "c", spec={"replicas": 2}, status={"readyReplicas": 1}),
        child("ConfigMap", "d"),
        going,
    )
    assert [child_state(child) for child in children] == ["Complete", "0 active", "1/2 ready", "", "Terminating"]


def test_the_time_of_an_event_is_that_of_its_last_occurrence() -> None:
    series = {"lastObservedTime": at(5), "count": 7}
    event: Json = {"metadata": {"creationTimestamp": at(90)}, "series": series, "reportingComponent": "scheduler"}
    view = event_view(event)
    assert (view.time, view.count, view.source) == (parse_time(at(5)), 7, "scheduler")
    assert event_view({"metadata": {"creationTimestamp": at(90)}}).time == parse_time(at(90))
