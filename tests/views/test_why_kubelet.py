"""`why` of statuses and events as kubelet 1.37 and the node controller of Kubernetes 1.37 write them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.views.why_values import RUNNING, WORKERS, at, diagnose, ended, everything, pod, tfjob, unplaced, waits
from trainyard.objects import Json
from trainyard.objects.usage import XID_ERROR
from trainyard.views.diagnosis import BLOCK, FINE, WAIT

STARTED = tfjob(("Created", "JobCreated", "its replicas are created"))
READY = {"type": "Ready", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False", "lastTransitionTime": at(90)}


def event(reason: str, message: str, ago: float, container: str = "tensorflow", about: str = "p-MASTER-0") -> Json:
    involved = {"kind": "Pod", "name": "x", "uid": about, "fieldPath": f"spec.containers{{{container}}}"}
    return {"reason": reason, "message": message, "involvedObject": involved, "lastTimestamp": at(ago)}


def killed(code: int = 137, **more: Any) -> Json:
    """A container that runs again after its kubelet has killed it 30 s ago."""
    run = {"running": {"startedAt": at(29)}}
    return {"restartCount": 1, "state": run, "lastState": ended(code, startedAt=at(60)), **more}


def setting_up(init_status: Json, restart_policy: str = "OnFailure") -> Json:
    """A pending pod with an init container `fetch` of that status."""
    pending = pod("MASTER-0", waits("PodInitializing"), "Pending")
    pending["status"]["initContainerStatuses"] = [{"name": "fetch", **init_status}]
    pending["spec"] |= {"restartPolicy": restart_policy, "initContainers": [{"name": "fetch", "image": "x"}]}
    return pending


def ready(pod_object: Json, condition: Json, container_is_ready: bool) -> Json:
    pod_object["status"]["conditions"].append(condition)
    pod_object["status"]["containerStatuses"][0]["ready"] = container_is_ready
    return pod_object


def test_an_init_container_that_fails_again_and_again() -> None:
    """A kubelet leaves it in state.terminated for most of its back-off."""
    failing = setting_up({"restartCount": 3, "state": ended(9), "lastState": ended(9, ago=60)})
    findings = diagnose(STARTED, failing, logs={("p-MASTER-0", "fetch"): ("no such bucket",)})
    text = everything(findings)
    assert findings[0].level == BLOCK, text
    assert "master-0: its program ends and is started again, 3 times so far; exit code 9 (Error)" in text
    assert "in init container fetch" in text and "no such bucket" in text
    assert "state.terminated.exitCode=9" in text and "lastState" not in text
    assert "nothing is wrong" not in text


def test_an_init_container_that_has_failed_once() -> None:
    findings = diagnose(STARTED, setting_up({"restartCount": 0, "state": ended(9)}))
    text = everything(findings)
    assert findings[0].level == WAIT and "its program has ended and is started again; exit code 9" in text, text


def test_a_container_in_the_back_off_of_its_first_second() -> None:
    """The pod's phase stays Running, and the container terminated until its kubelet starts it again."""
    failing = pod("MASTER-0", {"restartCount": 4, "state": ended(3)})
    failing["spec"]["restartPolicy"] = "OnFailure"
    text = everything(diagnose(tfjob(RUNNING), failing, *WORKERS))
    assert "its program ends and is started again, 4 times so far; exit code 3 (Error)" in text, text


def test_an_init_container_that_has_done_its_work_is_no_finding() -> None:
    done = setting_up({"restartCount": 0, "state": ended(0, "Completed")})
    assert "fetch" not in everything(diagnose(STARTED, done))


@pytest.mark.parametrize("probe", ["liveness", "startup"])
@pytest.mark.parametrize("code", [137, 143, 1])
def test_a_probe_that_kills_is_the_cause_of_the_end(probe: str, code: int) -> None:
    events = (
        event("Unhealthy", f"{probe.capitalize()} probe failed: HTTP probe failed with statuscode: 500", 31),
        event("Killing", f"Container tensorflow failed {probe} probe, will be restarted", 31),
    )
    text = everything(diagnose(tfjob(RUNNING), pod("MASTER-0", killed(code)), *WORKERS, events=events))
    expected = f"it was stopped because its {probe} probe failed (HTTP probe failed with statuscode: 500)"
    assert expected in text and "SIGKILL" not in text and f"{probe}Probe" in text, text
    crashing = pod("MASTER-0", waits("CrashLoopBackOff", restartCount=4, lastState=ended(code, startedAt=at(60))))
    text = everything(diagnose(tfjob(RUNNING), crashing, *WORKERS, events=events))
    assert expected in text and f"{probe}Probe" in text and "dmesg" not in text, text


def test_of_a_probe_whose_command_prints_nothing_only_the_failure_is_told() -> None:
    """As a kubelet 1.37 writes it of `exec: {command: [\"false\"]}`."""
    events = (
        event("Unhealthy", "Liveness probe failed: ", 31),
        event("Killing", "Container tensorflow failed liveness probe, will be restarted", 31),
    )
    text = everything(diagnose(tfjob(RUNNING), pod("MASTER-0", killed(137)), *WORKERS, events=events))
    assert "its liveness probe failed" in text and "(failed" not in text, text


@pytest.mark.parametrize(
    "other",
    [
        event("Killing", "Container tensorflow failed liveness probe, will be restarted", 31, about="p-WORKER-0"),
        event("Killing", "Container sidecar failed liveness probe, will be restarted", 31, container="sidecar"),
        event("Killing", "Container tensorflow failed liveness probe, will be restarted", 500),
        event("Killing", "Stopping container tensorflow", 31),
        event("Unhealthy", "Liveness probe failed: timeout", 31),
    ],
)
def test_a_kill_by_another_cause_is_not_that_of_a_probe(other: Json) -> None:
    text = everything(diagnose(tfjob(RUNNING), pod("MASTER-0", killed()), *WORKERS, events=(other,)))
    assert "probe failed" not in text and "SIGKILL" in text, text


def stopped_for_good(probe: str, policy: str = "Never", seconds_before: float = 0) -> str:
    """`why` of a pod that a kubelet has ended: the event of the kill names no cause."""
    events = (
        event("Unhealthy", f"{probe} probe failed: HTTP probe failed with statuscode: 500", 31 + seconds_before),
        event("Killing", "Stopping container tensorflow", 31),
    )
    failed = pod("MASTER-0", {"state": ended(137, startedAt=at(60))}, "Failed")
    failed["spec"]["restartPolicy"] = policy
    return everything(diagnose(tfjob(("Failed", "x", "y")), failed, *WORKERS, events=events))


@pytest.mark.parametrize("probe", ["Liveness", "Startup"])
def test_a_probe_that_kills_a_pod_that_never_restarts_is_the_cause(probe: str) -> None:
    text = stopped_for_good(probe)
    cause = f"it was stopped because its {probe.lower()} probe failed (HTTP probe failed with statuscode: 500)"
    assert cause in text and "SIGKILL" not in text, text


@pytest.mark.parametrize(
    "other", [{"probe": "Readiness"}, {"probe": "Liveness", "policy": "OnFailure"}, {"seconds_before": 10}]
)
def test_a_kill_without_a_cause_is_that_of_no_other_probe(other: dict[str, Any]) -> None:
    text = stopped_for_good(**{"probe": "Liveness", **other})
    assert "probe failed" not in text and "SIGKILL" in text, text


def test_a_hook_that_fails_is_the_cause_of_the_end() -> None:
    events = (
        event("FailedPostStartHook", "PostStartHook failed", 31),
        event("Killing", "FailedPostStartHook", 31),
    )
    text = everything(diagnose(tfjob(RUNNING), pod("MASTER-0", killed()), *WORKERS, events=events))
    assert "it was stopped because its postStart hook failed" in text and "lifecycle.postStart" in text, text
    assert "SIGKILL" not in text


def test_the_event_of_a_probe_that_kills_again_and_again_is_written_now_and_then() -> None:
    """The event is of the first kill, and in the history it has no uid."""
    old = event("Killing", "Container tensorflow failed liveness probe, will be restarted", 500)
    recorded = {**old, "involvedObject": {"kind": "Pod", "name": "master-0-abcd-x"}}
    crashing = pod("MASTER-0", waits("CrashLoopBackOff", restartCount=2, lastState=ended(143, startedAt=at(60))))
    for given in (old, recorded):
        text = everything(diagnose(tfjob(RUNNING), crashing, *WORKERS, events=(given,)))
        assert "its liveness probe failed" in text, text


def test_memory_that_ran_out_is_more_than_a_probe_that_failed_by_it() -> None:
    events = (event("Killing", "Container tensorflow failed liveness probe, will be restarted", 31),)
    status = killed(lastState=ended(137, "OOMKilled", startedAt=at(60)))
    text = everything(diagnose(tfjob(RUNNING), pod("MASTER-0", status), *WORKERS, events=events))
    assert "ran out of memory" in text and "probe" not in text, text


def failed_pod(reason: str, message: str, code: int = 137) -> Json:
    failed = pod("MASTER-0", {"state": ended(code)}, "Failed")
    failed["status"] |= {"reason": reason, "message": message}
    failed["spec"]["activeDeadlineSeconds"] = 20
    return failed


@pytest.mark.parametrize("code", [137, 143])
def test_a_pod_that_was_active_for_longer_than_its_own_deadline(code: int) -> None:
    failed = failed_pod("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", code)
    for job in (tfjob(RUNNING), tfjob(("Failed", "BackoffLimitExceeded", "7 failed attempts, backoffLimit is 6"))):
        text = everything(diagnose(job, failed, *WORKERS))
        assert "its pod was active for longer than its own activeDeadlineSeconds of 20 s" in text, text
        assert "activeDeadlineSeconds in the pod template" in text and "SIGKILL" not in text, text
        assert "each new pod has that time again: activeDeadlineSeconds of the job ends all of them" in text, text


def test_a_pod_that_was_evicted_while_it_ran() -> None:
    failed = failed_pod("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi.")
    text = everything(diagnose(tfjob(RUNNING), failed, *WORKERS))
    assert "its pod was stopped (Evicted): The node was low on resource: memory." in text, text
    assert "SIGKILL" not in text and "dmesg" not in text, text


def test_a_pod_that_was_disrupted_has_the_reason_of_that() -> None:
    failed = pod("MASTER-0", {"state": ended(137)}, "Failed")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "Pod was"}
    failed["status"]["conditions"].append(condition)
    text = everything(diagnose(tfjob(RUNNING), failed, *WORKERS))
    assert "its pod was stopped (TerminationByKubelet): Pod was" in text and "SIGKILL" not in text, text


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("EvictionByEvictionAPI", "its pod was evicted by a request, such as that of kubectl drain"),
        ("DeletionByTaintManager", "its node has a taint that its pod does not tolerate: it may be lost"),
        ("DeletionByPodGC", "its node no longer exists, or is out of service"),
        ("PreemptionByScheduler", "its pod made room for one with a higher priority"),
        ("SomethingElse", "its pod was disrupted"),
    ],
)
@pytest.mark.parametrize(
    ("left", "end"),
    [(20, "; it is ending within its grace period"), (-40, "; its pod does not end, 40s after its grace period")],
)
def test_a_pod_that_is_deleted_has_the_reason_of_that(reason: str, cause: str, left: int, end: str) -> None:
    evicted = pod("MASTER-0", deletionTimestamp=at(-left), deletionGracePeriodSeconds=30)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "what the API says"}
    evicted["status"]["conditions"].append(condition)
    findings = diagnose(tfjob(RUNNING), evicted, *WORKERS)
    (finding,) = (finding for finding in findings if finding.summary.startswith("master-0"))
    assert finding.summary == f"master-0: {cause} ({reason}){end}"
    assert finding.evidence == ("what the API says",)


def test_a_failed_pod_without_a_reason_has_that_of_its_disruption() -> None:
    failed = pod("MASTER-0", {"state": {}}, "Failed")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: gone"}
    failed["status"]["conditions"].append(condition)
    text = everything(diagnose(tfjob(RUNNING), failed, *WORKERS))
    assert "its pod has failed (DeletionByPodGC), and is made again later" in text and "PodGC: gone" in text, text


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("MASTER 0: container tensorflow exited with code 137 (Error); retryable, tried again", "wait; its logs say"),
        ("MASTER 0 ended: EvictionByEvictionAPI; disrupted, tried again", "wait; something outside"),
        (
            "Pod mnist-master-0 was deleted while it ran: all replicas restart",
            "wait; something outside",
        ),
    ],
)
def test_the_logs_of_a_pod_that_somebody_else_ended_do_not_say_why(message: str, fix: str) -> None:
    findings = diagnose(tfjob(RUNNING, ("Restarting", "ReplicaEnded", message)), pod("MASTER-0"), *WORKERS)
    (finding,) = (finding for finding in findings if "is made again" in finding.summary)
    assert finding.evidence == (message,) and finding.fix.startswith(fix)


def test_a_container_that_was_removed_to_restart_all_was_not_killed() -> None:
    """A failed job's pod in the middle of RestartAllContainers: the true exit code is not in the status."""
    removed = waits("RestartingAllContainers", restartCount=1, lastState=ended(137, "RestartingAllContainers"))
    text = everything(diagnose(tfjob(("Failed", "BackoffLimitExceeded", "x")), pod("MASTER-0", removed)))
    assert "SIGKILL" not in text and "dmesg" not in text and "restartPolicyRules" in text, text


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            'container has runAsNonRoot and image will run as root (pod: "x_default(1)", container: tensorflow)',
            ("its image would run as root, which runAsNonRoot forbids", "runAsUser"),
        ),
        (
            "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root (pod:",
            ("the user of its image is a name, and runAsNonRoot needs a number", "runAsUser"),
        ),
        (
            'failed to prepare subPath for volumeMount "data"',
            ("its container cannot be set up", "failed to prepare subPath"),
        ),
    ],
)
def test_a_configuration_that_the_kubelet_refuses(message: str, says: tuple[str, ...]) -> None:
    refused = pod("MASTER-0", waits("CreateContainerConfigError", message), "Pending")
    text = everything(diagnose(tfjob(RUNNING), refused, *WORKERS))
    assert not [part for part in says if part not in text], text
    assert "refers to does not exist" not in text


def test_a_pod_whose_node_is_not_ready_does_not_run_fine() -> None:
    """The node controller sets Ready to False, without a reason; the containers' own `ready` stays true."""
    lost = ready(pod("MASTER-0"), NOT_READY, True)
    findings = diagnose(tfjob(RUNNING), lost, *WORKERS)
    text = everything(findings)
    assert findings[0].level == WAIT and "master-0: its node here is not ready, for 90s" in text, text
    assert "status.conditions[Ready]" in text and "kubectl describe node here" in text and "fine" not in text
    noted = diagnose(tfjob(RUNNING), lost, *WORKERS, events=(event("NodeNotReady", "Node is not ready", 90),))
    assert "Node is not ready" in everything(noted)
    assert diagnose(tfjob(RUNNING), ready(pod("MASTER-0"), READY, True), *WORKERS)[0].level == FINE


def test_a_readiness_probe_that_never_passes() -> None:
    condition = {**NOT_READY, "reason": "ContainersNotReady", "message": "containers with unready status: [tensorflow]"}
    waiting = ready(pod("MASTER-0"), condition, False)
    waiting["spec"]["containers"][0]["readinessProbe"] = {"exec": {"command": ["false"]}}
    events = (event("Unhealthy", "Readiness probe failed: cat: no such file", 5),)
    spec: Json = {"selector": {"trainyard.dev/role": "MASTER"}}
    service = {"kind": "Service", "metadata": {"name": "mnist-master-0"}, "spec": spec}
    findings = diagnose(tfjob(RUNNING), waiting, *WORKERS, events=events, children=(service,))
    text = everything(findings)
    assert findings[0].level == WAIT, text
    assert "master-0: its readiness probe has not passed for 100s (cat: no such file)" in text
    assert "the name mnist-master-0 does not resolve" in text and "readinessProbe" in text
    spec["publishNotReadyAddresses"] = True
    text = everything(diagnose(tfjob(RUNNING), waiting, *WORKERS, events=events, children=(service,)))
    assert "resolve" not in text and "readiness probe" in text


def test_a_container_that_has_just_started_may_still_become_ready() -> None:
    condition = {**NOT_READY, "reason": "ContainersNotReady", "lastTransitionTime": at(3)}
    young = ready(pod("MASTER-0", {"state": {"running": {"startedAt": at(3)}}}), condition, False)
    assert diagnose(tfjob(RUNNING), young, *WORKERS)[0].level == FINE


NODE_TAINTS = {
    "metadata": {"name": "n1"},
    "spec": {
        "taints": [
            {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
            {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        ]
    },
    "status": {"conditions": [READY]},
}
UNTOLERATED = "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate."


def test_taints_that_the_scheduler_does_not_name_are_those_of_the_nodes() -> None:
    pending = unplaced("MASTER-0", UNTOLERATED)
    text = everything(diagnose(tfjob(RUNNING), pending, *WORKERS, nodes=(NODE_TAINTS,)))
    assert "node n1: taints node.kubernetes.io/memory-pressure:NoSchedule, gpu=true:NoSchedule" in text, text
    pending["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    text = everything(diagnose(tfjob(RUNNING), pending, *WORKERS, nodes=(NODE_TAINTS,)))
    assert "gpu" not in text and "a taint of node.kubernetes.io ends" in text, text


@pytest.mark.parametrize(
    "message", [UNTOLERATED, "1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }"]
)
def test_a_toleration_is_no_advice_for_a_node_in_trouble(message: str) -> None:
    text = everything(diagnose(tfjob(RUNNING), unplaced("MASTER-0", message), *WORKERS))
    assert "a taint of node.kubernetes.io ends" in text and "kubectl describe node" in text, text


def test_a_cordoned_node_is_named_as_such() -> None:
    """As a scheduler 1.37 says it after `kubectl drain` of the only node."""
    message = "0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available."
    text = everything(diagnose(tfjob(RUNNING), unplaced("MASTER-0", message), *WORKERS))
    assert "`kubectl uncordon NODE`" in text, text


@pytest.mark.parametrize(
    ("lines", "xid", "expected"),
    [
        ((), 79, "the driver has reported Xid 79 of its GPU (the device has fallen off the bus)"),
        (
            ("RuntimeError: CUDA error: unspecified launch failure",),
            31,
            "CUDA cannot name; the driver has reported Xid 31 of its GPU (a kernel of the program read or wrote",
        ),
        (("boom",), 999, "the driver has reported Xid 999 of its GPU"),
    ],
)
def test_an_xid_error_in_the_kernel_log_explains_the_end(lines: tuple[str, ...], xid: int, expected: str) -> None:
    message = f"GPU 1: NVRM: Xid (PCI:0000:3b:00): {xid}, pid=4711, name=python"
    failed = pod("MASTER-0", {"state": ended(1, startedAt=at(60))}, "Failed")
    logs = {("p-MASTER-0", "tensorflow"): lines} if lines else {}
    for ago, is_seen in ((31, True), (500, False)):  # of this run, and of an earlier one
        events = (event(XID_ERROR, message, ago, container="tensorflow"),)
        text = everything(diagnose(tfjob(("Failed", "x", "y")), failed, *WORKERS, events=events, logs=logs))
        assert (expected in text and f"kernel log: {message}" in text) == is_seen, text
