"""Validation of environment variables, and of the downward API in variables and files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.api_types.names import name_problem
from trainyard.api_types.validators import (
    validate_config_key,
    validate_enum,
    validate_name,
    validate_qualified_name,
)
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text

FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
CONTAINER_RESOURCES = tuple(
    f"{word}.{name}" for word in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_HUGEPAGES = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS = ("1m", "1")
_BYTE_DIVISORS = ("1", *(f"1{unit}" for unit in ("k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))
_SUBSCRIPTABLE = ("metadata.annotations", "metadata.labels")
# Valid field labels that the downward API does not support.
_FIELD_LABELS = ("spec.restartPolicy", "spec.schedulerName", "status.phase")
_SUBSCRIPT = re.compile(r"(?P<field>[^\[]*)\['(?P<key>.*)'\]", re.DOTALL)
_PRINTABLE = re.compile(r"[ -<>-~]+")


def variable_problems(container: Json, where: str) -> Iterator[Problem]:
    """The problems of `env` and `envFrom` of a container at the path `where`."""
    for index, variable in enumerate(container.get("env") or ()):
        here, name = f"{where}.env[{index}]", variable.get("name")
        if name and ("=" in name or "\x00" in name):
            text = "must not be empty and must not contain '='"
            yield Problem(f"{here}.name", f"Invalid value: {json_text(name)}: {text}")
        if (source := variable.get("valueFrom")) is not None:
            yield from _value_from(source, bool(variable.get("value")), f"{here}.valueFrom")
    for index, group in enumerate(container.get("envFrom") or ()):
        yield from _env_from(group, f"{where}.envFrom", index)


def _value_from(source: Json, has_value: bool, here: str) -> Iterator[Problem]:
    """Problems of a variable's `valueFrom`, which must have exactly one source."""
    kinds = [kind for kind in SOURCES if source.get(kind) is not None]
    if "fieldRef" in kinds:
        yield from field_problems(source["fieldRef"], FIELDS, f"{here}.fieldRef")
    if "resourceFieldRef" in kinds:
        yield from resource_field_problems(source["resourceFieldRef"], f"{here}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in kinds:
            if problem := name_problem(source[kind].get("name") or "", "subdomain", f"{here}.{kind}.name"):
                yield problem
            if key := source[kind].get("key"):
                yield from validate_config_key(key, f"{here}.{kind}.key")
    if not kinds and source.get("fileKeyRef") is None:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield Problem(here, f'Invalid value: "": {text}')
    if has_value and kinds:
        yield Problem(here, 'Invalid value: "": may not be specified when `value` is not empty')
    elif len(kinds) > 1:
        yield Problem(here, 'Invalid value: "": may not have more than one field specified at a time')


def _env_from(group: Json, where: str, index: int) -> Iterator[Problem]:
    """Problems of an item of `envFrom`: all keys of a ConfigMap or a Secret as variables."""
    here, kinds = f"{where}[{index}]", [kind for kind in ("configMapRef", "secretRef") if group.get(kind) is not None]
    if (prefix := group.get("prefix")) and not _PRINTABLE.fullmatch(prefix):
        text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        yield Problem(f"{here}.prefix", f"Invalid value: {json_text(prefix)}: {text}")
    for kind in kinds:
        if not (name := group[kind].get("name") or ""):
            yield Problem(f"{here}.{kind}.name", "Required value")
        yield from validate_name(name, f"{here}.{kind}.name", "subdomain")
    if len(kinds) != 1:
        text = "may not have more than one field specified at a time"
        text = text if kinds else "must specify one of: `configMapRef` or `secretRef`"
        yield Problem(where, f'Invalid value: "": {text}')


def field_problems(reference: Json, supported: tuple[str, ...], here: str) -> Iterator[Problem]:
    """Problems of a `fieldRef`: a field of the pod, or one of its labels or annotations. `supported`: the supported
    fields."""
    path, version = reference.get("fieldPath") or "", reference.get("apiVersion")
    subscript = _SUBSCRIPT.fullmatch(path)
    text = ""
    if not path:
        return
    if version != "v1":
        text = f"unsupported pod version: {version}"
    elif subscript and subscript["field"] not in _SUBSCRIPTABLE:
        text = f"field label does not support subscript: {path}"
    elif subscript:
        yield from validate_qualified_name(
            subscript["key"].lower() if subscript["field"] == "metadata.annotations" else subscript["key"], here
        )
    elif path not in (*FIELDS, *_SUBSCRIPTABLE, *_FIELD_LABELS):
        text = f"field label not supported: {path}"
    else:
        yield from validate_enum(path, supported, f"{here}.fieldPath")
    if text:
        yield Problem(f"{here}.fieldPath", f"Invalid value: {json_text(path)}: error converting fieldPath: {text}")


def resource_field_problems(reference: Json, here: str, *, in_file: bool = False) -> Iterator[Problem]:
    """Problems of a `resourceFieldRef`: a limit or request of a container, in units of the divisor."""
    resource, divisor = reference.get("resource") or "", str(reference.get("divisor") or "0")
    if in_file and not reference.get("containerName"):
        yield Problem(f"{here}.containerName", "Required value")
    elif resource and not resource.startswith(_HUGEPAGES):
        yield from validate_enum(resource, CONTAINER_RESOURCES, f"{here}.resource")
    units = _CPU_DIVISORS if resource.endswith(".cpu") else _BYTE_DIVISORS
    if divisor not in ("0", *units) and (resource in CONTAINER_RESOURCES or resource.startswith(_HUGEPAGES)):
        name = resource.partition(".")[2].partition("-")[0]
        text = f"only divisor's values {', '.join(units[:-1])} and {units[-1]} are supported with the {name} resource"
        yield Problem(f"{here}.divisor", f"Invalid value: {json_text(resource)}: {text}")
