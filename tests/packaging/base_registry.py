"""A registry on loopback with one small base image for two platforms; it asks for a token as Docker Hub does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tools.oci import archive
from tools.oci.archive import INDEX, Blob, File, Image
from tools.oci.registry import DOCKER_MANIFEST

REPOSITORY, TAG = "library/python", "3-slim"
FILES = [File("/usr/local/bin/python3", b"a program", executable=True), File("/etc/os-release", b"ID=test\n")]


def base(platform: str) -> Image:
    """The base image of a platform."""
    system, architecture = platform.split("/")
    empty = {"os": system, "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []}}
    settings = {"Env": ["PATH=/usr/bin", "LANG=C.UTF-8"], "Cmd": ["python3"], "Labels": {"base": "yes"}}
    return archive.with_layer(Image(empty, ()), FILES, settings, "test")


class BaseRegistry:
    """`corrupt`: digests whose content is served with another last byte."""

    def __init__(self, platforms: tuple[str, ...]) -> None:
        images = [base(platform) for platform in platforms]
        manifests = [
            image.manifest.descriptor
            | {"platform": dict(zip(("os", "architecture"), image.platform.split("/"), strict=True))}
            for image in images
        ]
        body = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        self.index = Blob(INDEX, json.dumps(body).encode())
        self.blobs = {blob.digest: blob for image in images for blob in image.blobs} | {TAG: self.index}
        self.corrupt: set[str] = set()
        self.host = ""

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        if path.startswith("/token?"):
            return 200, {}, b'{"token": "t"}'
        if authorization != "Bearer t":
            realm = f'Bearer realm="http://{self.host}/token",service="s",scope="repository:{REPOSITORY}:pull"'
            return 401, {"WWW-Authenticate": realm}, b""
        name = path.rpartition("/")[2]
        blob = self.blobs.get(name)
        if blob is None or not path.startswith(f"/v2/{REPOSITORY}/"):
            return 404, {}, b""
        data = blob.data[:-1] + b"?" if name in self.corrupt else blob.data
        return 200, {"Content-Type": blob.media_type or DOCKER_MANIFEST}, data


@contextmanager
def base_registry(*platforms: str) -> Iterator[BaseRegistry]:
    registry = BaseRegistry(platforms or ("linux/amd64", "linux/arm64"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, headers, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(code)
            for header, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.host = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
