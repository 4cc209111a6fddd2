"""What the pods say, and what those say that should have made one. Equal findings about several replicas become one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainyard.cli.diagnosis.children import next_look
from trainyard.cli.diagnosis.exits import Cause
from trainyard.cli.diagnosis.facts import (
    BLOCK,
    END,
    NOTE,
    WAIT,
    Facts,
    Finding,
    called,
    container_spec,
    key,
    names_of,
    place,
    surroundings,
)
from trainyard.cli.diagnosis.meeting import ENDPOINT
from trainyard.cli.diagnosis.output import cause_of, port_is_taken, ports_named, sign_of
from trainyard.cli.diagnosis.tracebacks import without_frames
from trainyard.cli.diagnosis.waits import missing_object, unschedulable_fix, volume_cause, waiting_cause
from trainyard.cli.view import age, ended, index_of, role_of
from trainyard.objects import Json, condition, format_time, name_of, namespace_of, parse_time, uid_of
from trainyard.objects.values import replace

PATIENCE = 10.0  # seconds in which a program is started
PREPARING = 20.0  # seconds after which it is worth a word that an image is still being prepared
MOST_ENDS = 3
SILENT = "it printed nothing"
TOLD_TO_GO = frozenset({143, 137})  # what SIGTERM and SIGKILL leave of replicas that are stopped with their job


class Container(NamedTuple):
    """One container of a pod, as its status says."""

    name: str
    status: Json
    init: bool

    def state(self, which: str) -> Json | None:
        found = (self.status.get("state") or {}).get(which)
        return found if isinstance(found, dict) else None

    @property
    def before(self) -> Json | None:
        """How its last run ended."""
        found = self.state("terminated") or (self.status.get("lastState") or {}).get("terminated")
        return found if isinstance(found, dict) else None

    @property
    def restarts(self) -> int:
        return int(self.status.get("restartCount") or 0)


def containers(pod: Json) -> list[Container]:
    status = pod.get("status") or {}
    found = [(one, True) for one in status.get("initContainerStatuses") or ()]
    found += [(one, False) for one in status.get("containerStatuses") or ()]
    return [Container(str(one.get("name")), one, init) for one, init in found if isinstance(one, dict)]


# --- a job that goes on


def waiting(facts: Facts) -> Iterator[Finding]:
    """Every replica that does not run, and why. Equal ones together."""
    groups: dict[Finding, list[tuple[str, Finding]]] = {}
    for one, pod in facts.slots:
        if one.state == "Succeeded":
            continue
        for found in _of_pod(facts, pod):
            same = replace(found, where="", evidence=found.evidence[:1] if found.level == NOTE else ())
            groups.setdefault(same, []).append((called(pod), found))
    for members in groups.values():
        first = members[0][1]
        yield replace(first, what=f"{names_of(name for name, _ in members)}: {first.what}")


def _of_pod(facts: Facts, pod: Json) -> Iterator[Finding]:
    if (pod.get("status") or {}).get("phase") == "Failed":
        if not facts.over:  # of a job that has ended, `failed` speaks
            yield _fell(facts, pod)
        return
    if stuck := _terminating(facts, pod):
        yield stuck
        return
    if unplaced := _unscheduled(facts, pod):
        yield unplaced
        return
    for one in containers(pod):
        if found := _of_container(facts, pod, one):
            yield found


def _fell(facts: Facts, pod: Json) -> Finding:
    """A pod that has failed in a job that goes on: another one takes its place, by and by."""
    due = next_look(facts) if facts.holds("Restarting") else None
    again = (
        f"is made again at {format_time(due)} (in {age(due - facts.now)})" if due is not None else "is made again later"
    )
    for one in containers(pod):
        end = one.state("terminated")
        if end is not None and end.get("exitCode"):
            what, where, lines, fix = _ending(facts, pod, one, end)
            return Finding(WAIT, f"its pod has failed, and {again}; it {what}", where, lines, fix)
    status = pod.get("status") or {}
    what = f"its pod has failed ({status.get('reason') or 'no reason is said'}), and {again}"
    where = f"pod {name_of(pod)}: status.reason"
    return Finding(WAIT, what, where, tuple(filter(None, [str(status.get("message") or "")])), "wait a moment")


def _terminating(facts: Facts, pod: Json) -> Finding | None:
    since = facts.age(pod["metadata"].get("deletionTimestamp"))
    if since is None:
        return None
    where = f"pod {name_of(pod)}: metadata.deletionTimestamp"
    if since < PATIENCE:  # the stamp is the end of its grace
        return Finding(WAIT, "it is ending within its grace period", where, (), "wait a moment")
    fix = "see that its node lives; if it does not: kubectl delete pod --force, and the slot is filled again"
    return Finding(BLOCK, f"its pod does not end, {age(since)} after its grace period", where, (), fix)


def _unscheduled(facts: Facts, pod: Json) -> Finding | None:
    said = condition((pod.get("status") or {}).get("conditions"), "PodScheduled")
    placed = (pod.get("spec") or {}).get("nodeName")
    if placed:
        return None
    if said is None or said.get("status") != "False":
        since = facts.age(pod["metadata"].get("creationTimestamp")) or 0.0
        if since < PATIENCE:
            return None
        fix = "see that a scheduler runs, and that spec.schedulerName and schedulingGates of the template are meant"
        return Finding(
            BLOCK, f"no scheduler has looked at its pod for {age(since)}", f"pod {name_of(pod)}: spec.nodeName", (), fix
        )
    message = str(said.get("message") or "")
    fix = unschedulable_fix(message, namespace_of(pod))
    evidence = [message] if message else []
    if facts.nodes is not None:
        ready = sum(_is_ready(node) for node in facts.nodes)
        evidence.append(f"{ready} of {len(facts.nodes)} nodes are ready")
    where = f"pod {name_of(pod)}: status.conditions[PodScheduled]"
    what = "no node takes its pod (unschedulable)"
    if lacking := missing_object(message, namespace_of(pod)):
        what = f"there is no {lacking.kind} {lacking.name} (unschedulable)"
    return Finding(BLOCK, what, where, tuple(evidence), fix)


def _is_ready(node: Json) -> bool:
    said = condition((node.get("status") or {}).get("conditions"), "Ready")
    return said is not None and said.get("status") == "True" and not (node.get("spec") or {}).get("unschedulable")


def _of_container(facts: Facts, pod: Json, one: Container) -> Finding | None:
    wait = one.state("waiting")
    if wait is not None:
        reason = str(wait.get("reason") or "")
        if reason == "CrashLoopBackOff":
            return _crashing(facts, pod, one)
        message = str(wait.get("message") or "")
        if cause := waiting_cause(facts, pod, one.name, reason, message):
            fix = cause.fix or "mend what the message names"
            return Finding(
                BLOCK, f"{cause.what} ({reason})", place(pod, one.name, "state.waiting"), _seen(cause, message), fix
            )
        return _mounting(facts, pod, one, message) or _preparing(facts, pod, one, reason)
    if one.state("running") is not None and not one.init:
        return _again(facts, pod, one) or _unhappy(facts, pod, one)
    return None


def _seen(cause: Cause, message: str) -> tuple[str, ...]:
    """The message, where it says more than the cause does."""
    return (message,) if message and "no catalogue says" not in cause.what else ()


def _mounting(facts: Facts, pod: Json, one: Container, message: str) -> Finding | None:
    """A volume cannot be set up: a Trainyard node says so in the container's state, a kubelet in an event."""
    said = message if "MountVolume" in message else _newest_event(facts, uid_of(pod), "FailedMount")
    if not said:
        return None
    cause = volume_cause(said) or waiting_cause(facts, pod, one.name, "", said)
    cause = cause or Cause("a volume of its pod cannot be set up", "mend what the message names")
    return Finding(BLOCK, cause.what, place(pod, one.name, "state.waiting"), (said,), cause.fix)


def _image_of(pod: Json, container: str) -> str:
    image = container_spec(pod, container).get("image")
    return f"image: {image}" if image else ""


def _preparing(facts: Facts, pod: Json, one: Container, reason: str) -> Finding | None:
    since = facts.age((pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp"))
    if reason == "PodInitializing" or since is None or since < PREPARING:
        return None
    what = f"its container is being prepared for {age(since)} ({reason or 'no reason is said'})"
    fix = (
        "wait: an image's environment is built once; on this machine the log of `trainyard status` shows how far it is"
    )
    return Finding(
        WAIT, what, place(pod, one.name, "state.waiting"), tuple(filter(None, [_image_of(pod, one.name)])), fix
    )


def _crashing(facts: Facts, pod: Json, one: Container) -> Finding:
    end = one.before or {}
    code, reason = int(end.get("exitCode") or 0), str(end.get("reason") or "")
    what = f"its program ends and is started again, {_times(one.restarts)} so far; exit code {code}"
    what += f" ({reason})" if reason else ""
    what += f" in init container {one.name}" if one.init else ""
    lines = _lines(facts, pod, one.name, end)
    cause = _cause(facts, pod, one, code, reason, lines)
    what = f"{what}: {cause.what}" if cause.what else what
    fix = cause.fix or _mend(lines, one)
    where = place(pod, one.name, f"lastState.terminated.exitCode={code}")
    return Finding(BLOCK, what, where, lines or (SILENT,), fix)


def _cause(facts: Facts, pod: Json, one: Container, code: int, reason: str, lines: tuple[str, ...]) -> Cause:
    """Why a container ended so: its exit code, its last lines, and what is known of its surroundings."""
    if cause := next((found for line in lines[-2:] if (found := volume_cause(line))), None):
        return cause
    ports = [*ports_named(lines), *declared_ports(pod, one.name)] if port_is_taken(lines) else []
    holders = tuple((port, facts.listeners[port]) for port in dict.fromkeys(ports) if port in facts.listeners)
    cause = cause_of(lines, code, reason, surroundings(facts, pod, one.name, one.status, holders))
    endpoint = facts.spec.get(ENDPOINT)
    if endpoint and "cannot reach" in cause.what:
        fix = (
            f"see that its server (an etcd with the v2 API, for etcd) answers at {endpoint}; else mend spec.{ENDPOINT}"
        )
        return cause._replace(what=f"the rendezvous at {endpoint} cannot be reached", fix=fix)
    return cause


def declared_ports(pod: Json, container: str) -> list[int]:
    listed = container_spec(pod, container).get("ports")
    ports = [one.get("containerPort") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [port for port in ports if isinstance(port, int)]


def _mend(lines: tuple[str, ...], one: Container) -> str:
    """What helps where nothing is known but that it failed."""
    if lines:
        return "mend what its last lines say"
    if one.init:
        return f"let init container {one.name} print what it does (`set -x` in a shell), and make the job again"
    return "let the program print what it does (`set -x` in a shell), and make the job again"


def _lines(facts: Facts, pod: Json, container: str, end: Json) -> tuple[str, ...]:
    """The last lines of the output; where there are none, what the container left as its message."""
    message = str(end.get("message") or "")
    return facts.logs.get(key(pod, container)) or tuple(message.splitlines())


def _again(facts: Facts, pod: Json, one: Container) -> Finding | None:
    end = one.before
    if end is None or not one.restarts or not end.get("exitCode"):
        return None
    code, reason = int(end["exitCode"]), str(end.get("reason") or "Error")
    ago = facts.age(end.get("finishedAt"))
    what = f"its program was started again {_times(one.restarts)}; it ended with exit code {code} ({reason})"
    what += f" {age(ago)} ago" if ago is not None else ""
    means = cause_of((), code, reason, surroundings(facts, pod, one.name, one.status)).what
    fix = f"`{facts.command('logs -p')}`"
    return Finding(NOTE, f"{what}: {means}" if means else what, place(pod, one.name, "lastState.terminated"), (), fix)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _unhappy(facts: Facts, pod: Json, one: Container) -> Finding | None:
    """It runs, and its last lines speak of trouble."""
    lines = facts.logs.get(key(pod, one.name), ())
    sign = sign_of(without_frames(lines)[-5:], surroundings(facts, pod, one.name, one.status))
    if sign is None:
        return None
    return Finding(
        WAIT,
        f"it runs, but its last lines speak of trouble: {sign[0]}",
        place(pod, one.name, "log"),
        lines[-5:],
        sign[1],
    )


# --- a job that has failed


def failed(facts: Facts) -> Iterator[Finding]:
    """The containers that brought it down: how each ended, and its last lines."""
    if ended(facts.kind, facts.job) == "Failed":
        yield from failures(facts)


def failures(facts: Facts, told_to_go: bool = True) -> Iterator[Finding]:
    """How containers failed, those that decide and the earliest first. `told_to_go`: also when the first of them was
    only stopped."""
    ends: list[tuple[float, Json, Container, Json]] = []
    for pod in (*facts.pods, *facts.gone):
        if _past_deadline(facts) and not _stays_failed(pod):
            continue  # the deadline deletes this pod: the answer must not depend on how far the deletion is
        for one in containers(pod):
            end = one.state("terminated") or (one.before if one.state("waiting") else None)
            if end is not None and end.get("exitCode"):
                ends.append((parse_time(end.get("finishedAt")) or 0.0, pod, one, end))
    deciding = {(slot.role, str(slot.index)) for slot in facts.kind.supervised_slots_of(facts.read)}
    ends.sort(key=lambda one: (not _decides(one[1], deciding), one[0]))
    ends = [one for at, one in enumerate(ends) if (told_to_go and at == 0) or one[3].get("exitCode") not in TOLD_TO_GO]
    groups: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for _, pod, one, end in ends:
        found = _end(facts, pod, one, end)
        groups.setdefault((found.what, found.fix), []).append((called(pod), found))
    for members in list(groups.values())[:MOST_ENDS]:
        first = members[0][1]
        yield replace(first, what=f"{names_of(name for name, _ in members)} {first.what}")


def _decides(pod: Json, deciding: set[tuple[str, str]]) -> bool:
    return (role_of(pod), index_of(pod)) in deciding


def _end(facts: Facts, pod: Json, one: Container, end: Json) -> Finding:
    what, where, lines, fix = _ending(facts, pod, one, end)
    return Finding(END, what, where, lines, fix)


def _ending(facts: Facts, pod: Json, one: Container, end: Json) -> tuple[str, str, tuple[str, ...], str]:
    """How a container ended: what, where, its last lines, and what helps."""
    code, reason = int(end["exitCode"]), str(end.get("reason") or "Error")
    lines = _lines(facts, pod, one.name, end)
    cause = _cause(facts, pod, one, code, reason, lines)
    what = f"ended with exit code {code} ({reason})" + (f" in init container {one.name}" if one.init else "")
    what += f": {cause.what}" if cause.what else ""
    where = place(pod, one.name, f"state.terminated.exitCode={code}")
    return what, where, lines or (SILENT,), cause.fix or _mend(lines, one)


def blocked(facts: Facts) -> Iterator[Finding]:
    """The pods' own findings for a job that has failed for another reason (a deadline): what it waited for."""
    if _past_deadline(facts):
        pending = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") == "Pending"]
        yield from waiting(replace(facts, pods=tuple(pod for pod in pending if not _deleted(pod))))


def _past_deadline(facts: Facts) -> bool:
    return (facts.holds("Failed") or {}).get("reason") == "DeadlineExceeded"


def _stays_failed(pod: Json) -> bool:
    """The pod failed by itself and is kept, so that its containers' ends can be read at any later time."""
    return (pod.get("status") or {}).get("phase") == "Failed" and not _deleted(pod)


def _deleted(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _newest_event(facts: Facts, uid: str, reason: str) -> str:
    """The message of the newest event of that reason about that object."""
    for event in reversed(facts.events):
        if (event.get("involvedObject") or {}).get("uid") == uid and event.get("reason") == reason:
            return str(event.get("message") or "")
    return ""
