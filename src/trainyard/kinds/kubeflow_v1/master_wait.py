"""The init container of a PyTorchJob's workers, which waits until the master's name resolves (docs/rules.md 4.4)."""

from __future__ import annotations

from typing import Any

from trainyard.core import Job, MasterWait, Slot
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER, replica_name
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.pods.templates import append_to_list, containers_of
from trainyard.objects import Json, Problem
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.yaml_reader import ManifestError, load

NAME = "init-pytorch"
NO_ADDRESS = "has no address"
PAUSE = 2  # seconds between two tries, as in the Training Operator
RESOLVERS = ("getent hosts", "nslookup", "python3 -c 'import socket, sys; socket.gethostbyname(sys.argv[1])'")
"""The first of these that the image has, and that succeeds, decides."""
UNCACHED_LOOKUP = """\
import socket, struct, sys, time
lines = [line.split() for line in open("/etc/resolv.conf")]
server = next((line[1] for line in lines if line[:1] == ["nameserver"]), "")
domain = next((line[1] for line in lines if line[:1] == ["search"] and len(line) > 1), "")
if not server or domain.split(".")[1:2] != ["svc"]:
    sys.exit()
labels = (sys.argv[1] + "." + domain).encode().split(b".")
name = b"".join(bytes([len(label)]) + label for label in labels if label) + bytes(1)
family = socket.AF_INET6 if ":" in server else socket.AF_INET
for number in range(min(int(sys.argv[2]), 240)):
    with socket.socket(family, socket.SOCK_DGRAM) as resolver:
        resolver.settimeout(2)
        query = struct.pack(">6H", number, 256, 1, 0, 0, 0) + name + struct.pack(">2H", 65280 + number, 1)
        try:
            resolver.sendto(query, (server, 53))
            reply = resolver.recv(512)
        except OSError:
            sys.exit()
    if len(reply) < 4 or reply[3] & 15 != 3:
        sys.exit()
    if not number:
        print("waiting for master", flush=True)
    time.sleep(0.5)
"""
"""Waits until the DNS of a cluster has the name of the first argument; the second is the greatest number of questions.

The DNS of a cluster keeps the answer that a name does not exist (NXDOMAIN) for up to 30 seconds, so that a worker that
asks before its master is ready starts that much later. CoreDNS and the caches of nodes, which are CoreDNS, keep it for
each type of a record alone: each question here is of another type, of those for private use (RFC 6895), and the answer
to any is NXDOMAIN until the name exists. Without an answer, or outside of a cluster's DNS, it ends at once."""
MASTER_TOKEN, IMAGE_TOKEN = "trainyard-master-address", "trainyard-init-container-image"
"""What a template's containers have in the place of values that depend on the job."""
_PLACEHOLDER = lazy_pattern(r"\{\{-?\s*\.(\w+)\s*-?\}\}")


def wait_for_master(template: Json, job: Job, slot: Slot) -> None:
    """Add the init container to a worker's pod, if the job has a master.

    It runs the image of the worker itself, unless the administrator names another, so that no image has to be pulled.
    """
    master = job.role(MASTER)
    containers = containers_of(template)
    if slot.role != WORKER or master is None or not containers:
        return
    settings, address = job.config.master_wait, replica_name(job, MASTER, 0)
    main = next((container for container in containers if container.get("name") == "pytorch"), containers[0])
    if settings.containers:
        values = {MASTER_TOKEN: address, IMAGE_TOKEN: settings.image or str(main.get("image"))}
        append_to_list(template["spec"], "initContainers", *_replaced(list(settings.containers), values))
        return
    attempts = " || ".join(f'{command} "$MASTER_ADDR" >/dev/null 2>&1' for command in RESOLVERS)
    script = (
        # An image without Python waits once: the master that starts with the worker is ready by then.
        f'python3 -ES -c "$1" "$MASTER_ADDR" {settings.max_tries * PAUSE * 2} 2>/dev/null || sleep {PAUSE}; '
        f"i=0; until {attempts}; do i=$((i + 1)); [ $i -lt {settings.max_tries} ] || "
        '{ echo "the master $MASTER_ADDR '
        f"{NO_ADDRESS}"
        '" >&2; exit 1; }; '
        f"[ $i -gt 1 ] || echo waiting for master; sleep {PAUSE}; done"
    )
    container = {
        "name": NAME,
        "image": settings.image or main.get("image"),
        "command": ["sh", "-c", script, NAME, UNCACHED_LOOKUP],
        "env": [variable("MASTER_ADDR", address), variable("MASTER_PORT", master.port)],
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
    }
    for field in ("securityContext",) if settings.image else ("imagePullPolicy", "securityContext"):
        if main.get(field) is not None:
            container[field] = main[field]
    append_to_list(template["spec"], "initContainers", container)


def parse_template(text: str, source: str, settings: MasterWait) -> tuple[Json, ...]:
    """The containers of a file for --pytorch-init-container-template-file: a YAML list with `{{.MasterAddr}}`,
    `{{.InitContainerImage}}` and `{{.MaxTries}}`. `source`: the file's name. Raises ManifestError."""
    values = {"MasterAddr": MASTER_TOKEN, "InitContainerImage": IMAGE_TOKEN, "MaxTries": str(settings.max_tries)}
    filled = _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)
    if "{{" in filled:
        known = ", ".join(f"{{{{.{name}}}}}" for name in values)
        raise ManifestError([Problem(source, f"has an action of Go's templates that is not known; write only {known}")])
    documents = [document.value for document in load(filled, source)]
    containers = documents[0] if len(documents) == 1 else None
    if not isinstance(containers, list) or not all(
        isinstance(container, dict) and container.get("name") for container in containers
    ):
        raise ManifestError([Problem(source, "is not one YAML list of containers, each with a name")])
    return tuple(containers)


def _replaced(value: Any, values: dict[str, str]) -> Any:
    """A copy of the value with the tokens in its texts replaced."""
    if isinstance(value, dict):
        return {name: _replaced(member, values) for name, member in value.items()}
    if isinstance(value, list):
        return [_replaced(member, values) for member in value]
    if isinstance(value, str):
        for token, text in values.items():
            value = value.replace(token, text)
    return value
