"""Findings from the status and the logs of the replicas' pods. Equal findings about several replicas become one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainyard.cli.diagnosis.children import next_requeue
from trainyard.cli.diagnosis.exits import Cause
from trainyard.cli.diagnosis.inputs import (
    BLOCK,
    END,
    NOTE,
    WAIT,
    Facts,
    Finding,
    container_context,
    container_field,
    container_spec,
    join_names,
    log_key,
    replica_name,
)
from trainyard.cli.diagnosis.output import cause_of, output_cause, port_in_use, ports_in
from trainyard.cli.diagnosis.rendezvous import RDZV_ENDPOINT
from trainyard.cli.diagnosis.tracebacks import without_frames
from trainyard.cli.diagnosis.waiting_reasons import missing_object, unschedulable_fix, volume_cause, waiting_cause
from trainyard.cli.view import format_age, index_of, job_outcome, role_of
from trainyard.objects import Json, find_condition, format_time, name_of, namespace_of, parse_time, uid_of
from trainyard.objects.structs import replace

SCHEDULING_SECONDS = 10.0  # seconds in which a pod is scheduled, or deleted after its grace period
PREPARATION_SECONDS = 20.0  # seconds after which a container whose image is still being prepared is a finding
MAX_FAILURES = 3
NO_OUTPUT = "it printed nothing"
STOP_EXIT_CODES = frozenset({143, 137})  # exit codes of replicas that are stopped with their job: SIGTERM, SIGKILL


class Container(NamedTuple):
    """One container of a pod: its name and its container status."""

    name: str
    status: Json
    init: bool

    def state(self, name: str) -> Json | None:
        state = (self.status.get("state") or {}).get(name)
        return state if isinstance(state, dict) else None

    @property
    def last_terminated(self) -> Json | None:
        """The terminated state of the last run: `state.terminated`, else `lastState.terminated`; None without one."""
        terminated = self.state("terminated") or (self.status.get("lastState") or {}).get("terminated")
        return terminated if isinstance(terminated, dict) else None

    @property
    def restarts(self) -> int:
        return int(self.status.get("restartCount") or 0)


def containers(pod: Json) -> list[Container]:
    status = pod.get("status") or {}
    statuses = [(container_status, True) for container_status in status.get("initContainerStatuses") or ()]
    statuses += [(container_status, False) for container_status in status.get("containerStatuses") or ()]
    return [
        Container(str(container_status.get("name")), container_status, init)
        for container_status, init in statuses
        if isinstance(container_status, dict)
    ]


# --- a job that has not ended


def waiting(facts: Facts) -> Iterator[Finding]:
    """Why replicas do not run, and problems of those that do. Equal findings are merged."""
    groups: dict[Finding, list[tuple[str, Finding]]] = {}
    for replica, pod in facts.replicas:
        if replica.state == "Succeeded":
            continue
        for finding in _pod_findings(facts, pod):
            group_key = replace(finding, where="", evidence=finding.evidence[:1] if finding.level == NOTE else ())
            groups.setdefault(group_key, []).append((replica_name(pod), finding))
    for members in groups.values():
        first = members[0][1]
        yield replace(first, what=f"{join_names(name for name, _ in members)}: {first.what}")


def _pod_findings(facts: Facts, pod: Json) -> Iterator[Finding]:
    if (pod.get("status") or {}).get("phase") == "Failed":
        if not facts.has_ended:  # for a job that has ended, `failed` has the findings
            yield _failed_pod_finding(facts, pod)
        return
    if finding := _terminating_finding(facts, pod):
        yield finding
        return
    if finding := _unscheduled_finding(facts, pod):
        yield finding
        return
    for container in containers(pod):
        if finding := _container_finding(facts, pod, container):
            yield finding


def _failed_pod_finding(facts: Facts, pod: Json) -> Finding:
    """A failed pod of a job that has not ended: the operator replaces it, possibly after a back-off."""
    due = next_requeue(facts) if facts.true_condition("Restarting") else None
    restart_text = (
        f"is made again at {format_time(due)} (in {format_age(due - facts.now)})"
        if due is not None
        else "is made again later"
    )
    for container in containers(pod):
        terminated = container.state("terminated")
        if terminated is not None and terminated.get("exitCode"):
            summary, where, lines, fix = _termination(facts, pod, container, terminated)
            return Finding(WAIT, f"its pod has failed, and {restart_text}; it {summary}", where, lines, fix)
    status = pod.get("status") or {}
    summary = f"its pod has failed ({status.get('reason') or 'no reason is said'}), and {restart_text}"
    where = f"pod {name_of(pod)}: status.reason"
    return Finding(WAIT, summary, where, tuple(filter(None, [str(status.get("message") or "")])), "wait a moment")


def _terminating_finding(facts: Facts, pod: Json) -> Finding | None:
    seconds = facts.age(pod["metadata"].get("deletionTimestamp"))
    if seconds is None:
        return None
    where = f"pod {name_of(pod)}: metadata.deletionTimestamp"
    if seconds < SCHEDULING_SECONDS:  # deletionTimestamp is the end of the grace period
        return Finding(WAIT, "it is ending within its grace period", where, (), "wait a moment")
    fix = "see that its node lives; if it does not: kubectl delete pod --force, and the slot is filled again"
    return Finding(BLOCK, f"its pod does not end, {format_age(seconds)} after its grace period", where, (), fix)


def _unscheduled_finding(facts: Facts, pod: Json) -> Finding | None:
    scheduled = find_condition((pod.get("status") or {}).get("conditions"), "PodScheduled")
    node_name = (pod.get("spec") or {}).get("nodeName")
    if node_name:
        return None
    if scheduled is None or scheduled.get("status") != "False":
        seconds = facts.age(pod["metadata"].get("creationTimestamp")) or 0.0
        if seconds < SCHEDULING_SECONDS:
            return None
        fix = "see that a scheduler runs, and that spec.schedulerName and schedulingGates of the template are meant"
        return Finding(
            BLOCK,
            f"no scheduler has looked at its pod for {format_age(seconds)}",
            f"pod {name_of(pod)}: spec.nodeName",
            (),
            fix,
        )
    message = str(scheduled.get("message") or "")
    fix = unschedulable_fix(message, namespace_of(pod))
    evidence = [message] if message else []
    if facts.nodes is not None:
        ready_nodes = sum(_is_schedulable(node) for node in facts.nodes)
        evidence.append(f"{ready_nodes} of {len(facts.nodes)} nodes are ready")
    where = f"pod {name_of(pod)}: status.conditions[PodScheduled]"
    summary = "no node takes its pod (unschedulable)"
    if absent := missing_object(message, namespace_of(pod)):
        summary = f"there is no {absent.kind} {absent.name} (unschedulable)"
    return Finding(BLOCK, summary, where, tuple(evidence), fix)


def _is_schedulable(node: Json) -> bool:
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
    return ready is not None and ready.get("status") == "True" and not (node.get("spec") or {}).get("unschedulable")


def _container_finding(facts: Facts, pod: Json, container: Container) -> Finding | None:
    waiting_state = container.state("waiting")
    if waiting_state is not None:
        reason = str(waiting_state.get("reason") or "")
        if reason == "CrashLoopBackOff":
            return _crash_loop_finding(facts, pod, container)
        message = str(waiting_state.get("message") or "")
        if cause := waiting_cause(facts, pod, container.name, reason, message):
            fix = cause.fix or "mend what the message names"
            return Finding(
                BLOCK,
                f"{cause.explanation} ({reason})",
                container_field(pod, container.name, "state.waiting"),
                _message_evidence(cause, message),
                fix,
            )
        return _mount_finding(facts, pod, container, message) or _preparing_finding(facts, pod, container, reason)
    if container.state("running") is not None and not container.init:
        return _restarted_finding(facts, pod, container) or _error_output_finding(facts, pod, container)
    return None


def _message_evidence(cause: Cause, message: str) -> tuple[str, ...]:
    """The message as evidence, unless the cause already contains it."""
    return (message,) if message and "no catalogue says" not in cause.explanation else ()


def _mount_finding(facts: Facts, pod: Json, container: Container, message: str) -> Finding | None:
    """A volume cannot be mounted: a Trainyard node writes that into the container's state, a kubelet into an event."""
    mount_message = message if "MountVolume" in message else _newest_event(facts, uid_of(pod), "FailedMount")
    if not mount_message:
        return None
    cause = volume_cause(mount_message) or waiting_cause(facts, pod, container.name, "", mount_message)
    cause = cause or Cause("a volume of its pod cannot be set up", "mend what the message names")
    return Finding(
        BLOCK, cause.explanation, container_field(pod, container.name, "state.waiting"), (mount_message,), cause.fix
    )


def _image_evidence(pod: Json, container_name: str) -> str:
    image = container_spec(pod, container_name).get("image")
    return f"image: {image}" if image else ""


def _preparing_finding(facts: Facts, pod: Json, container: Container, reason: str) -> Finding | None:
    seconds = facts.age((pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp"))
    if reason == "PodInitializing" or seconds is None or seconds < PREPARATION_SECONDS:
        return None
    summary = f"its container is being prepared for {format_age(seconds)} ({reason or 'no reason is said'})"
    fix = (
        "wait: an image's environment is built once; on this machine the log of `trainyard status` shows how far it is"
    )
    return Finding(
        WAIT,
        summary,
        container_field(pod, container.name, "state.waiting"),
        tuple(filter(None, [_image_evidence(pod, container.name)])),
        fix,
    )


def _crash_loop_finding(facts: Facts, pod: Json, container: Container) -> Finding:
    terminated = container.last_terminated or {}
    code, reason = int(terminated.get("exitCode") or 0), str(terminated.get("reason") or "")
    summary = f"its program ends and is started again, {_times(container.restarts)} so far; exit code {code}"
    summary += f" ({reason})" if reason else ""
    summary += f" in init container {container.name}" if container.init else ""
    lines = _last_lines(facts, pod, container.name, terminated)
    cause = _termination_cause(facts, pod, container, code, reason, lines)
    summary = f"{summary}: {cause.explanation}" if cause.explanation else summary
    fix = cause.fix or _default_fix(lines, container)
    where = container_field(pod, container.name, f"lastState.terminated.exitCode={code}")
    return Finding(BLOCK, summary, where, lines or (NO_OUTPUT,), fix)


def _termination_cause(
    facts: Facts, pod: Json, container: Container, code: int, reason: str, lines: tuple[str, ...]
) -> Cause:
    """Why a container terminated: from its exit code, its last lines, its spec and the ports in use on the machine."""
    if cause := next((volume for line in lines[-2:] if (volume := volume_cause(line))), None):
        return cause
    ports = [*ports_in(lines), *declared_ports(pod, container.name)] if port_in_use(lines) else []
    holders = tuple((port, facts.listeners[port]) for port in dict.fromkeys(ports) if port in facts.listeners)
    cause = cause_of(lines, code, reason, container_context(facts, pod, container.name, container.status, holders))
    endpoint = facts.spec.get(RDZV_ENDPOINT)
    if endpoint and "cannot reach" in cause.explanation:
        server = "its server (an etcd with the v2 API, for etcd)"
        fix = f"see that {server} answers at {endpoint}; else mend spec.{RDZV_ENDPOINT}"
        return cause._replace(explanation=f"the rendezvous at {endpoint} cannot be reached", fix=fix)
    return cause


def declared_ports(pod: Json, container: str) -> list[int]:
    port_specs = container_spec(pod, container).get("ports")
    ports = (
        [port.get("containerPort") for port in port_specs if isinstance(port, dict)]
        if isinstance(port_specs, list)
        else []
    )
    return [number for number in ports if isinstance(number, int)]


def _default_fix(lines: tuple[str, ...], container: Container) -> str:
    """The fix when the cause is unknown."""
    if lines:
        return "mend what its last lines say"
    if container.init:
        return f"let init container {container.name} print what it does (`set -x` in a shell), and make the job again"
    return "let the program print what it does (`set -x` in a shell), and make the job again"


def _last_lines(facts: Facts, pod: Json, container_name: str, terminated: Json) -> tuple[str, ...]:
    """The last lines of the output; without output, the termination message of the container."""
    message = str(terminated.get("message") or "")
    return facts.logs.get(log_key(pod, container_name)) or tuple(message.splitlines())


def _restarted_finding(facts: Facts, pod: Json, container: Container) -> Finding | None:
    terminated = container.last_terminated
    if terminated is None or not container.restarts or not terminated.get("exitCode"):
        return None
    code, reason = int(terminated["exitCode"]), str(terminated.get("reason") or "Error")
    seconds = facts.age(terminated.get("finishedAt"))
    summary = f"its program was started again {_times(container.restarts)}; it ended with exit code {code} ({reason})"
    summary += f" {format_age(seconds)} ago" if seconds is not None else ""
    explanation = cause_of(
        (), code, reason, container_context(facts, pod, container.name, container.status)
    ).explanation
    fix = f"`{facts.command('logs -p')}`"
    return Finding(
        NOTE,
        f"{summary}: {explanation}" if explanation else summary,
        container_field(pod, container.name, "lastState.terminated"),
        (),
        fix,
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _error_output_finding(facts: Facts, pod: Json, container: Container) -> Finding | None:
    """A running container whose last lines match a pattern of SIGNS."""
    lines = facts.logs.get(log_key(pod, container.name), ())
    cause = output_cause(without_frames(lines)[-5:], container_context(facts, pod, container.name, container.status))
    if cause is None:
        return None
    return Finding(
        WAIT,
        f"it runs, but its last lines speak of trouble: {cause[0]}",
        container_field(pod, container.name, "log"),
        lines[-5:],
        cause[1],
    )


# --- a job that has failed


def failed(facts: Facts) -> Iterator[Finding]:
    """The containers whose failure made the job fail: how each terminated, and its last lines."""
    if job_outcome(facts.kind, facts.job) == "Failed":
        yield from failures(facts)


def failures(facts: Facts, include_stopped: bool = True) -> Iterator[Finding]:
    """How containers failed: those of supervised slots (`Kind.supervised_slots_of`) first, then by time.

    told_to_go: the first one counts even when its exit code is that of a stopped container (STOP_EXIT_CODES)."""
    terminations: list[tuple[float, Json, Container, Json]] = []
    for pod in (*facts.pods, *facts.deleted_pods):
        if _past_deadline(facts) and not _stays_failed(pod):
            continue  # the deadline deletes this pod: the findings must not depend on the progress of the deletion
        for container in containers(pod):
            terminated = container.state("terminated") or (
                container.last_terminated if container.state("waiting") else None
            )
            if terminated is not None and terminated.get("exitCode"):
                terminations.append((parse_time(terminated.get("finishedAt")) or 0.0, pod, container, terminated))
    supervised = {(slot.role, str(slot.index)) for slot in facts.kind.supervised_slots_of(facts.parsed_job)}
    terminations.sort(key=lambda entry: (not _is_supervised(entry[1], supervised), entry[0]))
    terminations = [
        entry
        for index, entry in enumerate(terminations)
        if (include_stopped and index == 0) or entry[3].get("exitCode") not in STOP_EXIT_CODES
    ]
    groups: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for _, pod, container, terminated in terminations:
        finding = _failure_finding(facts, pod, container, terminated)
        groups.setdefault((finding.what, finding.fix), []).append((replica_name(pod), finding))
    for members in list(groups.values())[:MAX_FAILURES]:
        first = members[0][1]
        yield replace(first, what=f"{join_names(name for name, _ in members)} {first.what}")


def _is_supervised(pod: Json, supervised: set[tuple[str, str]]) -> bool:
    return (role_of(pod), index_of(pod)) in supervised


def _failure_finding(facts: Facts, pod: Json, container: Container, terminated: Json) -> Finding:
    summary, where, lines, fix = _termination(facts, pod, container, terminated)
    return Finding(END, summary, where, lines, fix)


def _termination(
    facts: Facts, pod: Json, container: Container, terminated: Json
) -> tuple[str, str, tuple[str, ...], str]:
    """How a container terminated: (text, place, last lines, fix), the fields of a `Finding` after its level."""
    code, reason = int(terminated["exitCode"]), str(terminated.get("reason") or "Error")
    lines = _last_lines(facts, pod, container.name, terminated)
    cause = _termination_cause(facts, pod, container, code, reason, lines)
    summary = f"ended with exit code {code} ({reason})" + (
        f" in init container {container.name}" if container.init else ""
    )
    summary += f": {cause.explanation}" if cause.explanation else ""
    where = container_field(pod, container.name, f"state.terminated.exitCode={code}")
    return summary, where, lines or (NO_OUTPUT,), cause.fix or _default_fix(lines, container)


def pending_at_deadline(facts: Facts) -> Iterator[Finding]:
    """Why pods were still Pending when the deadline made the job fail. No findings for any other reason."""
    if _past_deadline(facts):
        pending = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") == "Pending"]
        yield from waiting(replace(facts, pods=tuple(pod for pod in pending if not _is_terminating(pod))))


def _past_deadline(facts: Facts) -> bool:
    return (facts.true_condition("Failed") or {}).get("reason") == "DeadlineExceeded"


def _stays_failed(pod: Json) -> bool:
    """True for a failed pod that is not being deleted: its terminated containers stay readable."""
    return (pod.get("status") or {}).get("phase") == "Failed" and not _is_terminating(pod)


def _is_terminating(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _newest_event(facts: Facts, uid: str, reason: str) -> str:
    """The message of the newest event with this reason about the object with this uid; "" when there is none."""
    for event in reversed(facts.events):
        if (event.get("involvedObject") or {}).get("uid") == uid and event.get("reason") == reason:
            return str(event.get("message") or "")
    return ""
