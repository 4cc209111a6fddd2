"""What the pods say, and what those say that should have made one. Equal findings about several replicas become one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from trainyard.cli.diagnosis.exits import meaning
from trainyard.cli.diagnosis.facts import BLOCK, END, NOTE, WAIT, Facts, Finding, called, key, place
from trainyard.cli.diagnosis.output import sign_of
from trainyard.cli.view import age, ended, index_of, role_of
from trainyard.objects import Json, condition, controller_of, name_of, parse_time, uid_of

PATIENCE = 10.0  # seconds in which a pod is made, or a program started
PREPARING = 20.0  # seconds after which it is worth a word that an image is still being prepared
MOST_NAMES = 3
MOST_ENDS = 3

_IMAGE = "see that the image's name and tag are right and that this cluster may pull it (imagePullSecrets)"
WAITS = {
    "ErrImageNeverPull": (
        "its image has no entry in the catalogue",
        "name the image in a catalogue, and give it with --images; docs/images.md",
    ),
    "ErrImagePull": ("its image cannot be had", _IMAGE),
    "ImagePullBackOff": ("its image cannot be had", _IMAGE),
    "InvalidImageName": ("the name of its image is not legal", "mend the image's name in the template"),
    "ImageInspectError": ("its image cannot be looked into", _IMAGE),
    "CreateContainerError": ("its container cannot be made", "mend the template as the message says"),
    "CreateContainerConfigError": (
        "something that its container refers to is not there",
        "make it, or mend the reference",
    ),
    "RunContainerError": ("its container cannot be started", "check command, args and workingDir of the template"),
}
UNSCHEDULABLE = (
    (
        "no node is ready",
        "see that a node is ready: `kubectl get nodes`, and on this machine the log of `trainyard status`",
    ),
    ("Insufficient", "ask for less in resources.requests, free some of it, or add a node that has it"),
    ("taint", "add a toleration to the template, or a node without the taint"),
    ("affinity", "mend nodeSelector or affinity of the template, or label a node"),
    ("selector", "mend nodeSelector or affinity of the template, or label a node"),
    ("PersistentVolumeClaim", "make the claim, or a volume for it: `kubectl get pvc`"),
    ("persistentvolumeclaim", "make the claim, or a volume for it: `kubectl get pvc`"),
)


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
            same = replace(found, where="", evidence=found.evidence[:1] if found.level != BLOCK else ())
            groups.setdefault(same, []).append((called(pod), found))
    for members in groups.values():
        first = members[0][1]
        yield replace(first, what=f"{_names([name for name, _ in members])}: {first.what}")


def _names(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} others"


def _of_pod(facts: Facts, pod: Json) -> Iterator[Finding]:
    if (pod.get("status") or {}).get("phase") == "Failed":
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
    for one in containers(pod):
        end = one.state("terminated")
        if end is not None and end.get("exitCode"):
            what, where, lines, fix = _ending(facts, pod, one, end)
            return Finding(WAIT, f"its pod has failed, and is made again later; it {what}", where, lines, fix)
    status = pod.get("status") or {}
    what = f"its pod has failed ({status.get('reason') or 'no reason is said'}), and is made again later"
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
    fix = next((fix for word, fix in UNSCHEDULABLE if word in message), "mend what the message names")
    evidence = [message] if message else []
    if facts.nodes is not None:
        ready = sum(_is_ready(node) for node in facts.nodes)
        evidence.append(f"{ready} of {len(facts.nodes)} nodes are ready")
    where = f"pod {name_of(pod)}: status.conditions[PodScheduled]"
    return Finding(BLOCK, "no node takes its pod (unschedulable)", where, tuple(evidence), fix)


def _is_ready(node: Json) -> bool:
    said = condition((node.get("status") or {}).get("conditions"), "Ready")
    return said is not None and said.get("status") == "True" and not (node.get("spec") or {}).get("unschedulable")


def _of_container(facts: Facts, pod: Json, one: Container) -> Finding | None:
    wait = one.state("waiting")
    if wait is not None:
        reason = str(wait.get("reason") or "")
        if reason == "CrashLoopBackOff":
            return _crashing(facts, pod, one)
        if reason in WAITS:
            what, fix = WAITS[reason]
            evidence = tuple(filter(None, [str(wait.get("message") or ""), _image_of(pod, one.name)]))
            return Finding(BLOCK, f"{what} ({reason})", place(pod, one.name, "state.waiting"), evidence, fix)
        return _preparing(facts, pod, one, reason)
    if one.state("running") is not None and not one.init:
        return _again(facts, pod, one) or _unhappy(facts, pod, one)
    return None


def _image_of(pod: Json, container: str) -> str:
    spec = pod.get("spec") or {}
    listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    image = next((one.get("image") for one in listed if one.get("name") == container), "")
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
    means = meaning(code, reason)
    what = f"its program ends and is started again, {_times(one.restarts)} so far; exit code {code}"
    what += f" ({reason})" if reason else ""
    lines = _lines(facts, pod, one.name, end)
    sign = sign_of(lines)
    what = f"{what}: {sign[0] if sign else means}" if sign or means else what
    fix = sign[1] if sign else "mend what its last lines say; then make the job again"
    return Finding(BLOCK, what, place(pod, one.name, f"lastState.terminated.exitCode={code}"), lines, fix)


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
    means = meaning(code, reason)
    fix = facts.command("logs -p")
    return Finding(NOTE, f"{what}: {means}" if means else what, place(pod, one.name, "lastState.terminated"), (), fix)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _unhappy(facts: Facts, pod: Json, one: Container) -> Finding | None:
    """It runs, and its last lines speak of trouble."""
    lines = facts.logs.get(key(pod, one.name), ())
    sign = sign_of(lines[-5:])
    if sign is None:
        return None
    return Finding(
        WAIT,
        f"it runs, but its last lines speak of trouble: {sign[0]}",
        place(pod, one.name, "log"),
        lines[-5:],
        sign[1],
    )


# --- what should have made pods


def missing(facts: Facts) -> Iterator[Finding]:
    """Children that make no pod, or too few, and what was said about that."""
    owners = {(controller_of(pod) or {}).get("uid") for pod in facts.pods}
    for child in facts.children:
        said = _refusal(facts, child)
        wanted, there = _wanted(child), uid_of(child) in owners
        if said and (not there or (wanted or 0) > 1):
            fix = "raise the quota, or ask for less" if "quota" in said else "mend the template as the message says"
            what = f"no pod can be made for {child['kind']} {name_of(child)}"
            yield Finding(BLOCK, what, f"{child['kind']} {name_of(child)}: events", (said,), fix)
        elif child["kind"] == "StatefulSet" and wanted:
            ready = int((child.get("status") or {}).get("readyReplicas") or 0)
            if ready < wanted:
                where = f"StatefulSet {name_of(child)}: status.readyReplicas"
                yield Finding(
                    WAIT,
                    f"{ready} of {wanted} workers of {name_of(child)} are ready",
                    where,
                    (),
                    "see what is said of its pods",
                )
        elif wanted and not there and _is_late(facts, child):
            where = f"{child['kind']} {name_of(child)}: status"
            fix = "see that the controllers of the cluster run (kube-controller-manager)"
            yield Finding(BLOCK, f"{child['kind']} {name_of(child)} has made no pod yet", where, (), fix)


def _wanted(child: Json) -> int | None:
    """How many pods a child keeps; None for one that keeps none, or has ended."""
    spec, status = child.get("spec") or {}, child.get("status") or {}
    if child["metadata"].get("deletionTimestamp"):
        return None
    if child["kind"] == "Job":
        over = any(
            one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
            for one in status.get("conditions") or ()
        )
        return None if over or spec.get("suspend") else int(spec.get("parallelism", 1) or 0)
    return int(spec.get("replicas", 1) or 0) if child["kind"] in ("StatefulSet", "Deployment") else None


def _refusal(facts: Facts, child: Json) -> str:
    """The newest Warning about a pod that could not be made."""
    for event in reversed(facts.events):
        about = event.get("involvedObject") or {}
        if about.get("uid") == uid_of(child) and event.get("reason") == "FailedCreate":
            return str(event.get("message") or "")
    return ""


def _is_late(facts: Facts, child: Json) -> bool:
    since = facts.age(child["metadata"].get("creationTimestamp"))
    return since is not None and since >= PATIENCE


# --- a job that has failed


def failed(facts: Facts) -> Iterator[Finding]:
    """The containers that brought it down: how each ended, and its last lines."""
    if ended(facts.kind, facts.job) != "Failed":
        return
    ends: list[tuple[float, Json, Container, Json]] = []
    for pod in facts.pods:
        for one in containers(pod):
            end = one.state("terminated") or (one.before if one.state("waiting") else None)
            if end is not None and end.get("exitCode"):
                ends.append((parse_time(end.get("finishedAt")) or 0.0, pod, one, end))
    deciding = {(slot.role, str(slot.index)) for slot in facts.kind.judged(facts.read)}
    ends.sort(key=lambda one: (not _decides(one[1], deciding), one[0]))
    for _, pod, one, end in ends[:MOST_ENDS]:
        yield _end(facts, pod, one, end)


def _decides(pod: Json, deciding: set[tuple[str, str]]) -> bool:
    return (role_of(pod), index_of(pod)) in deciding


def _end(facts: Facts, pod: Json, one: Container, end: Json) -> Finding:
    what, where, lines, fix = _ending(facts, pod, one, end)
    final = _is_permanent(facts, one.name, int(end["exitCode"]), str(end.get("reason") or ""))
    what += "; such a code is permanent and not tried again" if final else ""
    return Finding(END, f"{called(pod)} {what}", where, lines or ("it has put out nothing",), fix)


def _ending(facts: Facts, pod: Json, one: Container, end: Json) -> tuple[str, str, tuple[str, ...], str]:
    """How a container ended: what, where, its last lines, and what helps."""
    code, reason = int(end["exitCode"]), str(end.get("reason") or "Error")
    lines = _lines(facts, pod, one.name, end)
    sign, means = sign_of(lines), meaning(code, reason)
    what = f"ended with exit code {code} ({reason})" + (f" in init container {one.name}" if one.init else "")
    what += f": {sign[0] if sign else means}" if sign or means else ""
    where = place(pod, one.name, f"state.terminated.exitCode={code}")
    return what, where, lines, sign[1] if sign else "mend what its last lines say"


def _is_permanent(facts: Facts, container: str, code: int, reason: str) -> bool:
    return container == facts.kind.container and bool(facts.kind.permanent(facts.read, code, reason))


def blocked(facts: Facts) -> Iterator[Finding]:
    """The pods' own findings for a job that has failed for another reason (a deadline): what it waited for."""
    reason = str((facts.holds("Failed") or {}).get("reason") or "")
    if reason == "DeadlineExceeded":
        yield from waiting(facts)
