"""Defaulting of pod specs, in pods and in the pod templates of workloads."""

from __future__ import annotations

import re
from typing import Any

from trainyard.api_types.defaults import set_defaults, set_defaults_for_zero
from trainyard.objects import Json
from trainyard.objects.patterns import lazy_pattern


def default_pod_spec(spec: Json, is_pod: bool = True) -> None:
    """Set kube-apiserver's defaults of a pod spec. `is_pod`: the spec is a pod's, not a template's; then host ports
    default to container ports (with hostNetwork), and requests to limits."""
    set_defaults(spec, securityContext={}, terminationGracePeriodSeconds=30)
    set_defaults_for_zero(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    if account := spec.get("serviceAccountName"):
        set_defaults(spec, serviceAccount=account)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            _default_container(container)
            if is_pod:
                _default_requests(container["resources"])
            for port in container.get("ports") or () if is_pod and spec.get("hostNetwork") is True else ():
                set_defaults_for_zero(port, hostPort=port.get("containerPort"))


def _default_volume(volume: Json) -> None:
    """Set the defaults of a volume: emptyDir if it has no source, mode 0644 for files of keys and fields."""
    if not any(name != "name" for name in volume):
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(kind), dict):
            set_defaults(volume[kind], defaultMode=420)
    if isinstance(volume.get("hostPath"), dict):
        set_defaults(volume["hostPath"], type="")
    sources = [volume]
    if isinstance(projected := volume.get("projected"), dict):
        set_defaults(projected, sources=None)
        sources += projected["sources"] or []
    for source in sources:
        if isinstance(token := source.get("serviceAccountToken"), dict):
            set_defaults(token, expirationSeconds=3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_reference(item)


def _default_reference(source: Json) -> None:
    """Set the defaults of a downward API reference of a variable or a file."""
    if isinstance(field := source.get("fieldRef"), dict):
        set_defaults_for_zero(field, apiVersion="v1")
    if isinstance(resource := source.get("resourceFieldRef"), dict):
        set_defaults(resource, divisor="0")


def _default_probes(container: Json) -> None:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(name), dict):
            set_defaults_for_zero(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _default_http(probe)
    lifecycle = container.get("lifecycle")
    for hook in lifecycle.values() if isinstance(lifecycle, dict) else ():
        _default_http(hook)
        if isinstance(hook, dict) and isinstance(hook.get("sleep"), dict):
            set_defaults(hook["sleep"], seconds=0)


def _default_http(action: Any) -> None:
    if isinstance(action, dict) and isinstance(request := action.get("httpGet"), dict):
        set_defaults_for_zero(request, path="/", scheme="HTTP")


def _default_requests(resources: Json) -> None:
    """A missing request defaults to the limit of the resource."""
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _default_container(container: Json) -> None:
    _default_probes(container)
    set_defaults(container, resources={})
    set_defaults_for_zero(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=pull_policy(container.get("image") or ""),
    )
    for port in container.get("ports") or ():
        set_defaults_for_zero(port, protocol="TCP")
    for variable in container.get("env") or ():
        if isinstance(source := variable.get("valueFrom"), dict):
            _default_reference(source)


def pull_policy(image: str) -> str:
    """The default imagePullPolicy: Always for the tag `latest` and without tag and digest; IfNotPresent for another
    tag, a digest, or an invalid image name."""
    match = _IMAGE.fullmatch(image)
    if match is None or match["digest"]:
        return "IfNotPresent"
    return "Always" if match["tag"] in (None, "latest") else "IfNotPresent"


# The grammar of image references (distribution/reference). 64 hexadecimal digits alone are an image id without tag.
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = lazy_pattern(
    rf"(?![0-9a-f]{{64}}\Z)(({_HOST}(\.{_HOST})*|\[[0-9A-Fa-f:]+\])(:\d+)?/)?{_PART}(/{_PART})*"
    r"(:(?P<tag>\w[-.\w]{0,127}))?(@(?P<digest>[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}))?",
    re.ASCII,
)


def containers_of(spec: Any, group: str = "containers") -> list[Json]:
    """The containers of a pod spec in the list `group`, [] when it is malformed."""
    containers = spec.get(group) if isinstance(spec, dict) else None
    return (
        [container for container in containers if isinstance(container, dict)] if isinstance(containers, list) else []
    )
