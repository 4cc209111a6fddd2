"""Validation of the volumes of a pod, and of the mounts and devices of its containers.

Only the volume types that pods of Trainyard use have rules beyond their type. A path without an index has none in
kube-apiserver, either. Names of claims, ConfigMaps and Secrets must not be paths, because the node uses them as file
names; kube-apiserver accepts any text, and the pod then refers to an object that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainyard.api_types.pod_fields import field_problems, resource_field_problems
from trainyard.api_types.validators import (
    validate_enum,
    validate_file_mode,
    validate_local_path,
    validate_name,
    validate_no_backsteps,
)
from trainyard.objects import Json, Problem, encode
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text

READ_ONLY = ("Disabled", "Enabled", "IfPossible")
VOLUME_FIELD_PATHS = tuple(f"metadata.{name}" for name in ("annotations", "labels", "name", "namespace", "uid"))
_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")
_MIN_TOKEN_SECONDS, _MAX_TOKEN_SECONDS = 600, 2**32
_CONFLICTING_PATHS = "conflicting duplicate paths"


def volume_problems(spec: Json, path: str) -> tuple[list[Problem], dict[str, Json]]:
    """(problems, {name: volume} of the valid volumes). Only valid volumes can be mounted."""
    problems: list[Problem] = []
    valid: dict[str, Json] = {}
    for index, volume in enumerate(spec.get("volumes") or ()):
        here, name = f"{path}.volumes[{index}]", volume.get("name") or ""
        volume_errors = [*validate_name(name, f"{here}.name"), *_volume_source(volume, here)]
        if name in valid:
            volume_errors.append(Problem(f"{here}.name", f"Duplicate value: {json_text(name)}"))
        if name and not volume_errors:
            valid[name] = volume
        problems += volume_errors
    return problems, valid


def _volume_source(volume: Json, here: str) -> Iterator[Problem]:
    kinds = [kind for kind in sorted(volume, key=_source_order) if kind != "name" and volume[kind] is not None]
    for extra in kinds[1:]:
        yield Problem(f"{here}.{extra}", "Forbidden: may not specify more than 1 volume type")
    if kinds and (validate := _VALIDATORS.get(kinds[0])):
        yield from validate(volume[kinds[0]], f"{here}.{kinds[0]}")


def _empty_dir(source: Json, here: str) -> Iterator[Problem]:
    if number(str(source.get("sizeLimit") or "0")) < 0:
        yield Problem(f"{here}.sizeLimit", "Forbidden: SizeLimit field must be a valid resource quantity")


def _host_path(source: Json, here: str) -> Iterator[Problem]:
    yield from validate_no_backsteps(source.get("path") or "", f"{here}.path")


def _nfs(source: Json, here: str) -> Iterator[Problem]:
    if not (file := source.get("path") or "").startswith("/"):
        yield Problem(f"{here}.path", f"Invalid value: {json_text(file)}: must be an absolute path")


def _persistent_volume_claim(source: Json, here: str) -> Iterator[Problem]:
    yield from _object_name(source.get("claimName") or "", f"{here}.claimName")


def _object_name(name: str, path: str) -> Iterator[Problem]:
    """Problems of the name of a mounted object."""
    if not name:
        yield Problem(path, "Required value")
    elif name in (".", "..") or "/" in name or "\0" in name or len(name.encode("utf-8", "replace")) > 253:
        yield Problem(path, f"Invalid value: {encode(name).decode()}: must be the name of an object, not a path")


def _secret(source: Json, here: str) -> Iterator[Problem]:
    yield from _keys_as_files(source, here, "secretName")


def _config_map(source: Json, here: str) -> Iterator[Problem]:
    yield from _keys_as_files(source, here, "name")


def _keys_as_files(source: Json, here: str, name: str) -> Iterator[Problem]:
    """Problems of a volume with keys of a ConfigMap or a Secret as files. `name`: the field with the object's name."""
    yield from _object_name(source.get(name) or "", f"{here}.{name}")
    yield from validate_file_mode(source.get("defaultMode"), f"{here}.defaultMode")
    for index, item in enumerate(source.get("items") or ()):
        where = f"{here}.items[{index}]"
        yield from _file_path(item.get("path"), where)
        yield from validate_file_mode(item.get("mode"), f"{where}.mode")


def _file_path(file: str | None, where: str) -> Iterator[Problem]:
    """Problems of a file path in a volume. Names that begin with two dots are reserved for the kubelet."""
    if not file:
        return
    yield from validate_local_path(file, f"{where}.path")
    if file.startswith("..") and not file.startswith("../"):
        yield Problem(f"{where}.path", f"Invalid value: {json_text(file)}: must not start with '..'")


def _downward_api(source: Json, here: str) -> Iterator[Problem]:
    yield from validate_file_mode(source.get("defaultMode"), f"{here}.defaultMode")
    for item in source.get("items") or ():
        yield from _downward_api_file(item, here)


def _downward_api_file(item: Json, here: str) -> Iterator[Problem]:
    yield from _file_path(item.get("path"), here)
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_problems(field, VOLUME_FIELD_PATHS, f"{here}.fieldRef")
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield Problem(here, f'Invalid value: "resource": {text}')
    elif resource is not None:
        yield from resource_field_problems(resource, f"{here}.resourceFieldRef", in_file=True)
    else:
        yield Problem(here, "Required value: one of fieldRef and resourceFieldRef is required")
    yield from validate_file_mode(item.get("mode"), f"{here}.mode")


def _projected(source: Json, here: str) -> Iterator[Problem]:
    yield from validate_file_mode(source.get("defaultMode"), f"{here}.defaultMode")
    files: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        where = f"{here}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (volume_source := projection.get(kind)) is not None:
                yield from _keys_as_files(volume_source, f"{where}.{kind}", "name")
                yield from _conflicting_paths(volume_source, volume_source.get("name") or "", files, here)
        if (volume_source := projection.get("downwardAPI")) is not None:
            for item in volume_source.get("items") or ():
                yield from _downward_api_file(item, f"{where}.downwardAPI")
            yield from _conflicting_paths(volume_source, "downwardAPI", files, here)
        if (volume_source := projection.get("serviceAccountToken")) is not None:
            yield from _token_lifetime(volume_source, f"{where}.serviceAccountToken")
            yield from _file_path(volume_source.get("path"), here)
        if sum(volume_source is not None for volume_source in projection.values()) > 1:
            yield Problem(where, "Forbidden: may not specify more than 1 volume type per source")


def _token_lifetime(token: Json, where: str) -> Iterator[Problem]:
    seconds = token.get("expirationSeconds")
    text = (
        "may not specify a duration less than 10 minutes"
        if (seconds or _MIN_TOKEN_SECONDS) < _MIN_TOKEN_SECONDS
        else ""
    )
    text = text or (
        "may not specify a duration larger than 2^32 seconds" if (seconds or 0) > _MAX_TOKEN_SECONDS else ""
    )
    if text:
        yield Problem(f"{where}.expirationSeconds", f"Invalid value: {seconds}: {text}")


def _conflicting_paths(source: Json, source_name: str, files: set[str], here: str) -> Iterator[Problem]:
    for item in source.get("items") or ():
        if (file := item.get("path") or "") in files:
            yield Problem(here, f"Invalid value: {json_text(source_name)}: {_CONFLICTING_PATHS}")
        elif file:
            files.add(file)


_VALIDATORS: dict[str, Callable[[Json, str], Iterator[Problem]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "secret": _secret,
    "nfs": _nfs,
    "persistentVolumeClaim": _persistent_volume_claim,
    "downwardAPI": _downward_api,
    "configMap": _config_map,
    "projected": _projected,
}
_ORDER = tuple(_VALIDATORS)


def _source_order(kind: str) -> tuple[int, str]:
    """Sort key: the order in which kube-apiserver validates the sources of a volume."""
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind)


def mount_problems(container: Json, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    """Problems of a container's volumeMounts and volumeDevices."""
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    yield from _mounts(container, mounts, f"{where}.volumeMounts", volumes)
    if devices:
        yield from _devices(devices, f"{where}.volumeDevices", volumes)
        for items, other_items, path_fields, fields in (
            (mounts, devices, ("mountPath", "devicePath"), ("volumeMounts", "volumeDevices")),
            (devices, mounts, ("devicePath", "mountPath"), ("volumeDevices", "volumeMounts")),
        ):
            yield from _mounted_and_device(items, other_items, path_fields, (f"{where}.{fields[0]}", fields[1]))


def _mounts(container: Json, mounts: Any, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        here, path = f"{where}[{index}]", mount.get("mountPath")
        yield from _volume_reference(mount, here, volumes)
        if path in paths:
            yield Problem(f"{here}.mountPath", f"Invalid value: {json_text(path)}: must be unique")
        paths.add(path or "")
        yield from validate_local_path(mount.get("subPath") or "", f"{where}.subPath")
        if expression := mount.get("subPathExpr"):
            if mount.get("subPath"):
                text = "subPathExpr and subPath are mutually exclusive"
                yield Problem(f"{here}.subPathExpr", f"Invalid value: {json_text(expression)}: {text}")
            yield from validate_local_path(expression, f"{where}.subPathExpr")
        yield from _mount_propagation(mount, container, where)


def _volume_reference(mount: Json, here: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    name = mount.get("name") or ""
    if name not in volumes:
        yield Problem(f"{here}.name", f"Not found: {json_text(name)}: add it to the pod's volumes")


def _mount_propagation(mount: Json, container: Json, where: str) -> Iterator[Problem]:
    """Problems of `mountPropagation` and `recursiveReadOnly`."""
    propagation, read_only = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        text = "Bidirectional mount propagation is available only to privileged containers"
        yield Problem(f"{where}.mountPropagation", f"Forbidden: {text}")
    yield from validate_enum(read_only, READ_ONLY, f"{where}.recursiveReadOnly")
    if read_only in READ_ONLY[1:]:
        if not mount.get("readOnly"):
            yield Problem(f"{where}.recursiveReadOnly", "Forbidden: may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            text = "may only be specified when mountPropagation is None or not specified"
            yield Problem(f"{where}.recursiveReadOnly", f"Forbidden: {text}")


def _devices(devices: Any, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        here, name, path = f"{where}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        yield from _volume_reference(device, here, volumes)
        if name in names:
            yield Problem(f"{here}.name", f"Invalid value: {json_text(name)}: must be unique")
        if name in volumes and not any(volumes[name].get(kind) is not None for kind in _BLOCK_SOURCES):
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield Problem(f"{here}.name", f"Invalid value: {json_text(name)}: {text}")
        if path in paths:
            yield Problem(f"{here}.devicePath", f"Invalid value: {json_text(path)}: must be unique")
        if ".." in path.split("/"):
            yield Problem(f"{here}.devicePath", f"Invalid value: {json_text(path)}: can not contain backsteps ('..')")
        names.add(name)
        paths.add(path)


def _mounted_and_device(
    items: Any, other_items: Any, path_fields: tuple[str, str], item_fields: tuple[str, str]
) -> Iterator[Problem]:
    """Problems of volumes and paths that are used both as a mount and as a device."""
    names = {item.get("name") or "" for item in other_items}
    paths = {item.get(path_fields[1]) or "" for item in other_items}
    for index, item in enumerate(items):
        here, name, file = f"{item_fields[0]}[{index}]", item.get("name") or "", item.get(path_fields[0]) or ""
        if name in names:
            yield Problem(
                f"{here}.name", f"Invalid value: {json_text(name)}: must not already exist in {item_fields[1]}"
            )
        if file in paths:
            text = f"must not already exist as a path in {item_fields[1]}"
            yield Problem(f"{here}.{path_fields[0]}", f"Invalid value: {json_text(file)}: {text}")
