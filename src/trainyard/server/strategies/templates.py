"""Pod specs, wherever they stand: in a pod, in the template of a Job, a Deployment, a StatefulSet.

Only what others rely on is checked and filled in; the rest of a pod spec passes through as it is.
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.metadata import label_problems, name_problem
from trainyard.server.strategies.shapes import (
    BOOLEAN,
    COUNT,
    FREE,
    INTEGER,
    MIXED,
    PAIRS,
    STRING,
    STRINGS,
    fill,
    many,
    needed,
    obj,
    one_of,
)

_QUANTITIES: Json = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}, "nullable": True}
_CONTAINER_PORT = obj(
    ("containerPort",), containerPort=needed(INTEGER), name=STRING, protocol=one_of("TCP", "UDP", "SCTP")
)
_CONTAINER = obj(
    ("name",),
    name=needed(STRING),
    image=STRING,
    imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
    command=STRINGS,
    args=STRINGS,
    workingDir=STRING,
    env=many(obj(("name",), name=needed(STRING), value=STRING, valueFrom=FREE)),
    envFrom=many(FREE),
    ports=many(_CONTAINER_PORT),
    resources=obj(limits=_QUANTITIES, requests=_QUANTITIES),
    volumeMounts=many(obj(("name", "mountPath"), name=needed(STRING), mountPath=needed(STRING), subPath=STRING)),
    lifecycle=FREE,
    restartPolicy=STRING,
)
POD_SPEC = obj(
    ("containers",),
    containers=many(_CONTAINER),
    initContainers=many(_CONTAINER),
    volumes=many(obj(("name",), name=needed(STRING))),
    restartPolicy=one_of("Always", "OnFailure", "Never"),
    terminationGracePeriodSeconds=COUNT,
    activeDeadlineSeconds=COUNT,
    dnsPolicy=STRING,
    dnsConfig=obj(searches=STRINGS, nameservers=STRINGS),
    nodeName=STRING,
    nodeSelector=PAIRS,
    hostname=STRING,
    subdomain=STRING,
    hostNetwork=BOOLEAN,
    serviceAccountName=STRING,
    tolerations=many(FREE),
    securityContext=FREE,
    hostAliases=many(FREE),
    priority=INTEGER,
)
TEMPLATE = obj(
    ("spec",),
    metadata=obj(labels=PAIRS, annotations=PAIRS, name=STRING),
    spec=needed(POD_SPEC),
)
SELECTOR = obj(matchLabels=PAIRS, matchExpressions=many(FREE))
PERCENT_OR_COUNT = MIXED


def default_pod_spec(spec: Json) -> None:
    """What the real server fills into every pod spec."""
    fill(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        securityContext={},
        terminationGracePeriodSeconds=30,
    )
    if account := spec.get("serviceAccountName"):
        fill(spec, serviceAccount=account)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            _default_container(container)
            for port in container.get("ports") or () if spec.get("hostNetwork") is True else ():
                fill(port, hostPort=port.get("containerPort"))


def _default_volume(volume: Json) -> None:
    """A volume that names no source is an empty folder; files of all others may be read by everybody."""
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(kind), dict):
            fill(volume[kind], defaultMode=420)
    if isinstance(volume.get("hostPath"), dict):
        fill(volume["hostPath"], type="")


def _default_probes(container: Json) -> None:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(name), dict):
            fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _default_http(probe)
    lifecycle = container.get("lifecycle")
    for hook in lifecycle.values() if isinstance(lifecycle, dict) else ():
        _default_http(hook)


def _default_http(action: Any) -> None:
    if isinstance(action, dict) and isinstance(request := action.get("httpGet"), dict):
        fill(request, path="/", scheme="HTTP")


def _default_requests(resources: Json) -> None:
    """Who limits a resource and does not say how much he asks for asks for all of it."""
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _default_container(container: Json) -> None:
    _default_probes(container)
    fill(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=pull_policy(container.get("image") or ""),
    )
    _default_requests(container["resources"])
    for port in container.get("ports") or ():
        fill(port, protocol="TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        reference = source.get("fieldRef") if isinstance(source, dict) else None
        if isinstance(reference, dict):
            fill(reference, apiVersion="v1")


def pull_policy(image: str) -> str:
    """Always for the tag `latest`, said or meant; a digest or any other tag may be kept."""
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    _, colon, tag = name.partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def pod_spec_problems(spec: Json, path: str) -> list[Problem]:
    """Cross-field rules of a pod spec. The schema has been satisfied."""
    found: list[Problem] = []
    volumes = {volume["name"] for volume in spec.get("volumes") or ()}
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        found += _name(volume["name"], "label", f"{path}.volumes[{index}].name")
        if volume["name"] in seen:
            found.append(Problem(f"{path}.volumes[{index}].name", f"Duplicate value: {shown(volume['name'])}"))
        seen.add(volume["name"])
    names: dict[str, str] = {}
    if not spec.get("containers"):
        found.append(Problem(f"{path}.containers", "Required value: name at least one container"))
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{path}.{group}[{index}]"
            found += _container_problems(container, where, volumes)
            if container["name"] in names:
                found.append(Problem(f"{where}.name", f"Duplicate value: {shown(container['name'])}"))
            names[container["name"]] = where
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline < 2**31:
        text = f"Invalid value: {deadline}: must be between 1 and 2147483647, inclusive"
        found.append(Problem(f"{path}.activeDeadlineSeconds", text))
    for word in ("hostname", "subdomain"):
        if spec.get(word):
            found += _name(spec[word], "label", f"{path}.{word}")
    return found


def _container_problems(container: Json, where: str, volumes: set[str]) -> list[Problem]:
    found = _name(container["name"], "label", f"{where}.name")
    if not container.get("image"):
        found.append(Problem(f"{where}.image", "Required value: name the image to run"))
    for index, port in enumerate(container.get("ports") or ()):
        number, here = port["containerPort"], f"{where}.ports[{index}].containerPort"
        if not number:
            found.append(Problem(here, "Required value"))
        elif not 0 < number < 65536:
            found.append(Problem(here, f"Invalid value: {number}: must be between 1 and 65535, inclusive"))
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = f"{where}.volumeMounts[{index}]"
        if mount["name"] not in volumes:
            found.append(Problem(f"{here}.name", f"Not found: {shown(mount['name'])}: add it to the pod's volumes"))
        if mount["mountPath"] in paths:
            found.append(Problem(f"{here}.mountPath", f"Invalid value: {shown(mount['mountPath'])}: must be unique"))
        paths.add(mount["mountPath"])
    for index, variable in enumerate(container.get("env") or ()):
        here = f"{where}.env[{index}]"
        if not variable["name"] or "=" in variable["name"] or "\x00" in variable["name"]:
            text = "must not be empty and must not contain '='"
            found.append(Problem(f"{here}.name", f"Invalid value: {shown(variable['name'])}: {text}"))
        if variable.get("value") and variable.get("valueFrom"):
            text = "Invalid value: may not be specified when `value` is not empty"
            found.append(Problem(f"{here}.valueFrom", text))
    return found


def template_problems(template: Json, path: str) -> list[Problem]:
    meta = template.get("metadata") or {}
    found = label_problems(meta.get("labels") or {}, f"{path}.metadata.labels")
    return found + pod_spec_problems(template["spec"], f"{path}.spec")


def _name(name: str, rule: str, path: str) -> list[Problem]:
    problem = name_problem(name, rule, path)
    return [problem] if problem else []


def containers_of(spec: Any, group: str = "containers") -> list[Json]:
    found = spec.get(group) if isinstance(spec, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
