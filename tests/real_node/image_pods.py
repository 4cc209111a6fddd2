"""A pod of each image on a real node under `restricted`: how large the image is, how soon it works, and its memory.

    python -m tests.real_node.image_pods [IMAGE...]    writes these rows of the table of docs/container-images.md

Rules:
- A pod works when it has imported its framework and printed a line; the operator when its Deployment is ready.
- The time is from the request that creates it, by this process's clock. The image is on the node before.
- The memory is what the container's processes have (`total_rss` of its cgroup), without files in the page cache.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.container_images import IMAGES, OPERATOR_IMAGE, built, missing
from tests.support.control_plane_build import Say, exit_code
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.real_node import RealNode
from tests.support.waiting import until
from trainyard.app.install import installation
from trainyard.objects import Json, encode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "container-images.md"
ENFORCE = "pod-security.kubernetes.io/enforce"
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
MODULES = {
    "chainer": "chainer",
    "chainermn": "chainermn",
    "jax-train": "jax",
    "mpi-train": "mpi4py.MPI",
    "mpi-ssh-train": "mpi4py.MPI",
    "mxnet": "mxnet",
    "paddle-train": "paddle",
    "tf-sample": "tensorflow",
    "tf-train": "tensorflow",
    "torchelastic": "torch",
    "xgboost-train": "xgboost",
}
"""By target of a Dockerfile, what its programs import first."""
HEAD = (
    "| image | MB to transfer | MB on disk | seconds until it works | MB of memory then |",
    "|---|---:|---:|---:|---:|",
)
ROUNDS = 3
PATIENCE = 200.0
MEGABYTE = 1_000_000


class Costs(NamedTuple):
    """Bytes to transfer, bytes on the node's disk, seconds until it works, bytes of memory then."""

    compressed: int
    unpacked: int
    seconds: float
    memory: int


def pod_of(image: str) -> Json:
    """It imports the framework of the image, says so, and waits to be killed."""
    module = MODULES[image.rpartition("/")[2].partition(":")[0]]
    program = f"import time, {module}; print('ready', flush=True); time.sleep(1000)"
    main: Json = {"name": "main", "image": image, "securityContext": RESTRICTED}
    main["command"] = ["python", "-c", program]
    main["env"] = [{"name": "HOME", "value": "/tmp"}]
    spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "image"}, "spec": spec}


def works(node: RealNode, namespace: str, image: str) -> tuple[float, int]:
    """Seconds until a pod of the image works, and bytes of its memory. Raises ControlPlaneError."""
    start = time.monotonic()
    node.kubectl("-n", namespace, "create", "-f", "-", stdin=encode(pod_of(image)).decode())
    log = f"/api/v1/namespaces/{namespace}/pods/image/log"
    until(lambda: node.ask("GET", log)[1].get("message", ""), "it prints", accept=is_ready, seconds=PATIENCE)
    seconds = time.monotonic() - start
    _, pod = node.ask("GET", f"/api/v1/namespaces/{namespace}/pods/image")
    memory = memory_of(node, pod)
    node.kubectl("-n", namespace, "delete", "pod/image")
    return seconds, memory


def is_ready(log: str) -> bool:
    """Whether the program has said so. TensorFlow logs to stderr before."""
    return log.endswith("ready\n")


def operator_works(node: RealNode, namespace: str) -> tuple[float, int]:
    """The same of the operator, which serves every kind. The namespace has no Deployment before and after."""
    installed = installation.Install(namespace=namespace)
    start = time.monotonic()
    document = {"apiVersion": "v1", "kind": "List", "items": installation.operator_objects(installed)}
    node.kubectl("apply", "-f", "-", stdin=encode(document).decode())
    node.kubectl("-n", namespace, "rollout", "status", f"deployment/{installed.names.operator}", "--timeout=100s")
    seconds = time.monotonic() - start
    _, pods = node.ask("GET", f"/api/v1/namespaces/{namespace}/pods")
    memory = memory_of(node, pods["items"][0])
    node.kubectl("delete", "--cascade=foreground", "-f", "-", stdin=encode(document).decode())
    return seconds, memory


def memory_of(node: RealNode, pod: Json) -> int:
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    script = f"cat $(find /sys/fs/cgroup/memory -path '*/{container}/memory.stat')"
    fields = dict(line.split() for line in node.inside("sh", "-c", script).splitlines())
    return int(fields["total_rss"])


def sizes(archive: Path) -> tuple[int, int]:
    """Bytes of the layers of an OCI archive, as they are, and unpacked."""
    compressed = unpacked = 0
    with tarfile.open(archive) as tar:
        (entry,) = json.loads(_blob(tar, "index.json"))["manifests"]
        for layer in json.loads(_blob(tar, _path(entry)))["layers"]:
            compressed += layer["size"]
            content = tar.extractfile(_path(layer))
            assert content is not None
            with gzip.open(content) as stream:
                unpacked += stream.seek(0, 2)
    return compressed, unpacked


def _path(descriptor: Json) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _blob(tar: tarfile.TarFile, name: str) -> bytes:
    content = tar.extractfile(name)
    assert content is not None
    return content.read()


def measure(node: RealNode, image: str, archive: Path) -> Costs:
    """The image is imported. Time and memory are medians of ROUNDS."""
    node.import_image(archive)
    namespace = f"costs-{archive.stem}"
    create_namespace(node, namespace, **{ENFORCE: "restricted"})
    work: Callable[[], tuple[float, int]] = (
        (lambda: operator_works(node, namespace))
        if image == OPERATOR_IMAGE
        else (lambda: works(node, namespace, image))
    )
    seconds, memory = zip(*(work() for _ in range(ROUNDS)), strict=True)
    node.kubectl("delete", "namespace", namespace, "--wait=false")
    return Costs(*sizes(archive), statistics.median(seconds), statistics.median(memory))


def row(image: str, costs: Costs) -> str:
    compressed, unpacked, memory = (
        round(value / MEGABYTE) for value in (costs.compressed, costs.unpacked, costs.memory)
    )
    return f"| `{image}` | {compressed} | {unpacked} | {costs.seconds:.1f} | {memory} |"


def with_rows(text: str, rows: dict[str, str]) -> str:
    """The text of the page with these rows in its table. The rows of other images stay, in the order of IMAGES."""
    pattern = re.compile("(?<=<!-- costs of images -->\n).*(?=<!-- end of costs -->)", re.DOTALL)
    (old,) = pattern.findall(text)
    rows = dict(re.findall(r"^(?=\| `([^`]+)`)(.*)$", old, re.MULTILINE)) | rows
    lines = [*HEAD, *(rows[image] for image in IMAGES if image in rows)]
    return pattern.sub(lambda _: "".join(f"{line}\n" for line in lines), text)


def main(say: Say) -> None:
    """Build and measure the images that the arguments name, or all. A machine that cannot is told what it lacks."""
    if text := missing():
        print(f"make: skipped: {text}", file=sys.stderr)
        return
    archives = {image: built(image, say) for image in sys.argv[1:] or IMAGES}
    with RealNode() as node:
        install(node)
        for image, archive in archives.items():
            say(f"measuring {image}")
            line = row(image, measure(node, image, archive))
            print(line, flush=True)
            PAGE.write_text(with_rows(PAGE.read_text(), {image: line}))


if __name__ == "__main__":
    sys.exit(exit_code(main))
