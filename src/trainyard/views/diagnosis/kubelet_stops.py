"""Why a kubelet stopped a container, where the pod's status or an event tells more than the exit code.

The texts are those of kubelet 1.37. The exit code of a container that is stopped is 137 or 143, or the program's own.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from trainyard.core.diagnosis import Cause
from trainyard.objects import Json, as_dict, name_of, parse_time, uid_of
from trainyard.objects.container_statuses import ContainerStatus
from trainyard.views.diagnosis.disruptions import disruption_of
from trainyard.views.event_view import last_timestamp

_EVENT_TOLERANCE = 2.0  # seconds between the event of a kill and the end of the run: both times are whole seconds
_STOP_CODES = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
_PROBE_KILL = re.compile(r"failed (liveness|startup) probe")
_PROBE_FAILURE = re.compile(r"(Liveness|Startup) probe failed")
_HOOK_KILL = "FailedPostStartHook"
_CONTAINER_IN_MESSAGE = re.compile(r"Container (\S+) failed")


def kubelet_stop(pod: Json, container: ContainerStatus, events: Iterable[Json]) -> Cause:
    """Why the kubelet stopped the last run of a container; an empty Cause if nothing says that it did. `events`: those
    of the job's objects, the oldest first."""
    if container.last_terminated is None:  # most containers of a large job: the events are not read for each
        return Cause()
    return _pod_stop(pod) or _container_stop(pod, container, tuple(events)) or Cause()


def _pod_stop(pod: Json) -> Cause | None:
    """Why all containers of the pod were stopped: the reason of a failed pod, or its disruption."""
    status = as_dict(pod.get("status"))
    if status.get("phase") != "Failed":
        return None
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason == "DeadlineExceeded":
        seconds = as_dict(pod.get("spec")).get("activeDeadlineSeconds")
        limit = f" of {seconds} s" if seconds is not None else ""
        return Cause(
            f"its pod was active for longer than its own activeDeadlineSeconds{limit}",
            "raise activeDeadlineSeconds in the pod template, or make the program faster; where its replica is tried "
            "again, each new pod has that time again: activeDeadlineSeconds of the job ends all of them",
        )
    if disruption := disruption_of(pod):
        reason, message = reason or disruption.reason, message or disruption.message
    if not reason:
        return None
    text = f"its pod was stopped ({reason})" + (f": {' '.join(message.split())}" if message else "")
    return Cause(text, "nothing in the program needs to be mended; see `kubectl describe node` of its node")


def _container_stop(pod: Json, container: ContainerStatus, events: tuple[Json, ...]) -> Cause | None:
    """The probe or hook whose failure made the kubelet kill the last run."""
    for event in reversed(events):
        if event.get("reason") != "Killing" or not _is_about(event, pod, container.name):
            continue
        message = str(event.get("message") or "")
        match = _PROBE_KILL.search(message)
        probe = match[1] if match else _probe_before(event, pod, container.name, events)
        if not probe and message != _HOOK_KILL:
            continue
        if not is_in_run(event, container):
            return None
        if not probe:
            return Cause("it was stopped because its postStart hook failed", "mend lifecycle.postStart of the template")
        failure = last_probe_failure(pod, container.name, probe, events)
        text = f"it was stopped because its {probe} probe failed" + (f" ({failure})" if failure else "")
        fix = f"mend what {probe}Probe of the template asks, or give it more time (timeoutSeconds, failureThreshold, "
        return Cause(text, f"{fix}{'periodSeconds' if probe == 'startup' else 'or a startupProbe'})")
    return None


def _probe_before(killing: Json, pod: Json, container: str, events: tuple[Json, ...]) -> str:
    """The probe that failed just before a kill whose event names no cause, "" for none: so a kubelet ends a pod that
    never restarts, and no other container of which goes on."""
    never = as_dict(pod.get("spec")).get("restartPolicy") == "Never"
    time = parse_time(last_timestamp(killing))
    if not never or time is None or not str(killing.get("message") or "").startswith("Stopping container "):
        return ""
    for event in reversed(events):
        match = _PROBE_FAILURE.match(str(event.get("message") or ""))
        failed = parse_time(last_timestamp(event))
        if event.get("reason") == "Unhealthy" and match and failed is not None and _is_about(event, pod, container):
            return match[1].lower() if abs(time - failed) <= _EVENT_TOLERANCE else ""
    return ""


def last_probe_failure(pod: Json, container: str, probe: str, events: Iterable[Json]) -> str:
    """What the newest failure of a probe (liveness, readiness, startup) answered, in one line; "" for none."""
    prefix = f"{probe.capitalize()} probe "
    for event in reversed(tuple(events)):
        message = " ".join(str(event.get("message") or "").split())
        if event.get("reason") == "Unhealthy" and message.startswith(prefix) and _is_about(event, pod, container):
            return message.removeprefix(prefix).removeprefix("failed:").removeprefix("errored:").strip()
    return ""


def is_about_pod(event: Json, pod: Json) -> bool:
    """Whether an event is about this pod. Those of the history have no uid of it."""
    involved = as_dict(event.get("involvedObject"))
    if uid := involved.get("uid"):
        return bool(uid == uid_of(pod))
    return (involved.get("kind"), involved.get("name")) == ("Pod", name_of(pod))


def _is_about(event: Json, pod: Json, container: str) -> bool:
    """Whether an event is about this container: its fieldPath names it, and messages of older kubelets."""
    involved = as_dict(event.get("involvedObject"))
    if not is_about_pod(event, pod):
        return False
    if path := str(involved.get("fieldPath") or ""):
        return path.endswith(f"{{{container}}}")
    match = _CONTAINER_IN_MESSAGE.match(str(event.get("message") or ""))
    return match is None or match[1] == container


def is_in_run(event: Json, container: ContainerStatus) -> bool:
    """Whether the event is of the last run that ended, and not of an earlier one or of the present one.

    Kubelets write the event of a container that is killed again and again only from time to time: then an earlier one
    counts, if a signal has ended the last run, too."""
    terminated, time = container.last_terminated or {}, parse_time(last_timestamp(event))
    start, end = parse_time(terminated.get("startedAt")), parse_time(terminated.get("finishedAt"))
    if time is None:
        return True
    if end is not None and time > end + _EVENT_TOLERANCE:
        return False
    is_repeated = container.restarts > 1 and terminated.get("exitCode") in _STOP_CODES
    return is_repeated or start is None or start - _EVENT_TOLERANCE <= time
