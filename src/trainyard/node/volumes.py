"""Volumes: one function per type, each giving the folder or file on this machine that stands for the volume.

Rules:
- Everything made for a pod is in the pod's own folder, and goes with it. Claims are folders of the cluster's state and
  stay. A hostPath is only made when its type says "OrCreate".
- Written once, when the pod starts: a later edit of a ConfigMap does not reach a running pod. Only service account
  tokens are renewed (tokens.py).
- What can be cured by time is `Missing`; what cannot is `Hopeless`, and fails the pod."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trainyard.node import words
from trainyard.node.hub import beneath
from trainyard.node.pods import Given, Missing, Ref, TokenAsked, containers
from trainyard.objects import Json, namespace_of

_WAITING = "ContainerCreating"  # what the kubelet shows while a volume cannot be set up
_LONGEST_NAME = 255  # bytes of a file's name
_LOOK_AGAIN = 2.0  # seconds between two looks at a path of this machine that is not as the pod wants it


class Hopeless(Exception):
    """The pod asks for what is not offered here, and waiting does not help."""


@dataclass(slots=True)
class Room:
    """Where volumes are made. `rewrite` is applied to the texts of ConfigMaps (the network's NAT by text);
    `say` is told of a path of this machine that is missing.

    `memory` collects folders that should become tmpfs."""

    given: Given
    folder: Path
    claims: Path
    claimed: Mapping[str, Path]
    rewrite: Callable[[str], str]
    say: Callable[[str], object]
    memory: list[str] = field(default_factory=list)

    def make(self, name: str, mode: int = 0o755) -> Path:
        """The folder of that name. Where the pod's containers are started anew, they could have replaced it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        beneath.make_directory(str(self.folder), name, mode)
        return self.folder / name


class Volume(msgspec.Struct, frozen=True):
    """`ours`: in the pod's own folder. `readonly`: whatever the mount says, as for every ConfigMap. `temporary`: what a
    program writes there goes with the pod, and is reported."""

    path: Path
    ours: bool = True
    readonly: bool = False
    temporary: bool = False


def build(volume: Json, room: Room) -> Volume:
    """One volume of a pod's spec."""
    name = _component("volumes: name", volume.get("name"))
    for kind, make in _TYPES.items():
        if isinstance(source := volume.get(kind), dict):
            try:
                return make(name, source, room)
            except Missing as missing:
                text = f'MountVolume.SetUp failed for volume "{name}" : {missing.message}'
                raise Missing(text, missing.ref, _WAITING, missing.again) from None
            except OSError as error:
                raise Hopeless(f'volume "{name}": {error}') from None
    asked = ", ".join(word for word in volume if word != "name") or "nothing"
    offered = ", ".join(_TYPES)
    raise Hopeless(f'volume "{name}": a volume of type {asked} is not available on this node; it offers {offered}')


def _component(field_name: str, value: object) -> str:
    """A name that becomes that of a folder here: one component of a path, whatever the API server let through."""
    name = str(value or "")
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name) > _LONGEST_NAME:
        raise Hopeless(f"{field_name} {name!r} must be the name of an object: without '/', not '.' or '..'")
    return name


def _empty_dir(name: str, source: Json, room: Room) -> Volume:
    folder = room.make(name, 0o777)
    if source.get("medium") == "Memory":
        room.memory.append(str(folder))
    return Volume(folder, temporary=source.get("medium") != "Memory")


def _config_map(name: str, source: Json, room: Room) -> Volume:
    return _files(name, _chosen("configmap", str(source.get("name")), source, room), source, room)


def _secret(name: str, source: Json, room: Room) -> Volume:
    return _files(name, _chosen("secret", str(source.get("secretName")), source, room), source, room)


def _downward(name: str, source: Json, room: Room) -> Volume:
    return _files(name, _facts(source, room), source, room)


def _projected(name: str, source: Json, room: Room) -> Volume:
    found: dict[str, tuple[bytes, int | None]] = {}
    for one in source.get("sources") or []:
        if isinstance(part := one.get("serviceAccountToken"), dict):
            found[str(part.get("path") or "token")] = room.given.token(TokenAsked.of(part)).encode(), None
        for kind in ("configMap", "secret"):
            if isinstance(part := one.get(kind), dict):
                found |= _chosen(kind.lower(), str(part.get("name")), part, room)
        if isinstance(part := one.get("downwardAPI"), dict):
            found |= _facts(part, room)
    return _files(name, found, source, room)


def _claim(name: str, source: Json, room: Room) -> Volume:
    claim = _component("persistentVolumeClaim: claimName", source.get("claimName"))
    if claim in room.claimed:
        folder = room.claimed[claim]
        if not folder.is_dir():
            raise Hopeless(f"--mount {claim}={folder}: there is no such folder; make it or name another")
        return Volume(folder, ours=False, readonly=bool(source.get("readOnly")))
    folder = room.claims / _component("metadata.namespace", namespace_of(room.given.pod)) / claim
    folder.mkdir(parents=True, exist_ok=True)
    return Volume(folder, readonly=bool(source.get("readOnly")))


_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def _host_path(name: str, source: Json, room: Room) -> Volume:
    path, kind = Path(str(source.get("path") or "/")), str(source.get("type") or "")
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(0o644, exist_ok=True)
    elif kind == "" and not path.exists():
        # A runtime would make it as root. Drivers that are not on this machine are the usual case.
        room.say(f"volume {name}: there is no {path} on this machine; the pod gets an empty folder")
        return Volume(room.make(name), temporary=True)
    check, what = _CHECKS.get(kind.removesuffix("OrCreate"), (lambda _: True, ""))
    if not path.exists() or not check(path.stat().st_mode):
        raise Missing(f"hostPath type check failed: {path} is not {what}", None, again=_LOOK_AGAIN)
    return Volume(path, ours=False)


_TYPES: dict[str, Callable[[str, Json, Room], Volume]] = {
    "emptyDir": _empty_dir,
    "configMap": _config_map,
    "secret": _secret,
    "hostPath": _host_path,
    "downwardAPI": _downward,
    "projected": _projected,
    "persistentVolumeClaim": _claim,
}


def _chosen(kind: str, name: str, source: Json, room: Room) -> dict[str, tuple[bytes, int | None]]:
    """The keys that a volume shows: path -> content and mode. All of them without `items`."""
    ref: Ref = (kind, name)
    optional = bool(source.get("optional"))
    pairs = room.given.pairs(ref, optional)
    if kind == "configmap":
        pairs = {key: _rewritten(value, room.rewrite) for key, value in pairs.items()}
    if not (items := source.get("items")):
        return {key: (value, None) for key, value in pairs.items()}
    found: dict[str, tuple[bytes, int | None]] = {}
    for item in items:
        key = str(item.get("key"))
        if key in pairs:
            found[str(item.get("path") or key)] = (pairs[key], item.get("mode"))
        elif not optional:
            raise Missing(f"references non-existent {'config' if kind == 'configmap' else kind} key: {key}", ref)
    return found


def _rewritten(value: bytes, rewrite: Callable[[str], str]) -> bytes:
    try:
        return rewrite(value.decode()).encode()
    except UnicodeDecodeError:
        return value


def _facts(source: Json, room: Room) -> dict[str, tuple[bytes, int | None]]:
    found: dict[str, tuple[bytes, int | None]] = {}
    by_name = {str(one.get("name")): one for one, _ in containers(room.given.pod)}
    for item in source.get("items") or []:
        text: str | None = None
        if reference := item.get("fieldRef"):
            text = words.field(room.given.pod, str(reference.get("fieldPath")))
        elif reference := item.get("resourceFieldRef"):
            owner = by_name.get(str(reference.get("containerName")), {})
            text = words.resource(owner, reference, room.given.capacity)
        if text is None:
            raise Hopeless(f"downwardAPI: the field of {item.get('path')} is not known here")
        found[str(item.get("path"))] = (text.encode(), item.get("mode"))
    return found


def _files(name: str, content: Mapping[str, tuple[bytes, int | None]], source: Json, room: Room) -> Volume:
    folder = room.make(name)
    mode = source.get("defaultMode")
    for path, (value, own_mode) in content.items():
        if os.path.isabs(path) or ".." in path.split("/"):
            raise Hopeless(f'volume "{name}": the path {path} must be relative and without ".."')
        chosen = own_mode if own_mode is not None else mode
        file_mode = int(chosen) if chosen is not None else 0o644
        with os.fdopen(beneath.create_file(str(folder), path, file_mode, folders=0o755), "wb") as file:
            file.write(value)
    return Volume(folder, readonly=True)
