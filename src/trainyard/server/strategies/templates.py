"""What is filled into pod specs, wherever they stand: in a pod, in the template of a Job or a StatefulSet."""

from __future__ import annotations

import re
from typing import Any

from trainyard.objects import Json
from trainyard.server.strategies.shapes import fill, fill_empty


def default_pod_spec(spec: Json, at_home: bool = True) -> None:
    """What the real server fills into every pod spec. `at_home`: it is a pod's, no template's; then ports of
    the node's network are those of the node, and limits are asked for."""
    fill(spec, securityContext={}, terminationGracePeriodSeconds=30)
    fill_empty(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    _drop(spec, _SPEC)
    if account := spec.get("serviceAccountName"):
        fill(spec, serviceAccount=account)
    for toleration in spec.get("tolerations") or ():
        _drop(toleration, _TOLERATION)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            _default_container(container)
            if at_home:
                _default_requests(container["resources"])
            for port in container.get("ports") or () if at_home and spec.get("hostNetwork") is True else ():
                fill_empty(port, hostPort=port.get("containerPort"))


# What is as good as not there, and not stored.
_SPEC = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), False),
    **dict.fromkeys(("hostname", "subdomain", "nodeName", "priorityClassName"), ""),
}
_CONTAINER = {"stdin": False, "stdinOnce": False, "tty": False, "workingDir": ""}
_TOLERATION = {"key": "", "operator": "", "value": "", "effect": ""}
_VARIABLE = {"value": ""}
_PORT = {"name": "", "hostIP": "", "hostPort": 0}
_MOUNT = {"readOnly": False, "subPath": "", "subPathExpr": ""}
_SOURCE = {"readOnly": False, "medium": ""}
_PROBE = {"initialDelaySeconds": 0}


def _drop(one: Json, nothing: Json) -> None:
    for name, value in nothing.items():
        if name in one and one[name] == value:
            del one[name]


def _default_volume(volume: Json) -> None:
    """A volume that names no source is an empty folder; files of all others may be read by everybody."""
    for source in volume.values():
        if isinstance(source, dict):
            _drop(source, _SOURCE)
    if not any(name != "name" for name in volume):
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(kind), dict):
            fill(volume[kind], defaultMode=420)
    if isinstance(volume.get("hostPath"), dict):
        fill(volume["hostPath"], type="")
    parts = [volume]
    if isinstance(projected := volume.get("projected"), dict):
        fill(projected, sources=None)
        parts += projected["sources"] or []
    for part in parts:
        if isinstance(token := part.get("serviceAccountToken"), dict):
            fill(token, expirationSeconds=3600)
        for item in (part.get("downwardAPI") or {}).get("items") or ():
            _default_reference(item)


def _default_reference(one: Json) -> None:
    """What a variable or a file is told of the pod."""
    if isinstance(field := one.get("fieldRef"), dict):
        fill_empty(field, apiVersion="v1")
    if isinstance(amount := one.get("resourceFieldRef"), dict):
        fill(amount, divisor="0")


def _default_probes(container: Json) -> None:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(name), dict):
            _drop(probe, _PROBE)
            fill_empty(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _default_http(probe)
    lifecycle = container.get("lifecycle")
    for hook in lifecycle.values() if isinstance(lifecycle, dict) else ():
        _default_http(hook)
        if isinstance(hook, dict) and isinstance(hook.get("sleep"), dict):
            fill(hook["sleep"], seconds=0)


def _default_http(action: Any) -> None:
    if isinstance(action, dict) and isinstance(request := action.get("httpGet"), dict):
        _drop(request, {"host": ""})
        fill_empty(request, path="/", scheme="HTTP")


def _default_requests(resources: Json) -> None:
    """Who limits a resource and does not say how much he asks for asks for all of it."""
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _default_container(container: Json) -> None:
    _default_probes(container)
    fill(container, resources={})
    fill_empty(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=pull_policy(container.get("image") or ""),
    )
    _drop(container, _CONTAINER)
    for port in container.get("ports") or ():
        _drop(port, _PORT)
        fill_empty(port, protocol="TCP")
    for mount in container.get("volumeMounts") or ():
        _drop(mount, _MOUNT)
    for variable in container.get("env") or ():
        _drop(variable, _VARIABLE)
        if isinstance(source := variable.get("valueFrom"), dict):
            _default_reference(source)


def pull_policy(image: str) -> str:
    """Always for the tag `latest`, said or meant; a digest or another tag may be kept, and so may what is no image."""
    found = _IMAGE.fullmatch(image)
    if found is None or found["digest"]:
        return "IfNotPresent"
    return "Always" if found["tag"] in (None, "latest") else "IfNotPresent"


# The names of images as registries know them. 64 hexadecimal digits alone are an id, which has no tag.
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?![0-9a-f]{{64}}\Z)(({_HOST}(\.{_HOST})*|\[[0-9A-Fa-f:]+\])(:\d+)?/)?{_PART}(/{_PART})*"
    r"(:(?P<tag>\w[-.\w]{0,127}))?(@(?P<digest>[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}))?",
    re.ASCII,
)


def containers_of(spec: Any, group: str = "containers") -> list[Json]:
    found = spec.get(group) if isinstance(spec, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
