"""`get`, `describe`, `why`, the table of `run` and the history show the same state, restarts and exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.views.why_values import NOW, RUNNING, at, ended, facts, pod, tfjob, waits
from trainyard import kinds
from trainyard.app.evidence.related_objects import RelatedObjects
from trainyard.app.history.job_record import JobRecord
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import HistoryRecord, folder_name, read_record
from trainyard.cli.command.jobs import JobInfo
from trainyard.cli.describe import describe_lines
from trainyard.cli.get import jobs_table
from trainyard.cli.output.job_lines import table
from trainyard.cli.output.record_lines import record_fields
from trainyard.core.children import decode_containers
from trainyard.objects import Json
from trainyard.views.diagnosis import why
from trainyard.views.job_view import JobView
from trainyard.views.replica_view import read_pod, replica_view


class Case(NamedTuple):
    name: str
    pod: Json
    state: str
    restarts: int = 0
    exit: str = ""


def with_init(container: Json, phase: str) -> Json:
    """A pod whose init container has this status, and whose main container waits for it."""
    worker = pod("WORKER-0", waits("PodInitializing"), phase)
    worker["status"]["initContainerStatuses"] = [{"name": "prepare", "restartCount": 0, **container}]
    return worker


def with_sidecar(main: Json, sidecar: Json, phase: str) -> Json:
    worker = pod("WORKER-0", main, phase)
    worker["status"]["containerStatuses"].append({"name": "sidecar", "restartCount": 0, **sidecar})
    return worker


def with_native_sidecar(main: Json, sidecar: Json, phase: str) -> Json:
    """A pod with an init container whose restartPolicy is Always."""
    worker = pod("WORKER-0", main, phase)
    worker["spec"] = {**(worker.get("spec") or {}), "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    worker["status"]["initContainerStatuses"] = [{"name": "proxy", "restartCount": 0, **sidecar}]
    return worker


def with_status(obj: Json, **fields: Any) -> Json:
    obj["status"] |= fields
    return obj


DELETED: dict[str, Any] = {"deletionTimestamp": at(10)}
DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
CASES = (
    Case("runs", pod("WORKER-0"), "Running"),
    Case("scheduled", pod("WORKER-0", {"state": {}}, "Pending"), "Pending"),
    Case("image", pod("WORKER-0", waits("ImagePullBackOff", "no such image"), "Pending"), "ImagePullBackOff"),
    Case("created", pod("WORKER-0", waits("ContainerCreating"), "Pending"), "ContainerCreating"),
    Case(
        "back-off",
        pod("WORKER-0", waits("CrashLoopBackOff", restartCount=3, lastState=ended(1))),
        "CrashLoopBackOff",
        3,
    ),
    Case(
        "restarted", pod("WORKER-0", {"state": {"running": {}}, "restartCount": 2, "lastState": ended(1)}), "Running", 2
    ),
    Case("succeeded", pod("WORKER-0", {"state": ended(0, "Completed")}, "Succeeded"), "Succeeded", 0, "0"),
    Case("failed", pod("WORKER-0", {"state": ended(7)}, "Failed"), "Failed", 0, "7"),
    Case("memory", pod("WORKER-0", {"state": ended(137, "OOMKilled")}, "Failed"), "Failed", 0, "137 (OOMKilled)"),
    Case("stopped", pod("WORKER-0", {"state": ended(143)}, "Failed", **DELETED), "Stopped", 0, "143"),
    Case("deleted", pod("WORKER-0", **DELETED), "Terminating"),
    Case(
        "evicted", with_status(pod("WORKER-0", {"state": ended(137)}, "Failed"), reason="Evicted"), "Evicted", 0, "137"
    ),
    Case(
        "preempted",
        with_status(pod("WORKER-0", {"state": ended(143)}, "Failed"), conditions=DISRUPTED),
        "PreemptionByScheduler",
        0,
        "143",
    ),
    Case("init fails", with_init({"state": ended(3)}, "Failed"), "Failed", 0, "3"),
    Case(
        "init restarts", with_init({**waits("CrashLoopBackOff"), "restartCount": 4}, "Pending"), "CrashLoopBackOff", 4
    ),
    Case("init runs", with_init({"state": {"running": {}}}, "Pending"), "Pending"),
    Case(
        "sidecar fails", with_sidecar({"state": ended(0, "Completed")}, {"state": ended(2)}, "Failed"), "Failed", 0, "2"
    ),
)
CASE_NAMES = [case.name for case in CASES]


def columns(lines: list[str], head: str, first: str) -> dict[str, str]:
    """The cells of the row that begins with `first`, by the heads of the columns."""
    heads = next(line for line in lines if line.strip().startswith(head))
    row = next(line for line in lines if line.strip().startswith(first))
    starts = [heads.index(head) for head in heads.split()]
    bounds = zip(starts, [*starts[1:], None], strict=True)
    return dict(zip(heads.split(), (row[begin:end].strip() for begin, end in bounds), strict=True))


def recorded(tmp_path: Path, job: Json, pod: Json) -> HistoryRecord:
    folder = tmp_path / folder_name("u", "default", "mnist", NOW)
    folder.mkdir()
    record = JobRecord(folder, {"uid": "u", "result": "", "where": "run"}, RetentionLimits())
    record.record_job(job, NOW)
    record.record_pod(pod, gone="deletionTimestamp" in pod["metadata"])
    record.snapshot("").write()
    read = read_record(folder)
    assert read is not None
    return read


def test_the_exit_code_of_a_sidecar_that_is_stopped_after_the_others_is_not_shown() -> None:
    view = replica_view(with_native_sidecar({"state": ended(3)}, {"state": ended(143)}, "Failed"))
    assert (view.state, view.exit) == ("Failed", "3")
    view = replica_view(with_native_sidecar({"state": ended(0, "Completed")}, {"state": ended(143)}, "Succeeded"))
    assert (view.state, view.exit) == ("Succeeded", "0")


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_every_command_shows_the_same_state(case: Case) -> None:
    job = tfjob(RUNNING)
    kind = kinds.kind_of(job)
    assert kind is not None
    info, view = JobInfo(kind, job), JobView({"u": job})
    view.update_pod(case.pod, NOW)
    shown = (case.state, str(case.restarts), case.exit)

    run = columns(table(view, NOW), "JOB", "mnist")
    assert (run["STATE"], run["RESTARTS"], run["EXIT"]) == shown
    lines = describe_lines(info, RelatedObjects([case.pod]), NOW)
    described = columns(lines[lines.index("Replicas:") :], "REPLICA", "worker-0")
    assert (described["STATE"], described["RESTARTS"], described["EXIT"]) == shown
    heads, row = jobs_table([info], [case.pod], False, True)
    assert dict(zip(heads, row, strict=True))["REPLICAS"] == f"worker: 1 {case.state}"
    ((replica, _),) = facts(job, case.pod).replicas
    assert (replica.state, str(replica.restarts), replica.exit) == shown


@pytest.mark.parametrize("case", [case for case in CASES if case.exit], ids=[case.name for case in CASES if case.exit])
def test_the_history_shows_what_the_live_view_showed(case: Case, tmp_path: Path) -> None:
    lines = record_fields(recorded(tmp_path, tfjob(RUNNING), case.pod), NOW)
    kept = columns(lines[lines.index("Pods:") :], "REPLICA", "worker-0")
    # A disruption is recorded, its reason is not.
    state = "Failed" if case.state == "PreemptionByScheduler" else case.state
    assert (kept["STATE"], kept["EXIT"]) == (state, case.exit)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.exit not in ("", "0", "143")], ids=lambda case: case.name
)
def test_why_names_the_exit_code_that_the_tables_have(case: Case) -> None:
    findings = why(facts(tfjob(("Failed", "PermanentFailure", "x")), case.pod))
    code = case.exit.split(" ")[0]
    assert any(f"ended with exit code {code}" in finding.summary for finding in findings)


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_the_operator_observes_the_same_state(case: Case) -> None:
    containers = decode_containers(read_pod(case.pod))
    assert sum(container.restart_count for container in containers) == case.restarts
    codes = [container.exit_code for container in containers if container.state == "terminated"]
    assert not case.exit or int(case.exit.split(" ")[0]) in codes
