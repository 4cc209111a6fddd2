"""The state of one pod and how it ended. Every carrier uses it, because every carrier runs pods."""

from __future__ import annotations

from typing import Literal

from trainyard.core.children import ContainerRecord, decode_containers
from trainyard.core.job_state import NO_POD, Replica, Termination
from trainyard.core.kind import Job
from trainyard.core.model import Child, ExitAction, Slot
from trainyard.objects import as_dict
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace


def termination_of(job: Job, slot: Slot, pod: Child, uid: str) -> Termination | None:
    """How the pod of a supervised slot ended without success, else None. `uid`: under which the failure is counted."""
    container = main_container(job, slot, pod)
    if (
        container
        and container.state == "terminated"
        and container.exit_code
        and (pod.phase == "Failed" or not container.restarts)
    ):
        failed: ContainerRecord | None = container
    elif pod.phase == "Failed":
        failures = [status for status in decode_containers(pod) if status.state == "terminated" and status.exit_code]
        # A sidecar that was stopped after the others has an exit code, too, and is not the cause.
        failed = next((status for status in failures if not status.sidecar), failures[0] if failures else None)
    else:
        return None
    ended = pod.finished_at or pod.start_time or pod.created
    if failed is None:
        return _with_action(
            Termination(uid, ended, pod.start_time, -1, pod.reason or "Failed", message=pod.message),
            job.kind.lifecycle.on_exit(job, slot, -1, pod.reason),
        )
    # Only the main container's exit code can fail the job (S13); if another container failed, the code is unknown.
    code, exit_reason = (failed.exit_code, failed.reason) if failed is container else (-1, "")
    termination = Termination(
        uid,
        ended,
        pod.start_time,
        failed.exit_code,
        # A pod that its kubelet stops has the reason itself, such as DeadlineExceeded of its own activeDeadlineSeconds.
        pod.reason if pod.reason and failed.reason in ("", "Error") else failed.reason or "Error",
        container=failed.name,
        message=pod.message,
        memory_limit=_memory_limit(job, slot, failed.name),
    )
    return _with_action(termination, job.kind.lifecycle.on_exit(job, slot, code, exit_reason))


def _with_action(termination: Termination, action: ExitAction) -> Termination:
    return replace(termination, fails_job=action is ExitAction.FAIL, ignored=action is ExitAction.IGNORE)


def disruption_of(pod: Child, uid: str) -> Termination:
    """The termination of a disrupted pod: it is replaced, and no failure is counted (S27)."""
    started = pod.start_time or pod.created
    reason, message = pod.reason or "Deleted", pod.message.rstrip(".")
    return Termination(uid, pod.finished_at, started, -1, reason, message=message, disrupted=True)


def main_container(job: Job, slot: Slot, pod: Child) -> ContainerRecord | None:
    """The container whose exit code is the replica's. A pod of an older template may lack the container that the spec
    names now: then it is the kind's default container, or the pod's only one.
    """
    role = job.role(slot.role)
    by_name = {container.name: container for container in decode_containers(pod) if not container.init}
    named = by_name.get(role.container if role else "") or by_name.get(job.kind.roles.container)
    return named or (next(iter(by_name.values())) if len(by_name) == 1 else None)


def succeeded(job: Job, slot: Slot, pod: Child, supervised: bool) -> bool:
    """True when the pod succeeded, or its main container exited with 0 and is not restarted."""
    if pod.phase == "Succeeded":
        return True
    container = main_container(job, slot, pod)
    if container is None or container.state != "terminated" or container.exit_code or container.restarts:
        return False
    # In a supervised slot the main container alone decides; elsewhere the Job replaces a failed pod.
    return supervised or pod.phase != "Failed"


def final_phase(pod: Child) -> str:
    """The phase of a pod whose containers have all ended for good; of any other its present phase.

    A kubelet reports how containers ended while the phase is still Running, or Pending if they ended at once: the phase
    follows when it has taken the pod down, up to seconds later.
    """
    containers = decode_containers(pod)
    runs = any(status.state != "terminated" or status.restarts for status in containers)
    if runs or pod.phase in ("Succeeded", "Failed"):
        return pod.phase
    codes = [status.exit_code for status in containers if not status.init]
    return pod.phase if not codes else "Failed" if any(codes) else "Succeeded"


def run_state(job: Job, slot: Slot, pod: Child | None) -> tuple[Literal["Starting", "Running"], str]:
    """Starting with the reason why the pod does not run, or Running with ""."""
    if pod is None:
        return "Starting", NO_POD
    container = main_container(job, slot, pod)
    if container and container.state == "running" and not pod.deleting:
        return "Running", ""
    reasons = [status.reason for status in decode_containers(pod) if status.state == "waiting" and status.reason]
    return "Starting", pod.reason or (reasons[0] if reasons else pod.phase)


def newest_pod(pods: tuple[Child, ...]) -> Child | None:
    """The pod of the latest attempt."""
    return max(pods, key=lambda pod: (pod.created, pod.start_time, pod.uid), default=None)


def restart_count(job: Job, slot: Slot, pods: tuple[Child, ...]) -> int:
    """The restarts of the main container by the kubelet, of the pods that are not in Terminating (S28)."""
    return sum(restarts_of_pod(pod, job) for pod in pods if not pod.deleting)


def restarts_of_replica(job: Job, replica: Replica) -> int:
    """The same of one replica, where it is a Pod also while that is in Terminating."""
    pod = replica.child
    return restarts_of_pod(pod, job) if pod and pod.kind == POD.kind else replica.restart_count


def restarts_of_pod(pod: Child, job: Job | None) -> int:
    """The restarts of the main container, or of an init container that keeps it from starting. Other containers do not
    count: a restart of all containers (restartPolicyRules) is one restart, and a sidecar does not fail the job. Without
    main container, or without `job`, any container may be it."""
    containers = decode_containers(pod)
    main = main_container(job, Slot(pod.role, pod.index), pod) if job else None
    counted = [container for container in containers if container.init and not container.sidecar]
    counted += [main] if main else [container for container in containers if not container.init]
    return max((container.restart_count for container in counted), default=0)


def last_restart_reason(job: Job, slot: Slot, pod: Child | None) -> str:
    """Why a container was last restarted in place, "" when none was. Sidecars are left out: they do not fail a job."""
    for container in decode_containers(pod) if pod else ():
        if not container.restart_count or not container.exit_code or container.sidecar:
            continue
        reason = container.reason if container.state == "terminated" else container.last_reason
        if reason == RESTARTING_ALL_CONTAINERS:
            return "all containers were restarted by a rule of restartPolicyRules"
        text = f"container {container.name} exited with code {container.exit_code}"
        detail = exit_detail(reason, _memory_limit(job, slot, container.name))
        return f"{text} ({detail})" if reason not in ("", "Error") else text
    return ""


def exit_detail(reason: str, memory_limit: str) -> str:
    """The reason of an exit, and for OOMKilled the limit, as far as it is known."""
    return f"{reason}, its memory limit is {memory_limit}" if reason == "OOMKilled" and memory_limit else reason


def _memory_limit(job: Job, slot: Slot, container_name: str) -> str:
    """`resources.limits.memory` of a container of the role's template; "" without one."""
    role = job.role(slot.role)
    spec = as_dict(as_dict(role.template if role else None).get("spec"))
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if isinstance(container, dict) and container.get("name") == container_name:
            return str(as_dict(as_dict(container.get("resources")).get("limits")).get("memory") or "")
    return ""
