"""What the real server refuses of a pod spec, wherever it stands. Its types have been checked, its defaults are in.

Only what people get wrong is looked at; each problem is at the real server's path, with its first words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.metadata import WORD_TEXT, key_texts, label_problems, name_problem
from trainyard.server.strategies.judging import one_of
from trainyard.server.strategies.pod_resources import resource_problems
from trainyard.server.strategies.pod_security import container_context_problems, pod_context_problems

POLICIES = ("Always", "IfNotPresent", "Never")
RESTARTS = ("Always", "OnFailure", "Never")
PROTOCOLS = ("SCTP", "TCP", "UDP")
SCHEMES = ("HTTP", "HTTPS")
DNS = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_PAIRS = ("metadata.annotations", "metadata.labels")
_UNTOLD = ("spec.restartPolicy", "spec.schedulerName", "status.phase")  # known, but not to the pod itself
_SUBSCRIPT = re.compile(r"(?P<field>[^\[]*)\['(?P<key>.*)'\]", re.DOTALL)
MOST = 2**31 - 1


def pod_spec_problems(spec: Json, path: str) -> list[Problem]:
    """Everything that is wrong with a pod spec."""
    return [*_volumes(spec, path), *_containers(spec, path), *_whole(spec, path)]


def _volumes(spec: Json, path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        here, name = f"{path}.volumes[{index}]", volume.get("name") or ""
        yield from named(name, f"{here}.name")
        if name in seen:
            yield Problem(f"{here}.name", f"Duplicate value: {shown(name)}")
        seen.add(name)
        sources = [one for one in sorted(volume, key=_as_declared) if one != "name" and volume[one] is not None]
        for more in sources[1:]:
            yield Problem(f"{here}.{more}", "Forbidden: may not specify more than 1 volume type")
        for kind, word in (("secret", "secretName"), ("configMap", "name")):
            if isinstance(source := volume.get(kind), dict) and sources[0] == kind and not source.get(word):
                yield Problem(f"{here}.{kind}.{word}", "Required value")
        if isinstance(source := volume.get("hostPath"), dict) and not source.get("path"):
            yield Problem(f"{here}.hostPath.path", "Required value")


def _as_declared(kind: str) -> tuple[int, str]:
    """The order in which the real server looks at the sources of a volume."""
    known = ("emptyDir", "hostPath", "secret", "nfs", "persistentVolumeClaim", "downwardAPI", "configMap", "projected")
    return (known.index(kind) if kind in known else len(known), kind)


def _containers(spec: Json, path: str) -> Iterator[Problem]:
    spoiled = {problem.path.split(".volumes[")[1].partition("]")[0] for problem in _volumes(spec, path)}
    volumes = {one.get("name") for index, one in enumerate(spec.get("volumes") or ()) if str(index) not in spoiled}
    names: set[str] = set()
    taken: set[str] = set()
    if not spec.get("containers"):
        yield Problem(f"{path}.containers", "Required value: name at least one container")
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{path}.{group}[{index}]"
            yield from _container(container, where, volumes)
            if context := container.get("securityContext"):
                yield from container_context_problems(context, spec, f"{where}.securityContext")
            if (name := container.get("name")) in names:
                yield Problem(f"{where}.name", f"Duplicate value: {shown(name)}")
            names.add(name or "")
            if group == "containers":
                yield from _host_ports(container, where, taken, spec.get("hostNetwork") is True)


def _host_ports(container: Json, where: str, taken: set[str], shared: bool) -> Iterator[Problem]:
    """Ports of the node: each is of one container, and where the network is the node's they are the same on both."""
    for index, port in enumerate(container.get("ports") or ()):
        here, number = f"{where}.ports[{index}].hostPort", port.get("hostPort")
        if not number:
            continue
        if (one := f"{port.get('protocol')}/{port.get('hostIP') or ''}/{number}") in taken:
            yield Problem(here, f"Duplicate value: {shown(one)}")
        taken.add(one)
        if shared and number != port.get("containerPort"):
            text = f"Invalid value: {number}: must match `containerPort` when `hostNetwork` is true"
            yield Problem(here, text)


def _whole(spec: Json, path: str) -> Iterator[Problem]:
    yield from one_of(spec.get("restartPolicy"), RESTARTS, f"{path}.restartPolicy")
    yield from one_of(spec.get("dnsPolicy"), DNS, f"{path}.dnsPolicy")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline <= MOST:
        text = f"Invalid value: {deadline}: must be between 1 and {MOST}, inclusive"
        yield Problem(f"{path}.activeDeadlineSeconds", text)
    yield from pod_context_problems(spec, path)
    for word in ("hostname", "subdomain"):
        if spec.get(word):
            yield from named(spec[word], f"{path}.{word}")
    for word in ("nodeName", "serviceAccountName", "priorityClassName", "schedulerName"):
        if spec.get(word) and (bad := name_problem(spec[word], "subdomain", f"{path}.{word}")):
            yield bad
    yield from label_problems(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    gates: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        where, name = f"{path}.schedulingGates[{index}]", gate.get("name") or ""
        if not name:
            yield Problem(where, 'Invalid value: "": name part must be non-empty')
            yield Problem(where, f'Invalid value: "": name part {WORD_TEXT}')
        if name in gates:
            yield Problem(where, f"Duplicate value: {shown(name)}")
        gates.add(name)


def _toleration(one: Json, where: str) -> Iterator[Problem]:
    key, operator, value, effect = (one.get(name) or "" for name in ("key", "operator", "value", "effect"))
    if key:
        yield from (Problem(f"{where}.key", f"Invalid value: {shown(key)}: {text}") for text in key_texts(key))
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield Problem(f"{where}.operator", f"Invalid value: {shown(operator)}: {text}")
    if one.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield Problem(f"{where}.effect", f"Invalid value: {shown(effect)}: {text}")
    if operator == "Exists" and value:
        text = "value must be empty when `operator` is 'Exists'"
        yield Problem(f"{where}.operator", f"Invalid value: {shown(value)}: {text}")
    elif operator in ("", "Equal"):
        yield from label_problems({"key": value}, f"{where}.operator")
    yield from one_of(operator or None, ("Equal", "Exists"), f"{where}.operator")
    yield from one_of(effect or None, ("NoSchedule", "PreferNoSchedule", "NoExecute"), f"{where}.effect")


_NOT_NEGATIVE = "must be greater than or equal to 0"


def _container(container: Json, where: str, volumes: set[Any]) -> Iterator[Problem]:
    yield from named(container.get("name") or "", f"{where}.name")
    if not (image := container.get("image")):
        yield Problem(f"{where}.image", "Required value: name the image to run")
    elif image != image.strip():
        yield Problem(f"{where}.image", f"Invalid value: {shown(image)}: must not have leading or trailing whitespace")
    yield from one_of(container.get("imagePullPolicy"), POLICIES, f"{where}.imagePullPolicy")
    yield from one_of(container.get("restartPolicy"), RESTARTS, f"{where}.restartPolicy")
    yield from _ports(container, where)
    yield from _mounts(container, where, volumes)
    yield from _variables(container, where)
    if resources := container.get("resources"):
        yield from resource_problems(resources, f"{where}.resources")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(name), dict):
            yield from _action(probe, f"{where}.{name}")
            for word in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"):
                if (probe.get(word) or 0) < 0:
                    yield Problem(f"{where}.{name}.{word}", f"Invalid value: {probe[word]}: {_NOT_NEGATIVE}")
            if (grace := probe.get("terminationGracePeriodSeconds")) is not None and grace < 1:
                here = f"{where}.{name}.terminationGracePeriodSeconds"
                yield Problem(here, f"Invalid value: {grace}: must be greater than 0")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield from _action(hook, f"{where}.lifecycle.{name}")


def _action(action: Json, where: str) -> Iterator[Problem]:
    """What a probe or a hook does."""
    if isinstance(run := action.get("exec"), dict):
        if not run.get("command"):
            yield Problem(f"{where}.exec.command", "Required value")
    elif isinstance(ask := action.get("httpGet"), dict):
        if not ask.get("path"):
            yield Problem(f"{where}.httpGet.path", "Required value")
        yield from _port(ask.get("port", 0), f"{where}.httpGet.port")
        yield from one_of(ask.get("scheme"), SCHEMES, f"{where}.httpGet.scheme")
    elif isinstance(call := action.get("tcpSocket"), dict):
        yield from _port(call.get("port", 0), f"{where}.tcpSocket.port")
    elif isinstance(call := action.get("grpc"), dict):
        yield from _port(call.get("port", 0), f"{where}.grpc.port")
    elif action.get("sleep") is None:
        yield Problem(where, "Required value: must specify a handler type")


def _port(port: Any, path: str) -> Iterator[Problem]:
    """A number, or the name of one."""
    if isinstance(port, str):
        yield from _port_name(port, path)
    elif not 0 < port < 65536:
        yield Problem(path, f"Invalid value: {port}: must be between 1 and 65535, inclusive")


def _ports(container: Json, where: str) -> Iterator[Problem]:
    names: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        if name := port.get("name"):
            yield from _port_name(name, f"{where}.ports[{index}].name")
            if name in names:
                yield Problem(f"{where}.ports[{index}].name", f"Duplicate value: {shown(name)}")
            names.add(name)
        if number := port.get("containerPort"):
            yield from _port(number, f"{where}.ports[{index}].containerPort")
        else:
            yield Problem(f"{where}.ports[{index}].containerPort", "Required value")
        if number := port.get("hostPort"):
            yield from _port(number, f"{where}.ports[{index}].hostPort")
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{where}.ports[{index}].protocol")


def _port_name(name: str, path: str) -> Iterator[Problem]:
    if len(name) > 15:
        yield Problem(path, f"Invalid value: {shown(name)}: must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        text = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        yield Problem(path, f"Invalid value: {shown(name)}: {text}")
    if not re.search("[a-z]", name):
        yield Problem(path, f"Invalid value: {shown(name)}: must contain at least one letter (a-z)")
    if "--" in name:
        yield Problem(path, f"Invalid value: {shown(name)}: must not contain consecutive hyphens")
    if name[:1] == "-" or name[-1:] == "-":
        yield Problem(path, f"Invalid value: {shown(name)}: must not begin or end with a hyphen")


def _mounts(container: Json, where: str, volumes: set[Any]) -> Iterator[Problem]:
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here, name, path = f"{where}.volumeMounts[{index}]", mount.get("name"), mount.get("mountPath")
        if not name:
            yield Problem(f"{here}.name", "Required value")
        if name not in volumes:
            yield Problem(f"{here}.name", f"Not found: {shown(name or '')}: add it to the pod's volumes")
        if not path:
            yield Problem(f"{here}.mountPath", "Required value")
        if path in paths:
            yield Problem(f"{here}.mountPath", f"Invalid value: {shown(path)}: must be unique")
        paths.add(path or "")


def _variables(container: Json, where: str) -> Iterator[Problem]:
    for index, variable in enumerate(container.get("env") or ()):
        here, name = f"{where}.env[{index}]", variable.get("name")
        if not name:
            yield Problem(f"{here}.name", "Required value")
        elif "=" in name or "\x00" in name:
            text = "must not be empty and must not contain '='"
            yield Problem(f"{here}.name", f"Invalid value: {shown(name)}: {text}")
        if (source := variable.get("valueFrom")) is None:
            continue
        kinds = [one for one in ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef") if source.get(one)]
        if not kinds:
            text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            yield Problem(f"{here}.valueFrom", f"Invalid value: {shown('')}: {text}")
        if variable.get("value"):
            yield Problem(f"{here}.valueFrom", 'Invalid value: "": may not be specified when `value` is not empty')
        if source.get("fieldRef"):
            yield from _field_reference(source["fieldRef"], f"{here}.valueFrom.fieldRef")


def _field_reference(reference: Json, here: str) -> Iterator[Problem]:
    """What a variable may have of its pod: one of the fields, or one label or annotation of them."""
    path, version = reference.get("fieldPath") or "", reference.get("apiVersion")
    one = _SUBSCRIPT.fullmatch(path)
    unknown = ""
    if not path:
        yield Problem(f"{here}.fieldPath", "Required value")
    elif version != "v1":
        unknown = f"unsupported pod version: {version}"
    elif one and one["field"] not in _PAIRS:
        unknown = f"field label does not support subscript: {path}"
    elif one:
        key = one["key"].lower() if one["field"] == "metadata.annotations" else one["key"]
        for text in key_texts(key):
            yield Problem(here, f"Invalid value: {shown(key)}: {text}")
    elif path not in (*FIELDS, *_PAIRS, *_UNTOLD):
        unknown = f"field label not supported: {path}"
    else:
        yield from one_of(path, FIELDS, f"{here}.fieldPath")
    if unknown:
        yield Problem(f"{here}.fieldPath", f"Invalid value: {shown(path)}: error converting fieldPath: {unknown}")


def template_problems(template: Json, path: str) -> list[Problem]:
    meta = template.get("metadata") or {}
    found = label_problems(meta.get("labels") or {}, f"{path}.metadata.labels")
    return found + pod_spec_problems(template.get("spec") or {}, f"{path}.spec")


def named(name: str, path: str) -> list[Problem]:
    """What is wrong with a name that has to be a label."""
    if not name:
        return [Problem(path, "Required value")]
    problem = name_problem(name, "label", path)
    return [problem] if problem else []
