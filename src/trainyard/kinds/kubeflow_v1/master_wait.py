"""The init container of a PyTorchJob's workers, which waits until the master's name resolves (docs/rules.md 4.4)."""

from __future__ import annotations

from trainyard.core import Job, Slot
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER, replica_name
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.templates import append_to_list, containers_of
from trainyard.objects import Json

NAME = "init-pytorch"
TRIES, PAUSE = 100, 2  # as in the Training Operator: 200 s
RESOLVERS = ("getent hosts", "nslookup", "python3 -c 'import socket, sys; socket.gethostbyname(sys.argv[1])'")
"""The first of these that the image has, and that succeeds, decides."""


def wait_for_master(template: Json, job: Job, slot: Slot) -> None:
    """Add the init container to a worker's pod, if the job has a master.

    It runs the image of the worker itself, so that no other image has to be pulled.
    """
    master = job.role(MASTER)
    containers = containers_of(template)
    if slot.role != WORKER or master is None or not containers:
        return
    main = next((container for container in containers if container.get("name") == "pytorch"), containers[0])
    attempts = " || ".join(f'{command} "$MASTER_ADDR" >/dev/null 2>&1' for command in RESOLVERS)
    script = (
        f"i=0; until {attempts}; do i=$((i + 1)); [ $i -lt {TRIES} ] || "
        '{ echo "the master $MASTER_ADDR has no address" >&2; exit 1; }; '
        f"[ $i -gt 1 ] || echo waiting for master; sleep {PAUSE}; done"
    )
    container = {
        "name": NAME,
        "image": main.get("image"),
        "command": ["sh", "-c", script],
        "env": [variable("MASTER_ADDR", replica_name(job, MASTER, 0)), variable("MASTER_PORT", master.port)],
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
    }
    for field in ("imagePullPolicy", "securityContext"):
        if main.get(field) is not None:
            container[field] = main[field]
    append_to_list(template["spec"], "initContainers", container)
