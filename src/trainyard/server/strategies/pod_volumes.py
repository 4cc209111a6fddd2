"""What the real server refuses of the volumes of a pod, and of how its containers mount them.

Only the kinds of volumes that a pod of ours may meet are looked into. Where a path has no index, the real one has none.
The names of claims, ConfigMaps and Secrets are no paths here, for a node makes paths of them; the real server takes any
text, and then finds no such object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import shown
from trainyard.server.quantities import number
from trainyard.server.strategies.pod_fields import field_problems, resource_field_problems
from trainyard.server.strategies.refusing import inside, mode, named, no_way_up, one_of

HOST_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
READ_ONLY = ("Disabled", "Enabled", "IfPossible")
TOLD_TO_FILES = tuple(f"metadata.{name}" for name in ("annotations", "labels", "name", "namespace", "uid"))
_BLOCKS = ("persistentVolumeClaim", "ephemeral")
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 2**32
_TWICE = "conflicting duplicate paths"


def volume_problems(spec: Json, path: str) -> tuple[list[Problem], dict[str, Json]]:
    """The problems, and by name the volumes that have none: only these can be mounted."""
    found: list[Problem] = []
    good: dict[str, Json] = {}
    for index, volume in enumerate(spec.get("volumes") or ()):
        here, name = f"{path}.volumes[{index}]", volume.get("name") or ""
        wrong = [*named(name, f"{here}.name"), *_source(volume, here)]
        if name in good:
            wrong.append(Problem(f"{here}.name", f"Duplicate value: {shown(name)}"))
        if not wrong:
            good[name] = volume
        found += wrong
    return found, good


def _source(volume: Json, here: str) -> Iterator[Problem]:
    kinds = [one for one in sorted(volume, key=_as_declared) if one != "name" and volume[one] is not None]
    for more in kinds[1:]:
        yield Problem(f"{here}.{more}", "Forbidden: may not specify more than 1 volume type")
    if kinds and (look := _LOOKS.get(kinds[0])):
        yield from look(volume[kinds[0]], f"{here}.{kinds[0]}")


def _empty_folder(source: Json, here: str) -> Iterator[Problem]:
    if number(str(source.get("sizeLimit") or "0")) < 0:
        yield Problem(f"{here}.sizeLimit", "Forbidden: SizeLimit field must be a valid resource quantity")


def _host_path(source: Json, here: str) -> Iterator[Problem]:
    if not (file := source.get("path")):
        yield Problem(f"{here}.path", "Required value")
        return
    yield from no_way_up(file, f"{here}.path")
    yield from one_of(source.get("type"), HOST_PATHS, f"{here}.type")


def _share(source: Json, here: str) -> Iterator[Problem]:
    for word in ("server", "path"):
        if not source.get(word):
            yield Problem(f"{here}.{word}", "Required value")
    if not (file := source.get("path") or "").startswith("/"):
        yield Problem(f"{here}.path", f"Invalid value: {shown(file)}: must be an absolute path")


def _claim(source: Json, here: str) -> Iterator[Problem]:
    yield from _object(source.get("claimName") or "", f"{here}.claimName")


def _object(name: str, path: str) -> Iterator[Problem]:
    """The name of an object that is mounted."""
    if not name:
        yield Problem(path, "Required value")
    elif name in (".", "..") or "/" in name or "\0" in name or len(name.encode("utf-8", "replace")) > 253:
        yield Problem(path, f"Invalid value: {encode(name).decode()}: must be the name of an object, not a path")


def _secret(source: Json, here: str) -> Iterator[Problem]:
    yield from _files_of(source, here, "secretName")


def _config_map(source: Json, here: str) -> Iterator[Problem]:
    yield from _files_of(source, here, "name")


def _files_of(source: Json, here: str, name: str) -> Iterator[Problem]:
    """A ConfigMap or a Secret as files."""
    yield from _object(source.get(name) or "", f"{here}.{name}")
    yield from mode(source.get("defaultMode"), f"{here}.defaultMode")
    for index, item in enumerate(source.get("items") or ()):
        where = f"{here}.items[{index}]"
        if not item.get("key"):
            yield Problem(f"{where}.key", "Required value")
        yield from _own_file(item.get("path"), where)
        yield from mode(item.get("mode"), f"{where}.mode")


def _own_file(file: str | None, where: str) -> Iterator[Problem]:
    """Names that begin with two dots are the kubelet's."""
    if not file:
        yield Problem(f"{where}.path", "Required value")
        return
    yield from inside(file, f"{where}.path")
    if file.startswith("..") and not file.startswith("../"):
        yield Problem(f"{where}.path", f"Invalid value: {shown(file)}: must not start with '..'")


def _about_the_pod(source: Json, here: str) -> Iterator[Problem]:
    yield from mode(source.get("defaultMode"), f"{here}.defaultMode")
    for item in source.get("items") or ():
        yield from _file_about_the_pod(item, here)


def _file_about_the_pod(item: Json, here: str) -> Iterator[Problem]:
    yield from _own_file(item.get("path"), here)
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_problems(field, TOLD_TO_FILES, f"{here}.fieldRef")
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield Problem(here, f'Invalid value: "resource": {text}')
    elif resource is not None:
        yield from resource_field_problems(resource, f"{here}.resourceFieldRef", of_a_file=True)
    else:
        yield Problem(here, "Required value: one of fieldRef and resourceFieldRef is required")
    yield from mode(item.get("mode"), f"{here}.mode")


def _projected(source: Json, here: str) -> Iterator[Problem]:
    yield from mode(source.get("defaultMode"), f"{here}.defaultMode")
    files: set[str] = set()
    for index, one in enumerate(source.get("sources") or ()):
        where = f"{here}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (part := one.get(kind)) is not None:
                yield from _files_of(part, f"{where}.{kind}", "name")
                yield from _twice(part, part.get("name") or "", files, here)
        if (part := one.get("downwardAPI")) is not None:
            for item in part.get("items") or ():
                yield from _file_about_the_pod(item, f"{where}.downwardAPI")
            yield from _twice(part, "downwardAPI", files, here)
        if (part := one.get("serviceAccountToken")) is not None:
            yield from _token(part, f"{where}.serviceAccountToken")
            yield from _own_file(part.get("path"), here)
        if sum(part is not None for part in one.values()) > 1:
            yield Problem(where, "Forbidden: may not specify more than 1 volume type per source")


def _token(part: Json, where: str) -> Iterator[Problem]:
    seconds = part.get("expirationSeconds")
    why = "may not specify a duration less than 10 minutes" if (seconds or _SHORTEST_TOKEN) < _SHORTEST_TOKEN else ""
    why = why or ("may not specify a duration larger than 2^32 seconds" if (seconds or 0) > _LONGEST_TOKEN else "")
    if why:
        yield Problem(f"{where}.expirationSeconds", f"Invalid value: {seconds}: {why}")


def _twice(part: Json, told: str, files: set[str], here: str) -> Iterator[Problem]:
    for item in part.get("items") or ():
        if (file := item.get("path") or "") in files:
            yield Problem(here, f"Invalid value: {shown(told)}: {_TWICE}")
        elif file:
            files.add(file)


_LOOKS: dict[str, Callable[[Json, str], Iterator[Problem]]] = {
    "emptyDir": _empty_folder,
    "hostPath": _host_path,
    "secret": _secret,
    "nfs": _share,
    "persistentVolumeClaim": _claim,
    "downwardAPI": _about_the_pod,
    "configMap": _config_map,
    "projected": _projected,
}
_ORDER = tuple(_LOOKS)


def _as_declared(kind: str) -> tuple[int, str]:
    """The order in which the real server looks at the sources of a volume."""
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind)


def mount_problems(container: Json, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    """What is mounted as a folder and what is given as a device."""
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    yield from _mounts(container, mounts, f"{where}.volumeMounts", volumes)
    if devices:
        yield from _devices(devices, f"{where}.volumeDevices", volumes)
        for own, others, path, word in (
            (mounts, devices, ("mountPath", "devicePath"), ("volumeMounts", "volumeDevices")),
            (devices, mounts, ("devicePath", "mountPath"), ("volumeDevices", "volumeMounts")),
        ):
            yield from _shared(own, others, path, (f"{where}.{word[0]}", word[1]))


def _mounts(container: Json, mounts: Any, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        here, path = f"{where}[{index}]", mount.get("mountPath")
        yield from _volume_named(mount, here, volumes)
        if not path:
            yield Problem(f"{here}.mountPath", "Required value")
        if path in paths:
            yield Problem(f"{here}.mountPath", f"Invalid value: {shown(path)}: must be unique")
        paths.add(path or "")
        yield from inside(mount.get("subPath") or "", f"{where}.subPath")
        if words := mount.get("subPathExpr"):
            if mount.get("subPath"):
                text = "subPathExpr and subPath are mutually exclusive"
                yield Problem(f"{here}.subPathExpr", f"Invalid value: {shown(words)}: {text}")
            yield from inside(words, f"{where}.subPathExpr")
        yield from _spreads(mount, container, where)


def _volume_named(mount: Json, here: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    name = mount.get("name") or ""
    if not name:
        yield Problem(f"{here}.name", "Required value")
    if name not in volumes:
        yield Problem(f"{here}.name", f"Not found: {shown(name)}: add it to the pod's volumes")


def _spreads(mount: Json, container: Json, where: str) -> Iterator[Problem]:
    """How far mounts within a mount are seen, and whether they can be written."""
    spreads, read_only = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    yield from one_of(spreads, PROPAGATIONS, f"{where}.mountPropagation")
    if spreads == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        text = "Bidirectional mount propagation is available only to privileged containers"
        yield Problem(f"{where}.mountPropagation", f"Forbidden: {text}")
    yield from one_of(read_only, READ_ONLY, f"{where}.recursiveReadOnly")
    if read_only in READ_ONLY[1:]:
        if not mount.get("readOnly"):
            yield Problem(f"{where}.recursiveReadOnly", "Forbidden: may only be specified when readOnly is true")
        if spreads not in (None, "None"):
            text = "may only be specified when mountPropagation is None or not specified"
            yield Problem(f"{where}.recursiveReadOnly", f"Forbidden: {text}")


def _devices(devices: Any, where: str, volumes: dict[str, Json]) -> Iterator[Problem]:
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        here, name, path = f"{where}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        yield from _volume_named(device, here, volumes)
        if name in names:
            yield Problem(f"{here}.name", f"Invalid value: {shown(name)}: must be unique")
        if name in volumes and not any(volumes[name].get(kind) is not None for kind in _BLOCKS):
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield Problem(f"{here}.name", f"Invalid value: {shown(name)}: {text}")
        if not path:
            yield Problem(f"{here}.devicePath", "Required value")
        if path in paths:
            yield Problem(f"{here}.devicePath", f"Invalid value: {shown(path)}: must be unique")
        if ".." in path.split("/"):
            yield Problem(f"{here}.devicePath", f"Invalid value: {shown(path)}: can not contain backsteps ('..')")
        names.add(name)
        paths.add(path)


def _shared(own: Any, others: Any, path: tuple[str, str], place: tuple[str, str]) -> Iterator[Problem]:
    """A volume is a folder or a device, and so is a path."""
    names, paths = {one.get("name") or "" for one in others}, {one.get(path[1]) or "" for one in others}
    for index, one in enumerate(own):
        here, name, file = f"{place[0]}[{index}]", one.get("name") or "", one.get(path[0]) or ""
        if name in names:
            yield Problem(f"{here}.name", f"Invalid value: {shown(name)}: must not already exist in {place[1]}")
        if file in paths:
            text = f"must not already exist as a path in {place[1]}"
            yield Problem(f"{here}.{path[0]}", f"Invalid value: {shown(file)}: {text}")
