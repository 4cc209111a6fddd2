"""Container images as values, and OCI archives (image-spec 1.1), written without a container daemon.

Rules for this file:
- The same input gives the same bytes: entries are sorted, times are 0, owners are root.
- An archive is an OCI image layout in a tar file. One of a single platform is an archive of `docker save`, too.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

Json = dict[str, Any]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class Blob(NamedTuple):
    """Bytes with their media type."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        return digest_of(self.data)

    @property
    def descriptor(self) -> Json:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data)}

    @property
    def path(self) -> str:
        """The name of the file in an image layout."""
        return f"blobs/{self.digest.replace(':', '/')}"


class File(NamedTuple):
    """A file of a layer: its absolute path in the image, content, and whether it may be executed."""

    path: str
    data: bytes
    executable: bool = False


class Image(NamedTuple):
    """An image of one platform: its config (with rootfs.diff_ids and history) and its layers, lowest first."""

    config: Json
    layers: tuple[Blob, ...]

    @property
    def platform(self) -> str:
        """As in `docker build --platform`: linux/amd64."""
        return f"{self.config['os']}/{self.config['architecture']}"

    @property
    def config_blob(self) -> Blob:
        return Blob(CONFIG, _encode(self.config))

    @property
    def manifest(self) -> Blob:
        layers = [layer.descriptor for layer in self.layers]
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": self.config_blob.descriptor, "layers": layers}
        return Blob(MANIFEST, _encode(body))

    @property
    def blobs(self) -> tuple[Blob, ...]:
        return (*self.layers, self.config_blob, self.manifest)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def with_layer(base: Image, files: Iterable[File], settings: Mapping[str, Any], comment: str) -> Image:
    """The image with a layer of these files on top. `settings` replace those of the config (Entrypoint, Cmd, User);
    its Env is merged by name, and its Labels are."""
    tar = _tar(files)
    layer = Blob(LAYER, gzip.compress(tar, mtime=0))
    config = dict(base.config.get("config") or {})
    env = dict(entry.split("=", 1) for entry in [*(config.get("Env") or []), *settings.get("Env", ())])
    labels = {**(config.get("Labels") or {}), **settings.get("Labels", {})}
    config |= {**settings, "Env": [f"{name}={value}" for name, value in env.items()], "Labels": labels}
    rootfs = {"type": "layers", "diff_ids": [*base.config["rootfs"]["diff_ids"], digest_of(tar)]}
    history = [*(base.config.get("history") or []), {"created_by": comment}]
    return Image({**base.config, "config": config, "rootfs": rootfs, "history": history}, (*base.layers, layer))


def write(images: Iterable[Image], name: str, target: Path) -> None:
    """Write an archive of the images, one for each platform. `name`: registry/repository:tag."""
    chosen = list(images)
    entry: Json = {"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}
    blobs = [blob for image in chosen for blob in image.blobs]
    if len(chosen) == 1:
        entry = chosen[0].manifest.descriptor | entry
    else:
        index = Blob(INDEX, _encode(_index([_of_platform(image) for image in chosen])))
        blobs.append(index)
        entry = index.descriptor | entry
    files = {
        "oci-layout": _encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": _encode(_index([entry])),
        **{blob.path: blob.data for blob in blobs},
    }
    if len(chosen) == 1:
        files["manifest.json"] = _encode([_docker_manifest(chosen[0], name)])
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as output:
        _write_tar(output, [File(path, data) for path, data in files.items()])


def _index(manifests: list[Json]) -> Json:
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}


def _of_platform(image: Image) -> Json:
    variant = {"variant": image.config["variant"]} if image.config.get("variant") else {}
    platform = {"os": image.config["os"], "architecture": image.config["architecture"], **variant}
    return image.manifest.descriptor | {"platform": platform}


def _docker_manifest(image: Image, name: str) -> Json:
    """The entry of manifest.json, which `docker load` of versions before 25 and minikube read."""
    return {"Config": image.config_blob.path, "RepoTags": [name], "Layers": [layer.path for layer in image.layers]}


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _tar(files: Iterable[File]) -> bytes:
    buffer = io.BytesIO()
    _write_tar(buffer, files)
    return buffer.getvalue()


def _write_tar(output: IO[bytes], files: Iterable[File]) -> None:
    """A tar with these files and their folders, in the order of their paths."""
    by_path = {file.path.strip("/"): file for file in files}
    folders = {str(parent) for path in by_path for parent in Path(path).parents} - {"."}
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted({*by_path, *folders}):
            entry = tarfile.TarInfo(path)
            if (file := by_path.get(path)) is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(file.data), 0o755 if file.executable else 0o644
                tar.addfile(entry, io.BytesIO(file.data))
