"""Reads an image from a registry, anonymously, over its HTTP API (distribution-spec 1.1)."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import NamedTuple

from tools.oci.archive import INDEX, MANIFEST, Blob, Image, Json, digest_of

DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
ACCEPT = ", ".join((INDEX, DOCKER_INDEX, MANIFEST, DOCKER_MANIFEST))
SECONDS = 60


class RegistryError(Exception):
    """The image cannot be read; the message names the reference and the reason."""


class Reference(NamedTuple):
    """The name of an image: docker.io/library/python:3.13-slim, or with @sha256:... instead of a tag."""

    host: str
    repository: str
    tag: str

    @staticmethod
    def parse(text: str) -> Reference:
        """As docker reads it: without a host it is of docker.io, without a tag `latest`."""
        name, _, digest = text.partition("@")
        host, slash, rest = name.partition("/")
        if not slash or not (set(host) & {".", ":"} or host == "localhost"):
            host, rest = "docker.io", name if slash else f"library/{name}"
        repository, _, tag = rest.partition(":")
        return Reference(host, repository, digest or tag or "latest")

    @property
    def url(self) -> str:
        host = "registry-1.docker.io" if self.host == "docker.io" else self.host
        scheme = "http" if re.fullmatch(r"(localhost|127\.0\.0\.1)(:\d+)?", host) else "https"
        return f"{scheme}://{host}/v2/{self.repository}"


def pull(name: str, platform: str) -> Image:
    """The image of this platform (linux/arm64). Every digest is checked. Raises RegistryError."""
    return _Reader(Reference.parse(name), name).image(platform)


class _Reader:
    def __init__(self, reference: Reference, name: str) -> None:
        self._reference, self._name = reference, name
        self._token = ""

    def image(self, platform: str) -> Image:
        manifest = json.loads(self._get(f"manifests/{self._reference.tag}", self._digest(self._reference.tag)))
        if "manifests" in manifest:
            digest = self._manifest_digest(manifest, platform)
            manifest = json.loads(self._get(f"manifests/{digest}", digest))
        config = json.loads(self._blob(manifest["config"]).data)
        image = Image(config, tuple(self._blob(layer) for layer in manifest["layers"]))
        if image.platform != platform:
            raise RegistryError(f"{self._name} is of {image.platform}, not of {platform}")
        return image

    def _manifest_digest(self, index: Json, platform: str) -> str:
        for entry in index["manifests"]:
            named = entry.get("platform") or {}
            if f"{named.get('os')}/{named.get('architecture')}" == platform:
                return str(entry["digest"])
        raise RegistryError(f"{self._name} has no image for {platform}")

    def _blob(self, descriptor: Json) -> Blob:
        data = self._get(f"blobs/{descriptor['digest']}", descriptor["digest"])
        media_type = descriptor["mediaType"].replace(
            "vnd.docker.image.rootfs.diff.tar.gzip", "vnd.oci.image.layer.v1.tar+gzip"
        )
        return Blob(media_type, data)

    @staticmethod
    def _digest(tag: str) -> str:
        return tag if tag.startswith("sha256:") else ""

    def _get(self, path: str, digest: str) -> bytes:
        """The body of a response, with this digest unless it is "". Logs in once, as anonymous, where the registry asks
        for it."""
        try:
            data = self._send(path)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or self._token or not challenge.lower().startswith("bearer "):
                raise RegistryError(f"{self._name}: {path}: {error.code} {error.reason}") from None
            self._log_in(dict(re.findall(r'(\w+)="([^"]*)"', challenge)))
            return self._get(path, digest)
        except OSError as error:
            raise RegistryError(f"{self._name}: {path}: {error}") from None
        if digest and digest_of(data) != digest:
            raise RegistryError(f"{self._name}: {path}: the content has another digest")
        return data

    def _send(self, path: str) -> bytes:
        request = urllib.request.Request(f"{self._reference.url}/{path}", headers={"Accept": ACCEPT})  # noqa: S310  (see Reference.url)
        if self._token:  # not for the storage that a registry redirects to
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            return bytes(answer.read())

    def _log_in(self, challenge: dict[str, str]) -> None:
        query = urllib.parse.urlencode([(key, challenge[key]) for key in ("service", "scope") if key in challenge])
        realm = challenge.get("realm", "")
        if not realm.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
            raise RegistryError(f"{self._name}: the registry names no https address for tokens")
        with urllib.request.urlopen(f"{realm}?{query}", timeout=SECONDS) as answer:  # noqa: S310
            body = json.loads(answer.read())
        self._token = str(body.get("token") or body.get("access_token") or "")
