"""Findings about pods whose containers run and that are not ready: their node is not, or a readiness probe fails."""

from __future__ import annotations

from trainyard.core.diagnosis import WAIT, Finding
from trainyard.objects import Json, as_dict, find_condition, labels_of, name_of
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.labels import matches_labels
from trainyard.views.diagnosis.inputs import Facts, container_field, container_spec
from trainyard.views.diagnosis.kubelet_stops import is_about_pod, last_probe_failure
from trainyard.views.diagnosis.lookups import node_name_of
from trainyard.views.durations import format_age

READINESS_SECONDS = 20.0  # seconds after its start in which a container becomes ready


def unready_finding(facts: Facts, pod: Json) -> Finding | None:
    """Why a pod is not ready although its containers run; None if it is ready, or some container does not run."""
    condition = find_condition(as_dict(pod.get("status")).get("conditions"), "Ready") or {}
    containers = [container for container in container_statuses(pod.get("status")) if not container.init]
    if condition.get("status") != "False" or any(container.state("running") is None for container in containers):
        return None
    unready = next((container for container in containers if container.status.get("ready") is False), None)
    if unready is not None:
        return _probe_finding(facts, pod, unready)
    seconds = facts.age(condition.get("lastTransitionTime"))
    place, message = f"pod {name_of(pod)}: status.conditions[Ready]", str(condition.get("message") or "")
    duration = f", for {format_age(seconds)}" if seconds is not None else ""
    if condition.get("reason"):  # such as ReadinessGatesNotReady
        summary = f"it runs, and its pod is not ready ({condition['reason']}){duration}"
        return Finding(WAIT, summary, place, tuple(filter(None, [message])), "see who sets what the message names")
    # The node controller sets Ready to False, without a reason, and leaves the containers as its kubelet reported them.
    node = node_name_of(pod)
    fix = f"see `kubectl describe node {node}`; once the toleration of its pod ends, 300 s by default, the pod is "
    fix += "deleted, and the replica made again when the node answers, or after --node-lost-timeout of the operator"
    events = [
        str(event.get("message"))
        for event in facts.events
        if event.get("reason") == "NodeNotReady" and is_about_pod(event, pod)
    ]
    summary = f"its node {node} is not ready{duration}; whether its program runs is not known"
    return Finding(WAIT, summary, place, tuple(events[-1:]), fix)


def _probe_finding(facts: Facts, pod: Json, container: ContainerStatus) -> Finding | None:
    seconds = facts.age((container.state("running") or {}).get("startedAt"))
    if seconds is None or seconds < READINESS_SECONDS:
        return None
    # A container is not ready before its startup probe has passed either.
    started = container.status.get("started") is not False or not container_spec(pod, container.name).get(
        "startupProbe"
    )
    probe = "readiness" if started else "startup"
    failure = last_probe_failure(pod, container.name, probe, facts.events)
    summary = f"its {probe} probe has not passed for {format_age(seconds)}" + (f" ({failure})" if failure else "")
    names = [name_of(child) for child in facts.children if _hides(child, pod)]
    if names:
        summary += f"; until it passes, the name {names[0]} does not resolve"
    fix = f"mend what {probe}Probe of the template asks, or leave it out"
    return Finding(WAIT, summary, container_field(pod, container.name, "ready"), (), fix)


def _hides(child: Json, pod: Json) -> bool:
    """Whether the child is a Service that selects the pod, and publishes ready addresses only."""
    spec = as_dict(child.get("spec"))
    selector = as_dict(spec.get("selector"))
    return (
        child["kind"] == "Service"
        and not spec.get("publishNotReadyAddresses")
        and bool(selector)
        and matches_labels(selector, labels_of(pod))
    )
