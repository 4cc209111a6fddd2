"""Volumes: one function per volume type, which returns the folder or file of the volume on this machine.

Rules:
- Everything created for a pod is in the pod's own folder and is removed with it. Claims are folders in the cluster's
  state and stay. A missing hostPath is created when it has no type or one that ends in "OrCreate".
- Volumes are written once, when the pod starts: a later change of a ConfigMap does not reach a running pod. Only
  service account tokens are renewed (kubelet/tokens.py).
- An obstacle that can go away raises `Missing`; one that cannot raises `FatalStartError`, which fails the pod."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from trainyard.node.kubelet.spec import interpolation
from trainyard.node.kubelet.spec.pod_spec import ConfigRef, EnvContext, Missing, TokenRequest
from trainyard.node.supervisor import safe_paths
from trainyard.objects import Json, namespace_of, pod_containers

_WAITING = "ContainerCreating"  # the kubelet's waiting reason while a volume cannot be set up
_LONGEST_NAME = 255  # NAME_MAX of the file system
_HOST_PATH_RETRY_SECONDS = 2.0  # seconds between two checks of a hostPath that does not have its type


class FatalStartError(Exception):
    """The pod needs a feature that this node does not have, or is invalid: it fails, because a retry cannot help.
    `reason`: of the pod's status."""

    def __init__(self, message: str, reason: str = "StartError") -> None:
        super().__init__(message)
        self.reason = reason


class VolumeContext(msgspec.Struct):
    """The context in which volumes are created. `folder`: for the pod's volumes; `claims`: for claims; `claim_folders`:
    claim -> folder of the user (--mount). `rewrite` is applied to the texts of ConfigMaps (address rewrite of the
    network); `on_missing_host_path` is called for a missing hostPath without a type. `tmpfs_folders` collects the
    folders on which a tmpfs is to be mounted."""

    env_context: EnvContext
    folder: Path
    claims: Path
    claim_folders: Mapping[str, Path]
    rewrite: Callable[[str], str]
    on_missing_host_path: Callable[[str], object]
    tmpfs_folders: list[str] = msgspec.field(default_factory=list)

    def make(self, name: str, mode: int = 0o755) -> Path:
        """Create the folder of that name; returns its path. Symbolic links on the way are refused: at a restart,
        containers of the pod could have replaced it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        safe_paths.make_directory(str(self.folder), name, mode)
        return self.folder / name


class Volume(msgspec.Struct, frozen=True):
    """`pod_owned`: in the pod's own folder. `readonly`: also when the mount is not, as every ConfigMap. `temporary`:
    files that programs write there are removed with the pod and reported. `missing_host_path`: the hostPath in whose
    place it is, because this user cannot create that."""

    path: Path
    pod_owned: bool = True
    readonly: bool = False
    temporary: bool = False
    missing_host_path: str = ""


def build(volume: Json, context: VolumeContext) -> Volume:
    """Create one volume of a pod's spec. Raises Missing, FatalStartError."""
    name = _path_component("volumes: name", volume.get("name"))
    for kind, make in _TYPES.items():
        if isinstance(source := volume.get(kind), dict):
            try:
                return make(name, source, context)
            except Missing as missing:
                text = f'MountVolume.SetUp failed for volume "{name}" : {missing.message}'
                raise Missing(text, missing.ref, _WAITING, missing.retry_after) from None
            except OSError as error:
                raise FatalStartError(f'volume "{name}": {error}') from None
    volume_types = ", ".join(word for word in volume if word != "name") or "nothing"
    offered = ", ".join(_TYPES)
    raise FatalStartError(
        f'volume "{name}": a volume of type {volume_types} is not supported by this node; supported are {offered}'
    )


def give_to_group(volumes: Iterable[Volume], group: int) -> None:
    """Let the group (`fsGroup`) read the files of volumes in the pod's own folder, or in the cluster's claims, and
    write them where the volume is writable; new ones become the group's. As the kubelet does. The supervisor gives it
    the volumes in memory. Raises OSError."""
    for volume in volumes:
        if volume.pod_owned:
            _give_to_group(volume, group)


def _give_to_group(volume: Volume, group: int) -> None:
    mask = 0o440 if volume.readonly else 0o660
    for folder, _, files in os.walk(volume.path):
        os.chown(folder, -1, group)
        mode = stat.S_IMODE(os.stat(folder).st_mode) | mask | 0o110 | stat.S_ISGID
        os.chmod(folder, mode)
        for path in (os.path.join(folder, file) for file in files):
            os.chown(path, -1, group, follow_symlinks=False)
            if not os.path.islink(path):
                os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | mask)


def _path_component(field_name: str, value: object) -> str:
    """Check a name that is used as a folder name: it must be one path component. API servers may validate less."""
    name = str(value or "")
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name) > _LONGEST_NAME:
        raise FatalStartError(f"{field_name} {name!r} must be the name of an object: without '/', not '.' or '..'")
    return name


def _empty_dir(name: str, source: Json, context: VolumeContext) -> Volume:
    folder = context.make(name, 0o777)
    if source.get("medium") == "Memory":
        context.tmpfs_folders.append(str(folder))
    return Volume(folder, temporary=source.get("medium") != "Memory")


def _config_map(name: str, source: Json, context: VolumeContext) -> Volume:
    return _write_files(name, _selected_keys("configmap", str(source.get("name")), source, context), source, context)


def _secret(name: str, source: Json, context: VolumeContext) -> Volume:
    return _write_files(name, _selected_keys("secret", str(source.get("secretName")), source, context), source, context)


def _downward_api(name: str, source: Json, context: VolumeContext) -> Volume:
    return _write_files(name, _downward_files(source, context), source, context)


def _projected(name: str, source: Json, context: VolumeContext) -> Volume:
    files: dict[str, tuple[bytes, int | None]] = {}
    for projection in source.get("sources") or []:
        if isinstance(part := projection.get("serviceAccountToken"), dict):
            files[str(part.get("path") or "token")] = context.env_context.token(TokenRequest.of(part)).encode(), None
        for kind in ("configMap", "secret"):
            if isinstance(part := projection.get(kind), dict):
                files |= _selected_keys(kind.lower(), str(part.get("name")), part, context)
        if isinstance(part := projection.get("downwardAPI"), dict):
            files |= _downward_files(part, context)
    return _write_files(name, files, source, context)


def _persistent_volume_claim(name: str, source: Json, context: VolumeContext) -> Volume:
    claim = _path_component("persistentVolumeClaim: claimName", source.get("claimName"))
    if claim in context.claim_folders:
        folder = context.claim_folders[claim]
        if not folder.is_dir():
            raise FatalStartError(f"--mount {claim}={folder}: there is no such folder; create it, or name another")
        return Volume(folder, pod_owned=False, readonly=bool(source.get("readOnly")))
    folder = context.claims / _path_component("metadata.namespace", namespace_of(context.env_context.pod)) / claim
    folder.mkdir(parents=True, exist_ok=True)
    return Volume(folder, readonly=bool(source.get("readOnly")))


_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def _host_path(name: str, source: Json, context: VolumeContext) -> Volume:
    path, kind = Path(str(source.get("path") or "/")), str(source.get("type") or "")
    if not os.path.lexists(path):
        if kind == "FileOrCreate":
            path.touch(0o644)
        elif kind == "DirectoryOrCreate":
            path.mkdir(parents=True)
        elif kind == "":
            return _created_host_path(name, path, context)
    check, expected = _CHECKS.get(kind.removesuffix("OrCreate"), (lambda _: True, "there"))
    if not path.exists() or not check(path.stat().st_mode):
        problem = f"it is {_file_type(path)}" if path.exists() else "it does not exist"
        raise Missing(
            f"hostPath type check failed: {path} is not {expected}: {problem}",
            None,
            retry_after=_HOST_PATH_RETRY_SECONDS,
        )
    return Volume(path, pod_owned=False)


def _created_host_path(name: str, path: Path, context: VolumeContext) -> Volume:
    """A hostPath without a type is created as a folder, as a container runtime does. Where this user cannot create it
    (mostly the folder of a driver), the pod gets an empty folder."""
    try:
        path.mkdir(parents=True)
    except OSError as error:
        context.on_missing_host_path(
            f"volume {name}: there is no {path} on this machine, and it cannot be created ({error.strerror}); the pod "
            f"gets an empty folder, which is deleted with the pod; create it (`mkdir -p {path}`) to keep files there"
        )
        return Volume(context.make(name), temporary=True, missing_host_path=str(path))
    context.on_missing_host_path(f"volume {name}: there was no {path} on this machine; it was created, an empty folder")
    return Volume(path, pod_owned=False)


def _file_type(path: Path) -> str:
    mode = path.stat().st_mode
    return next((text for check, text in _CHECKS.values() if check(mode)), "of another type")


_TYPES: dict[str, Callable[[str, Json, VolumeContext], Volume]] = {
    "emptyDir": _empty_dir,
    "configMap": _config_map,
    "secret": _secret,
    "hostPath": _host_path,
    "downwardAPI": _downward_api,
    "projected": _projected,
    "persistentVolumeClaim": _persistent_volume_claim,
}


def _selected_keys(kind: str, name: str, source: Json, context: VolumeContext) -> dict[str, tuple[bytes, int | None]]:
    """The files of a ConfigMap or Secret: path -> content and mode; all keys when `items` is empty."""
    ref: ConfigRef = (kind, name)
    optional = bool(source.get("optional"))
    data = context.env_context.data(ref, optional)
    if kind == "configmap":
        data = {key: _rewrite_bytes(value, context.rewrite) for key, value in data.items()}
    if not (items := source.get("items")):
        return {key: (value, None) for key, value in data.items()}
    files: dict[str, tuple[bytes, int | None]] = {}
    for item in items:
        key = str(item.get("key"))
        if key in data:
            files[str(item.get("path") or key)] = (data[key], item.get("mode"))
        elif not optional:
            raise Missing(f"references non-existent {'config' if kind == 'configmap' else kind} key: {key}", ref)
    return files


def _rewrite_bytes(value: bytes, rewrite: Callable[[str], str]) -> bytes:
    try:
        return rewrite(value.decode()).encode()
    except UnicodeDecodeError:
        return value


def _downward_files(source: Json, context: VolumeContext) -> dict[str, tuple[bytes, int | None]]:
    files: dict[str, tuple[bytes, int | None]] = {}
    by_name = {str(container.get("name")): container for container, _ in pod_containers(context.env_context.pod)}
    for item in source.get("items") or []:
        text: str | None = None
        if reference := item.get("fieldRef"):
            text = interpolation.field(context.env_context.pod, str(reference.get("fieldPath")))
        elif reference := item.get("resourceFieldRef"):
            owner = by_name.get(str(reference.get("containerName")), {})
            text = interpolation.resource(owner, reference, context.env_context.capacity)
        if text is None:
            raise FatalStartError(f"downwardAPI: the field of {item.get('path')} is not supported")
        files[str(item.get("path"))] = (text.encode(), item.get("mode"))
    return files


def _write_files(
    name: str, content: Mapping[str, tuple[bytes, int | None]], source: Json, context: VolumeContext
) -> Volume:
    folder = context.make(name)
    mode = source.get("defaultMode")
    for path, (value, own_mode) in content.items():
        if os.path.isabs(path) or ".." in path.split("/"):
            raise FatalStartError(f'volume "{name}": the path {path} must be relative and without ".."')
        effective_mode = own_mode if own_mode is not None else mode
        file_mode = int(effective_mode) if effective_mode is not None else 0o644
        with os.fdopen(safe_paths.create_file(str(folder), path, file_mode, folders=0o755), "wb") as file:
            file.write(value)
    return Volume(folder, readonly=True)
