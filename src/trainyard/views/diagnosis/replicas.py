"""Findings about replicas that do not run, or run with problems. Equal findings about several replicas become one."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core.diagnosis import BLOCK, NOTE, WAIT, Cause, ContainerContext, Finding
from trainyard.objects import Json, find_condition, format_time, name_of, namespace_of, uid_of
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS, restart_policy
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.numbers import times_text
from trainyard.objects.structs import replace
from trainyard.views.diagnosis.capacity import device_lack
from trainyard.views.diagnosis.children import next_requeue
from trainyard.views.diagnosis.containers import (
    NO_OUTPUT,
    default_fix,
    last_lines,
    memory_lines,
    shown_lines,
    termination,
    termination_cause,
)
from trainyard.views.diagnosis.disruptions import disruption_of
from trainyard.views.diagnosis.gangs import gang_message, gang_of, gang_wait, held_finding, lacking_members
from trainyard.views.diagnosis.inputs import (
    Facts,
    container_context,
    container_field,
    container_spec,
    is_sidecar,
    join_names,
    log_key,
)
from trainyard.views.diagnosis.launchers import is_consequence, is_launcher_line, process_failure
from trainyard.views.diagnosis.output import cause_of, output_cause
from trainyard.views.diagnosis.progress import IDLE_CORES
from trainyard.views.diagnosis.readiness import unready_finding
from trainyard.views.diagnosis.taints import untolerated_taints
from trainyard.views.diagnosis.tracebacks import Traceback, last_traceback, without_frames
from trainyard.views.diagnosis.waiting_reasons import missing_object, unschedulable_fix, volume_cause, waiting_cause
from trainyard.views.durations import format_age

DEFAULT_SCHEDULER = "default-scheduler"
MAX_LINES = 15  # last lines of an output in a finding about a job that goes on
SCHEDULING_SECONDS = 10.0  # seconds in which a pod is scheduled, or deleted after its grace period
PREPARATION_SECONDS = 20.0  # seconds after which a container whose image is still being prepared is a finding


def waiting(facts: Facts) -> Iterator[Finding]:
    """Why replicas do not run, and problems of those that do. Equal findings are merged."""
    groups: dict[Finding, list[tuple[str, Finding]]] = {}
    for replica, pod in facts.replicas:
        if replica.state == "Succeeded":
            continue
        for finding in _pod_findings(facts, pod):
            group_key = replace(finding, where="", evidence=())
            groups.setdefault(group_key, []).append((replica.name, finding))
    for members in groups.values():
        first = members[0][1]
        yield replace(first, summary=f"{join_names(name for name, _ in members)}: {first.summary}")


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
    for container in container_statuses(pod.get("status")):
        if finding := _container_finding(facts, pod, container):
            yield finding
    if finding := unready_finding(facts, pod):
        yield finding


def _failed_pod_finding(facts: Facts, pod: Json) -> Finding:
    """A failed pod of a job that has not ended: the operator replaces it, possibly after a back-off."""
    due = next_requeue(facts) if facts.true_condition("Restarting") else None
    restart_text = (
        f"is made again at {format_time(due)} (in {format_age(due - facts.now)})"
        if due is not None
        else "is made again later"
    )
    for container in container_statuses(pod.get("status")):
        terminated = container.state("terminated")
        if terminated is not None and terminated.get("exitCode") and not is_sidecar(pod, container):
            summary, where, lines, fix = termination(facts, pod, container, terminated)
            summary = f"its pod has failed, and {restart_text}{together(facts)}; it {summary}"
            return Finding(WAIT, summary, where, lines[-MAX_LINES:], fix)
    status, disruption = pod.get("status") or {}, disruption_of(pod)
    reason = status.get("reason") or (disruption.reason if disruption else "without a reason")
    message = str(status.get("message") or (disruption.message if disruption else ""))
    summary = f"its pod has failed ({reason}), and {restart_text}{together(facts)}"
    where = f"pod {name_of(pod)}: status.reason"
    return Finding(WAIT, summary, where, tuple(filter(None, [message])), "wait a moment")


def together(facts: Facts) -> str:
    """What restarts with a replica, as a part of a sentence; "" when it restarts alone."""
    job = facts.parsed_job
    return ", and all other replicas with it" if job.restarts_gang() and len(job.slots()) > 1 else ""


def _terminating_finding(facts: Facts, pod: Json) -> Finding | None:
    seconds = facts.age(pod["metadata"].get("deletionTimestamp"))
    if seconds is None:
        return None
    where = f"pod {name_of(pod)}: metadata.deletionTimestamp"
    disruption = disruption_of(pod)
    cause = f"{disruption.explanation}; " if disruption else ""
    evidence = tuple(filter(None, [disruption.message])) if disruption else ()
    if seconds < SCHEDULING_SECONDS:  # deletionTimestamp is the end of the grace period
        grace_period = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if seconds < 0 and grace_period + seconds > SCHEDULING_SECONDS:
            summary = f"{cause}it has not reacted to SIGTERM for {format_age(grace_period + seconds)}"
            return Finding(WAIT, f"{summary}; SIGKILL in {-seconds:.0f} s", where, evidence, "wait a moment")
        return Finding(WAIT, f"{cause}it is ending within its grace period", where, evidence, "wait a moment")
    fix = "see that its node lives; if it does not: kubectl delete pod --force, and the slot is filled again"
    summary = f"{cause}its pod does not end, {format_age(seconds)} after its grace period"
    return Finding(BLOCK, summary, where, evidence, fix)


def _unscheduled_finding(facts: Facts, pod: Json) -> Finding | None:
    scheduled = find_condition((pod.get("status") or {}).get("conditions"), "PodScheduled")
    node_name = (pod.get("spec") or {}).get("nodeName")
    if node_name:
        return None
    if scheduled is None or scheduled.get("status") != "False":
        seconds = facts.age(pod["metadata"].get("creationTimestamp")) or 0.0
        if seconds < SCHEDULING_SECONDS:
            return None
        if finding := held_finding(facts, pod):
            return finding
        fix = "see that a scheduler runs, and that spec.schedulerName and schedulingGates of the template are meant"
        named = str((pod.get("spec") or {}).get("schedulerName") or "")
        scheduler = "no scheduler has"
        if named not in ("", DEFAULT_SCHEDULER):
            scheduler = f"the scheduler {named} has not"
            fix = f"see that {named} runs (`kubectl get pods -A`); else mend schedulerName of the template, or the "
            fix += "operator's --gang-scheduler-name"
        summary = f"{scheduler} handled its pod for {format_age(seconds)}"
        return Finding(BLOCK, summary, f"pod {name_of(pod)}: spec.nodeName", (), fix)
    message, gang = str(scheduled.get("message") or ""), gang_of(facts, pod)
    summary, gang_fix = "no node fits its pod (unschedulable)", ""
    if gang is not None:
        if finding := lacking_members(gang, "its scheduler"):
            return replace(finding, evidence=(message,))
        message = gang_message(gang, message)
        summary, gang_fix = gang_wait(gang, message)
    fix = unschedulable_fix(message, namespace_of(pod), gang_fix)
    evidence = [message] if message else []
    if facts.nodes is not None:
        ready_nodes = sum(_is_schedulable(node) for node in facts.nodes)
        evidence.append(f"{ready_nodes} of {len(facts.nodes)} nodes are ready")
        if "taint" in message:  # the scheduler of Kubernetes 1.37 names none
            evidence += untolerated_taints(pod, facts.nodes)
    where = f"pod {name_of(pod)}: status.conditions[PodScheduled]"
    if lack := device_lack(pod, message, facts.nodes):
        summary, fix = f"{lack.explanation} (unschedulable)", lack.fix
    if missing := missing_object(message, namespace_of(pod)):
        summary = f"there is no {missing.kind} {missing.name} (unschedulable)"
    return Finding(BLOCK, summary, where, tuple(evidence), fix)


def _is_schedulable(node: Json) -> bool:
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
    return ready is not None and ready.get("status") == "True" and not (node.get("spec") or {}).get("unschedulable")


def _container_finding(facts: Facts, pod: Json, container: ContainerStatus) -> Finding | None:
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
    if (running := container.state("running")) is not None and container.init and not is_sidecar(pod, container):
        return _running_init_finding(facts, pod, container, facts.age(running.get("startedAt")))
    if running is not None:
        return _restarted_finding(facts, pod, container) or _error_output_finding(facts, pod, container)
    if (terminated := container.state("terminated")) is not None and _is_restarted(pod, container, terminated):
        return _crash_loop_finding(facts, pod, container)
    return None


def _is_restarted(pod: Json, container: ContainerStatus, terminated: Json) -> bool:
    """Whether the container has failed, and its kubelet restarts it: kubelet 1.37 leaves it in state.terminated for
    most of the back-off."""
    code = int(terminated.get("exitCode") or 0)
    pod_policy = str((pod.get("spec") or {}).get("restartPolicy") or "Always")
    policy = restart_policy(container_spec(pod, container.name), pod_policy, init=container.init)
    return code != 0 and policy.action(code) != ""


def _running_init_finding(facts: Facts, pod: Json, container: ContainerStatus, seconds: float | None) -> Finding | None:
    """The containers of the pod wait for an init container, of which the kind may know why it still runs."""
    if seconds is None or seconds < PREPARATION_SECONDS:
        return None
    cause = facts.kind.diagnosis.init_containers.get(container.name, Cause())
    summary = f"its init container {container.name} has been running for {format_age(seconds)}"
    summary += f": {cause.explanation}" if cause.explanation else ""
    fix = cause.fix or f"see its output: `kubectl logs {name_of(pod)} -c {container.name}`"
    return Finding(WAIT, summary, container_field(pod, container.name, "state.running"), (), fix)


def _message_evidence(cause: Cause, message: str) -> tuple[str, ...]:
    """The message as evidence, unless the cause already contains it."""
    return (message,) if message and "no catalogue says" not in cause.explanation else ()


def _mount_finding(facts: Facts, pod: Json, container: ContainerStatus, message: str) -> Finding | None:
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


def _preparing_finding(facts: Facts, pod: Json, container: ContainerStatus, reason: str) -> Finding | None:
    seconds = facts.age((pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp"))
    if reason == "PodInitializing" or seconds is None or seconds < PREPARATION_SECONDS:
        return None
    summary = f"its container is being prepared for {format_age(seconds)} ({reason or 'without a reason'})"
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


def _crash_loop_finding(facts: Facts, pod: Json, container: ContainerStatus) -> Finding:
    terminated = container.last_terminated or {}
    code, reason = int(terminated.get("exitCode") or 0), str(terminated.get("reason") or "")
    summary = f"its program ends and is started again, {times_text(container.restarts)} so far; exit code {code}"
    if not container.restarts:
        summary = f"its program has ended and is started again; exit code {code}"
    summary += f" ({reason})" if reason else ""
    summary += f" in init container {container.name}" if container.init else ""
    lines = last_lines(facts, pod, container.name, terminated)
    cause = termination_cause(facts, pod, container, code, reason, lines)
    summary = f"{summary}: {cause.explanation}" if cause.explanation else summary
    fix = cause.fix or default_fix(lines, container)
    state = "state" if container.state("terminated") else "lastState"
    where = container_field(pod, container.name, f"{state}.terminated.exitCode={code}")
    evidence = shown_lines(facts, lines)[-MAX_LINES:] or (NO_OUTPUT,)
    evidence += memory_lines(pod, container, code, lines)
    return Finding(BLOCK if container.restarts else WAIT, summary, where, evidence, fix)


def _restarted_finding(facts: Facts, pod: Json, container: ContainerStatus) -> Finding | None:
    terminated = container.last_terminated
    if terminated is None or not container.restarts or not terminated.get("exitCode"):
        return None
    code, reason = int(terminated["exitCode"]), str(terminated.get("reason") or "Error")
    if reason == RESTARTING_ALL_CONTAINERS:
        return _all_restarted_finding(facts, pod, container)
    seconds = facts.age(terminated.get("finishedAt"))
    summary = (
        f"its program was started again {times_text(container.restarts)}; it ended with exit code {code} ({reason})"
    )
    summary += f" {format_age(seconds)} ago" if seconds is not None else ""
    context = container_context(facts, pod, container.name, container.status)
    explanation = cause_of((), code, reason, context).explanation
    fix = context.stop.fix or f"`{facts.command('logs -p')}`"
    return Finding(
        NOTE,
        f"{summary}: {explanation}" if explanation else summary,
        container_field(pod, container.name, "lastState.terminated"),
        memory_lines(pod, container, code),
        fix,
    )


def _all_restarted_finding(facts: Facts, pod: Json, container: ContainerStatus) -> Finding | None:
    """No finding for init containers. The exit code that the status of each container has is not the program's."""
    if container.init:
        return None
    times = times_text(container.restarts)
    summary = f"all containers of its pod were started again {times}, by a rule of restartPolicyRules"
    where = container_field(pod, container.name, "lastState.terminated")
    return Finding(NOTE, summary, where, (), f"see what the program prints before it exits: `{facts.command('logs')}`")


def _error_output_finding(facts: Facts, pod: Json, container: ContainerStatus) -> Finding | None:
    """A running container whose last lines match an output pattern."""
    lines = facts.logs.get(log_key(pod, container.name), ())
    context = container_context(facts, pod, container.name, container.status)
    if _launcher_waits(lines, context):
        failure = cause_of(lines, 1, "Error", context)
        summary = f"one of its processes has failed, and its launcher has not ended yet: {failure.explanation}"
        evidence = shown_lines(facts, lines)[-MAX_LINES:]
        return Finding(WAIT, summary, container_field(pod, container.name, "log"), evidence, failure.fix)
    if uncaught := last_traceback(lines):
        return _raised_finding(facts, pod, container, uncaught, context)
    cause = output_cause(without_frames(lines)[-5:], context)
    if cause is None:
        return None
    return Finding(
        WAIT,
        f"it runs, but its last lines report an error: {cause[0]}",
        container_field(pod, container.name, "log"),
        lines[-5:],
        cause[1],
    )


def _raised_finding(
    facts: Facts, pod: Json, container: ContainerStatus, uncaught: Traceback, context: ContainerContext
) -> Finding:
    """A running container whose last lines are a traceback: frameworks wait for their peers when Python ends."""
    lines = facts.logs.get(log_key(pod, container.name), ())
    raised, usage = uncaught.exception, facts.usage_of(pod)
    place = f" at {raised.location}" if raised.location else ""
    where, evidence = container_field(pod, container.name, "log"), shown_lines(facts, lines)[-MAX_LINES:]
    fix = cause_of(lines, 1, "Error", context).fix or "mend what its last lines say"
    traceback = f"its last lines are a traceback, {raised.text}{place}"
    if usage is None or usage.cpu is None:  # the exception may have been caught and logged
        return Finding(WAIT, f"{traceback}; it may wait for the others, or work on", where, evidence, fix)
    if usage.cpu >= IDLE_CORES:
        return Finding(WAIT, f"{traceback}, and it works on", where, evidence, fix)
    fix = f"{fix}; then end the job and make it again: it may wait for the others for ever"
    return Finding(BLOCK, f"it has raised {raised.text}{place} and has not ended", where, evidence, fix)


def _launcher_waits(lines: tuple[str, ...], context: ContainerContext) -> bool:
    """True when a process of the launcher has failed by itself, and the launcher has written the last line since."""
    launcher = context.launcher
    if launcher is None or not lines or not is_launcher_line(lines[-1], launcher):
        return False
    return process_failure(lines, launcher) is not None and not is_consequence(lines, launcher)


def _newest_event(facts: Facts, uid: str, reason: str) -> str:
    """The message of the newest event with this reason about the object with this uid; "" when there is none."""
    for event in reversed(facts.events):
        if (event.get("involvedObject") or {}).get("uid") == uid and event.get("reason") == reason:
            return str(event.get("message") or "")
    return ""
