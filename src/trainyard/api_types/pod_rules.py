"""Cross-field rules of pod specs, in pods and pod templates, after decoding and defaulting.

Types, required fields and enumerations are those of types.txt. Paths and the first words of messages are those of
kube-apiserver. Parts of a pod spec have modules of their own: pod_volumes, pod_fields (variables), pod_probes,
pod_resources, pod_security, pod_scheduling.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.api_types.names import annotation_problems, label_problems
from trainyard.api_types.pod_fields import variable_problems
from trainyard.api_types.pod_probes import forbidden_problems, port_name_problems, port_problems, probe_problems
from trainyard.api_types.pod_resources import resource_problems
from trainyard.api_types.pod_scheduling import placement_problems
from trainyard.api_types.pod_security import container_context_problems, pod_context_problems
from trainyard.api_types.pod_volumes import mount_problems, volume_problems
from trainyard.api_types.validators import (
    MAX_INT32,
    too_many,
    validate_enum,
    validate_ip,
    validate_max_items,
    validate_name,
)
from trainyard.objects import Json, Problem
from trainyard.objects.patterns import lazy_pattern
from trainyard.schema.checks import json_text

RESTARTS = ("Always", "OnFailure", "Never")
RESTART_ACTIONS = ("Restart", "RestartAllContainers")
MOST_RESTART_RULES, MOST_EXIT_CODES = 20, 255
MAX_HOSTNAME_BYTES = 64  # bytes of a host name on Linux
MOST_NAMESERVERS, MOST_SEARCHES, LONGEST_SEARCHES = 3, 32, 2048
_SEARCH = lazy_pattern(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_SEARCH_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com')"
)
# Field of the pod spec -> the field as kube-apiserver spells it in its messages.
_HOST_NAMESPACES = {"hostNetwork": "hostNetwork", "hostPID": "HostPID", "hostIPC": "HostIPC"}


def template_problems(template: Json, path: str) -> list[Problem]:
    """The problems of a pod template at `path`."""
    meta = template.get("metadata") or {}
    problems = label_problems(meta.get("labels") or {}, f"{path}.labels")  # kube-apiserver's path
    problems += annotation_problems(meta.get("annotations") or {}, f"{path}.annotations")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        text = "Forbidden: ephemeral containers not allowed in pod template"
        problems.append(Problem(f"{path}.spec.ephemeralContainers", text))
    return problems + pod_spec_problems(template.get("spec") or {}, f"{path}.spec")


def pod_spec_problems(spec: Json, path: str) -> list[Problem]:
    """All problems of a pod spec."""
    problems, volumes = volume_problems(spec, path)
    return [*problems, *_containers(spec, path, volumes), *_spec_fields(spec, path)]


def _containers(spec: Json, path: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    names: set[str] = set()
    used_host_ports: set[str] = set()
    grace = spec.get("terminationGracePeriodSeconds") or 0
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{path}.{group}[{index}]"
            yield from _container(container, where, volumes)
            if group == "containers" or container.get("restartPolicy") == "Always":
                yield from probe_problems(container, where, grace)
            else:
                yield from forbidden_problems(container, where)
            if context := container.get("securityContext"):
                yield from container_context_problems(context, spec, f"{where}.securityContext")
            if (name := container.get("name")) in names:
                yield Problem(f"{where}.name", f"Duplicate value: {json_text(name)}")
            names.add(name or "")
            if group == "containers":
                yield from _host_ports(container, where, used_host_ports, spec.get("hostNetwork") is True)


def _host_ports(container: Json, where: str, used: set[str], host_network: bool) -> Iterator[Problem]:
    """Problems of host ports: each is used once, and with hostNetwork it equals the container port."""
    for index, port in enumerate(container.get("ports") or ()):
        here, number = f"{where}.ports[{index}].hostPort", port.get("hostPort")
        if not number:
            continue
        if (host_port := f"{port.get('protocol')}/{port.get('hostIP') or ''}/{number}") in used:
            yield Problem(here, f"Duplicate value: {json_text(host_port)}")
        used.add(host_port)
        if host_network and number != port.get("containerPort"):
            text = f"Invalid value: {number}: must match `containerPort` when `hostNetwork` is true"
            yield Problem(here, text)


def _container(container: Json, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    yield from validate_name(container.get("name") or "", f"{where}.name")
    if not (image := container.get("image")):
        yield Problem(f"{where}.image", "Required value: name the image to run")
    elif image != image.strip():
        yield Problem(
            f"{where}.image", f"Invalid value: {json_text(image)}: must not have leading or trailing whitespace"
        )
    yield from validate_enum(container.get("restartPolicy"), RESTARTS, f"{where}.restartPolicy")
    yield from _restart_rules(container, where)
    yield from _ports(container, where)
    yield from mount_problems(container, where, volumes)
    yield from variable_problems(container, where)
    if resources := container.get("resources"):
        yield from resource_problems(resources, f"{where}.resources")


def _restart_rules(container: Json, where: str) -> Iterator[Problem]:
    rules, path = container.get("restartPolicyRules") or [], f"{where}.restartPolicyRules"
    if rules and not container.get("restartPolicy"):
        yield Problem(f"{where}.restartPolicy", "Required value: must be set beside restartPolicyRules")
    if len(rules) > MOST_RESTART_RULES:
        yield too_many(rules, MOST_RESTART_RULES, path)
    for index, rule in enumerate(rules):
        yield from validate_enum(rule.get("action") or "", RESTART_ACTIONS, f"{path}[{index}].action")
        if not (exit_codes := rule.get("exitCodes")):
            yield Problem(f"{path}[{index}].exitCodes", "Required value: must be specified")
            continue
        yield from validate_enum(
            exit_codes.get("operator") or "", ("In", "NotIn"), f"{path}[{index}].exitCodes.operator"
        )
        if len(values := exit_codes.get("values") or ()) > MOST_EXIT_CODES:
            yield too_many(values, MOST_EXIT_CODES, f"{path}[{index}].exitCodes.values")


def _ports(container: Json, where: str) -> Iterator[Problem]:
    names: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        if name := port.get("name"):
            yield from port_name_problems(name, f"{where}.ports[{index}].name")
            if name in names:
                yield Problem(f"{where}.ports[{index}].name", f"Duplicate value: {json_text(name)}")
            names.add(name)
        if number := port.get("containerPort"):
            yield from port_problems(number, f"{where}.ports[{index}].containerPort")
        else:
            yield Problem(f"{where}.ports[{index}].containerPort", "Required value")
        if number := port.get("hostPort"):
            yield from port_problems(number, f"{where}.ports[{index}].hostPort")


def _spec_fields(spec: Json, path: str) -> Iterator[Problem]:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline <= MAX_INT32:
        text = f"Invalid value: {deadline}: must be between 1 and {MAX_INT32}, inclusive"
        yield Problem(f"{path}.activeDeadlineSeconds", text)
    yield from pod_context_problems(spec, path)
    for field in ("hostname", "subdomain"):
        yield from validate_name(spec.get(field) or "", f"{path}.{field}")
    for field in ("nodeName", "serviceAccountName", "priorityClassName", "schedulerName", "hostnameOverride"):
        yield from validate_name(spec.get(field) or "", f"{path}.{field}", "subdomain")
    yield from validate_enum((spec.get("os") or {}).get("name") or None, ("linux", "windows"), f"{path}.os")
    if spec.get("hostUsers") is False:
        for field, spelling in _HOST_NAMESPACES.items():
            if spec.get(field):
                yield Problem(f"{path}.{spelling}", "Forbidden: when `hostUsers` is false")
    yield from _hostnames_and_dns(spec, path)
    yield from placement_problems(spec, path)


def _hostnames_and_dns(spec: Json, path: str) -> Iterator[Problem]:
    if hostname_override := spec.get("hostnameOverride"):
        for field in ("hostNetwork", "setHostnameAsFQDN"):
            if spec.get(field):
                yield Problem(f"{path}.hostnameOverride", f"Forbidden: may not be specified when {field} is true")
        if len(hostname_override) > MAX_HOSTNAME_BYTES:
            text = f"Too long: may not be more than {MAX_HOSTNAME_BYTES} bytes"
            yield Problem(f"{path}.hostnameOverride", text)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        where = f"{path}.hostAliases[{index}]"
        yield from validate_ip(alias.get("ip") or "", f"{where}.ip")
        for name_index, name in enumerate(alias.get("hostnames") or ()):
            yield from validate_name(name, f"{where}.hostnames[{name_index}]", "subdomain")
    policy, config, where = spec.get("dnsPolicy"), spec.get("dnsConfig"), f"{path}.dnsConfig"
    if policy == "None" and config is None:
        yield Problem(where, "Required value: must provide `dnsConfig` when `dnsPolicy` is None")
    if config is not None:
        yield from _dns(config, policy, where)


def _dns(config: Json, policy: str | None, where: str) -> Iterator[Problem]:
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if policy == "None" and not servers:
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield Problem(f"{where}.nameservers", f"Required value: {text}")
    yield from validate_max_items(servers, MOST_NAMESERVERS, "nameservers", f"{where}.nameservers")
    for index, server in enumerate(servers):
        yield from validate_ip(server, f"{where}.nameservers[{index}]")
    yield from validate_max_items(searches, MOST_SEARCHES, "search paths", f"{where}.searches")
    if len(" ".join(searches)) > LONGEST_SEARCHES:
        text = f"must not have more than {LONGEST_SEARCHES} characters (including spaces) in the search list"
        yield Problem(f"{where}.searches", f"Invalid value: {json_text(searches)}: {text}")
    for index, search in enumerate(searches):
        name = search.removesuffix(".")
        if len(name) > 253:
            text = "must be no more than 253 characters"
            yield Problem(f"{where}.searches[{index}]", f"Invalid value: {json_text(search)}: {text}")
        elif search != "." and not _SEARCH.fullmatch(name):
            yield Problem(f"{where}.searches[{index}]", f"Invalid value: {json_text(search)}: {_SEARCH_TEXT}")
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield Problem(f"{where}.options[{index}]", "Required value: must not be empty")
