"""What a container may be told of its pod, in variables and in files; and its variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.metadata import name_problem
from trainyard.server.strategies.refusing import config_key, keyed, named, one_of

FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
AMOUNTS = tuple(f"{word}.{name}" for word in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_HUGE = ("limits.hugepages-", "requests.hugepages-")
_OF_CPU = ("1m", "1")
_OF_BYTES = ("1", *(f"1{unit}" for unit in ("k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))
_PAIRS = ("metadata.annotations", "metadata.labels")
_UNTOLD = ("spec.restartPolicy", "spec.schedulerName", "status.phase")  # known, but not to the pod itself
_SUBSCRIPT = re.compile(r"(?P<field>[^\[]*)\['(?P<key>.*)'\]", re.DOTALL)
_PRINTABLE = re.compile(r"[ -<>-~]+")


def variable_problems(container: Json, where: str) -> Iterator[Problem]:
    for index, variable in enumerate(container.get("env") or ()):
        here, name = f"{where}.env[{index}]", variable.get("name")
        if not name:
            yield Problem(f"{here}.name", "Required value")
        elif "=" in name or "\x00" in name:
            text = "must not be empty and must not contain '='"
            yield Problem(f"{here}.name", f"Invalid value: {shown(name)}: {text}")
        if (source := variable.get("valueFrom")) is not None:
            yield from _source(source, bool(variable.get("value")), f"{here}.valueFrom")
    for index, group in enumerate(container.get("envFrom") or ()):
        yield from _group(group, f"{where}.envFrom", index)


def _source(source: Json, has_value: bool, here: str) -> Iterator[Problem]:
    """Where a variable has its value from: one thing."""
    kinds = [one for one in SOURCES if source.get(one) is not None]
    if "fieldRef" in kinds:
        yield from field_problems(source["fieldRef"], FIELDS, f"{here}.fieldRef")
    if "resourceFieldRef" in kinds:
        yield from resource_field_problems(source["resourceFieldRef"], f"{here}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in kinds:
            if bad := name_problem(source[kind].get("name") or "", "subdomain", f"{here}.{kind}.name"):
                yield bad
            if key := source[kind].get("key"):
                yield from config_key(key, f"{here}.{kind}.key")
            else:
                yield Problem(f"{here}.{kind}.key", "Required value")
    if not kinds and source.get("fileKeyRef") is None:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield Problem(here, f'Invalid value: "": {text}')
    if has_value and kinds:
        yield Problem(here, 'Invalid value: "": may not be specified when `value` is not empty')
    elif len(kinds) > 1:
        yield Problem(here, 'Invalid value: "": may not have more than one field specified at a time')


def _group(group: Json, where: str, index: int) -> Iterator[Problem]:
    """All keys of a ConfigMap or a Secret as variables."""
    here, kinds = f"{where}[{index}]", [one for one in ("configMapRef", "secretRef") if group.get(one) is not None]
    if (prefix := group.get("prefix")) and not _PRINTABLE.fullmatch(prefix):
        text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        yield Problem(f"{here}.prefix", f"Invalid value: {shown(prefix)}: {text}")
    for kind in kinds:
        yield from named(group[kind].get("name") or "", f"{here}.{kind}.name", "subdomain")
    if len(kinds) != 1:
        text = "may not have more than one field specified at a time"
        text = text if kinds else "must specify one of: `configMapRef` or `secretRef`"
        yield Problem(where, f'Invalid value: "": {text}')


def field_problems(reference: Json, known: tuple[str, ...], here: str) -> Iterator[Problem]:
    """A field of the pod, or one label or annotation of it. `known`: the fields that may be asked for."""
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
        yield from keyed(one["key"].lower() if one["field"] == "metadata.annotations" else one["key"], here)
    elif path not in (*FIELDS, *_PAIRS, *_UNTOLD):
        unknown = f"field label not supported: {path}"
    else:
        yield from one_of(path, known, f"{here}.fieldPath")
    if unknown:
        yield Problem(f"{here}.fieldPath", f"Invalid value: {shown(path)}: error converting fieldPath: {unknown}")


def resource_field_problems(reference: Json, here: str, *, of_a_file: bool = False) -> Iterator[Problem]:
    """An amount of a container, in units of its divisor."""
    resource, divisor = reference.get("resource") or "", str(reference.get("divisor") or "0")
    if of_a_file and not reference.get("containerName"):
        yield Problem(f"{here}.containerName", "Required value")
    elif not resource:
        yield Problem(f"{here}.resource", "Required value")
    elif not resource.startswith(_HUGE):
        yield from one_of(resource, AMOUNTS, f"{here}.resource")
    units = _OF_CPU if resource.endswith(".cpu") else _OF_BYTES
    if divisor not in ("0", *units) and (resource in AMOUNTS or resource.startswith(_HUGE)):
        what = resource.partition(".")[2].partition("-")[0]
        text = f"only divisor's values {', '.join(units[:-1])} and {units[-1]} are supported with the {what} resource"
        yield Problem(f"{here}.divisor", f"Invalid value: {shown(resource)}: {text}")
