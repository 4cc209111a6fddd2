"""The default parameter server: a TensorFlow server program of Trainyard, mounted from a ConfigMap (rules.md I.7).

It runs for a PS without a template, a PS with `IsDefaultPS: true`, and a PS whose template has no container named
`tensorflow`: then this container is added to the user's containers (README; docs/rules.md S16).
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.core import AuxiliaryObject, Job, Role, Slot
from trainyard.kinds.pods.templates import (
    append_to_list,
    append_volume,
    containers_of,
    copy_required_fields,
    has_container,
)
from trainyard.kinds.replica_list import items_of
from trainyard.objects import Json
from trainyard.objects.resources import CONFIG_MAP

PS, MASTER = "PS", "MASTER"
VOLUME = "ps-config-volume"
MOUNT_PATH = "/ps-server"
PROGRAM = "grpc_tensorflow_server.py"


def default_template(image: str) -> Json:
    """The pod template for a PS without one, as in the README."""
    return {"spec": {"containers": [_container(image)], "restartPolicy": "OnFailure"}}


def _container(image: str) -> Json:
    return {"name": "tensorflow", "image": image, "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT_PATH}]}


SERVER_PROGRAM = """\
import json, os, signal, sys
import tensorflow as tf
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
config = json.loads(os.environ["TF_CONFIG"])
config["cluster"].pop("evaluator", None)
library = getattr(tf, "distribute", None)
Server = getattr(library, "Server", None) or tf.train.Server
task = config["task"]
server = Server(
    config["cluster"], job_name=task["type"], task_index=task["index"])
sys.stderr.write("TensorFlow server: %s\\n" % server.target)
while True:
    signal.pause()
"""
"""The default parameter server for a kind that has none: it learns its address from TF_CONFIG. TensorFlow 1 and 2."""


def server_container(image: str) -> Json:
    """The container `tensorflow` with a TensorFlow server, for the manifest of a TFJob."""
    return {"name": "tensorflow", "image": image, "command": ["python", "-c", SERVER_PROGRAM]}


def runs_default_ps(job: Job, role: Role) -> bool:
    """Whether the role is the PS and runs the default parameter server."""
    if role.name != PS:
        return False
    ps_specs = [item for item in items_of(job.parsed.spec) if item.get("tfReplicaType") == PS]
    return any(item.get("IsDefaultPS") is True for item in ps_specs) or not has_container(role.template, "tensorflow")


def config_map(job: Job, labels: Json) -> tuple[AuxiliaryObject, ...]:
    """The ConfigMap with the server program; () when the job has no default parameter server."""
    role = job.role(PS)
    if role is None or not role.replicas or not runs_default_ps(job, role):
        return ()
    text = job.config.program_files.get(PROGRAM, "")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": labels}, "data": {PROGRAM: text}}
    return (AuxiliaryObject(CONFIG_MAP, config_map_name(job), lambda: body),)


def config_map_name(job: Job) -> str:
    """The name of the ConfigMap with the program of the default PS."""
    return f"cm-ps-{job.runtime_id}"


def run_default_ps(template: Json, job: Job, slot: Slot, cluster: Mapping[str, tuple[str, ...]]) -> None:
    """Make the container `tensorflow` run the default parameter server for the slot. Changes the template in place."""
    master, server_container = job.role(MASTER), _container(job.parsed.spec["tfImage"])
    if template == default_template(job.parsed.spec["tfImage"]):
        copy_required_fields(
            template["spec"], containers_of(template)[0], master.template if master else None, "tensorflow"
        )
    if not has_container(template, "tensorflow"):
        copy_required_fields({}, server_container, master.template if master else None, "tensorflow")
        template["spec"]["containers"] = [*containers_of(template), server_container]
    # A replica type without replicas is left out: the server program rejects an empty list of hosts.
    spec = ",".join(f"{name}|{';'.join(hosts)}" for name, hosts in sorted(cluster.items()) if hosts)
    command = [
        "python",
        f"{MOUNT_PATH}/{PROGRAM}",
        "--cluster_spec",
        spec,
        "--job_name",
        "ps",
        "--task_id",
        str(slot.index),
    ]
    container = next(entry for entry in containers_of(template) if entry.get("name") == "tensorflow")
    container["command"] = command
    mounts = container.get("volumeMounts")
    mount_list = mounts if isinstance(mounts, list) else []
    if all(mount.get("name") != VOLUME for mount in mount_list if isinstance(mount, dict)):
        append_to_list(container, "volumeMounts", {"name": VOLUME, "mountPath": MOUNT_PATH})
    append_volume(template, {"name": VOLUME, "configMap": {"name": config_map_name(job)}})
