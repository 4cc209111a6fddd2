"""Pods: defaulting, status, update rules, grace period and columns, as in kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard.api_types.defaults import set_defaults, string_or_empty
from trainyard.api_types.pod_defaults import containers_of, default_pod_spec
from trainyard.api_types.pod_rules import pod_spec_problems
from trainyard.api_types.validators import MAX_INT32
from trainyard.objects import Json, Problem
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text
from trainyard.server.builtin import pod_columns
from trainyard.server.builtin.pod_warnings import name_warnings, pod_warnings
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Resource
from trainyard.server.proxy import targets
from trainyard.server.registry.service_accounts import admit_pod

ENDED = ("Succeeded", "Failed")
NODE_FAILURE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
ALTERNATIVES = {
    "portforward": (
        "port-forward is not served here: run `kubectl proxy` and open "
        "http://127.0.0.1:8001/api/v1/namespaces/NAMESPACE/pods/POD:PORT/proxy/ (or services/NAME:PORT/proxy/)"
    ),
    "ephemeralcontainers": (
        "containers cannot be added to a running pod here: start a program in one that runs, "
        "kubectl exec -it POD -- COMMAND"
    ),
    "resize": "the resources of a running pod cannot be changed here: delete the pod and make another",
}
_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of a pod, and the status of a new one."""
    spec = new["spec"] = new.get("spec") or {}
    default_pod_spec(spec)
    set_defaults(spec, enableServiceLinks=True, preemptionPolicy="PreemptLowerPriority", priority=0)
    account = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    if old is None:
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        new["status"] = {"phase": "Pending", "qosClass": qos_class(spec), **_scheduling_gated_status(spec, context)}


def _tolerations(tolerations: list[Json]) -> list[Json]:
    """Add kube-apiserver's default tolerations (DefaultTolerationSeconds): a pod tolerates a node that is not ready or
    unreachable for 300 s, unless it has a toleration for that taint."""
    with_defaults = list(tolerations)
    for key in NODE_FAILURE_TAINTS:
        if not any(
            toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")
            for toleration in tolerations
        ):
            with_defaults.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return with_defaults


def qos_class(spec: Json) -> str:
    """The QoS class of a pod."""
    has_resources, is_guaranteed = False, True
    for container in [*containers_of(spec), *containers_of(spec, "initContainers")]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        limit_values, request_values = (
            [number(quantities.get(name, "0")) for name in ("cpu", "memory")] for quantities in (limits, requests)
        )
        has_resources = has_resources or any((*limit_values, *request_values))
        is_guaranteed = is_guaranteed and all(limit_values) and limit_values == request_values
    return ("Guaranteed" if is_guaranteed else "Burstable") if has_resources else "BestEffort"


def _scheduling_gated_status(spec: Json, context: RequestContext) -> Json:
    if not spec.get("schedulingGates"):
        return {}
    message = "Scheduling is blocked due to non-empty scheduling gates"
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    return {"conditions": [{**condition, "lastProbeTime": None, "lastTransitionTime": context.timestamp}]}


def warnings(new: Json, old: Json | None) -> Iterator[str]:
    """The Warnings of kube-apiserver about a new pod; none about an update."""
    if old is None:
        yield from name_warnings(new, "the Pod's hostname")
        yield from pod_warnings(new["spec"], "spec")


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    """Defaults of a pod's status. A status update does not change the ownerReferences."""
    metadata, status = new["metadata"], dict(new.get("status") or {})
    new["status"] = status
    metadata.pop("ownerReferences", None)
    if owners := old["metadata"].get("ownerReferences"):
        metadata["ownerReferences"] = owners
    if not status.get("qosClass"):
        status["qosClass"] = (old.get("status") or {}).get("qosClass") or qos_class(new["spec"])
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]


def check(new: Json, old: Json | None) -> list[Problem]:
    """The problems of a pod, with the texts of kube-apiserver."""
    problems = pod_spec_problems(new["spec"], "spec")
    if old is not None:
        return problems + _update_problems(new["spec"], old["spec"])
    if new["spec"].get("ephemeralContainers"):
        problems.append(Problem("spec.ephemeralContainers", "Forbidden: cannot be set on create"))
    if new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        problems.append(Problem("spec.nodeName", text))
    return problems


def _update_problems(new: Json, old: Json) -> list[Problem]:
    """Problems of an update of a pod's spec. A changed number of containers or a wrong deadline is returned alone."""
    for group in ("containers", "initContainers"):
        if len(new.get(group) or ()) != len(old.get(group) or ()):
            return [Problem(f"spec.{group}", "Forbidden: pod updates may not add or remove containers")]
    old_deadline, deadline = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    path, problems = "spec.activeDeadlineSeconds", []
    if deadline is not None and not 0 <= deadline <= MAX_INT32:
        return [Problem(path, f"Invalid value: {deadline}: must be between 0 and {MAX_INT32}, inclusive")]
    if old_deadline is not None and deadline is not None and old_deadline < deadline:
        return [Problem(path, f"Invalid value: {deadline}: must be less than or equal to previous value")]
    if old_deadline is not None and deadline is None:
        problems.append(Problem(path, "Invalid value: null: must not update from a positive integer to nil value"))
    if any(
        not _has_toleration(toleration, new.get("tolerations") or []) for toleration in old.get("tolerations") or ()
    ):
        problems.append(
            Problem(
                "spec.tolerations", "Forbidden: existing toleration can not be modified except its tolerationSeconds"
            )
        )
    old_gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in old_gates:
            gate_path = f"spec.schedulingGates[{index}].name"
            problems.append(Problem(gate_path, "Forbidden: only deletion is allowed, but found new scheduling gate"))
    if had_gates := bool(old_gates):
        problems += _node_selector_problems(new.get("nodeSelector") or {}, old.get("nodeSelector") or {})
    if _fixed(new, had_gates) != _fixed(old, had_gates):
        fields = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        more_fields = "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds`"
        text = f"Forbidden: pod updates may not change fields other than {fields}{more_fields}"
        problems.append(Problem("spec", f"{text} (allow it to be set to 1 if it was previously negative)"))
    return problems


def _has_toleration(toleration: Json, tolerations: list[Json]) -> bool:
    """True if the tolerations have this one, whatever its tolerationSeconds."""
    without_seconds = {name: value for name, value in toleration.items() if name != "tolerationSeconds"}
    return any(
        {name: value for name, value in candidate.items() if name != "tolerationSeconds"} == without_seconds
        for candidate in tolerations
    )


def _node_selector_problems(node_selector: Json, old_node_selector: Json) -> list[Problem]:
    """Problems of a changed nodeSelector: a pod with scheduling gates may only get additional labels."""
    if old_node_selector.items() <= node_selector.items():
        return []
    text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [Problem("spec.nodeSelector", f"Invalid value: {json_text(node_selector)}: {text}")]


def _fixed(spec: Json, had_gates: bool) -> Json:
    """The immutable part of a pod's spec. `had_gates`: the stored pod has scheduling gates."""
    mutable = (*_MUTABLE, "nodeSelector") if had_gates else _MUTABLE
    fixed = {name: value for name, value in spec.items() if name not in mutable and value not in ([], "")}
    for group in ("containers", "initContainers"):
        if spec.get(group):
            fixed[group] = [
                {name: value for name, value in container.items() if name != "image"} for container in spec[group]
            ]
    return fixed


def admission_fields(pod: Json) -> list[tuple[str, str]]:
    """The fields that admission sets, as field paths (fieldsV1): the client that creates the pod does not own them."""
    names = ("priority", "preemptionPolicy", "serviceAccount", "serviceAccountName", "tolerations")
    return [("f:spec", f"f:{name}") for name in names]


def grace_period_seconds(pod: Json, requested: int | None) -> int:
    """The grace period of a DELETE in seconds: 0 for a pod that is not bound or has ended, else `requested` or the
    pod's terminationGracePeriodSeconds."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ENDED:
        return 0
    if requested is not None:
        return requested
    seconds = spec.get("terminationGracePeriodSeconds")
    return seconds if isinstance(seconds, int) else 30


def fields(pod: Json) -> Mapping[str, str]:
    """The selectable fields of a pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "spec.nodeName": string_or_empty(spec.get("nodeName")),
        "spec.restartPolicy": string_or_empty(spec.get("restartPolicy")),
        "spec.schedulerName": string_or_empty(spec.get("schedulerName")),
        "spec.serviceAccountName": string_or_empty(spec.get("serviceAccountName")),
        "status.phase": string_or_empty(status.get("phase")),
        "status.podIP": string_or_empty(status.get("podIP")),
    }


RESOURCES = (
    Resource(
        kind="Pod",
        plural="pods",
        short=("po",),
        categories=("all",),
        status=True,
        generation=True,
        subresources=("log", "exec", "attach", "proxy", "binding", "eviction"),
        alternatives=ALTERNATIVES,
        proxy_port=targets.port_of_pod,
        prepare=prepare,
        prepare_status=prepare_status,
        admit=admit_pod,
        check=check,
        warnings=warnings,
        grace_period=grace_period_seconds,
        unowned=admission_fields,
        fields=fields,
        field_names=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ),
        columns=pod_columns.COLUMNS,
        row_conditions=pod_columns.conditions,
    ),
)
