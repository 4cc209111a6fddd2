"""The default parameter server: a standard TensorFlow server, shipped by us, mounted from a ConfigMap (rules.md I.7).

It serves a PS without a template, a PS marked `IsDefaultPS`, and a PS whose template has no container named
`tensorflow`: then one is added beside the user's containers (README; docs/rules.md S16).
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.core import AuxiliaryObject, Job, Role, Slot
from trainyard.kinds.replica_list import items_of
from trainyard.kinds.templates import append, append_volume, containers_of, has_container, like
from trainyard.objects import Json
from trainyard.objects.resources import CONFIG_MAP

PS, MASTER = "PS", "MASTER"
VOLUME = "ps-config-volume"
MOUNT = "/ps-server"
PROGRAM = "grpc_tensorflow_server.py"


def default_template(image: str) -> Json:
    """What is stored for a PS without a template, as the README prints it."""
    return {"spec": {"containers": [_container(image)], "restartPolicy": "OnFailure"}}


def _container(image: str) -> Json:
    return {"name": "tensorflow", "image": image, "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT}]}


def is_served(job: Job, role: Role) -> bool:
    """True when our server is the PS program of that role."""
    if role.name != PS:
        return False
    marked = any(one.get("IsDefaultPS") is True for one in items_of(job.parsed.spec) if one.get("tfReplicaType") == PS)
    return marked or not has_container(role.template, "tensorflow")


def config_map(job: Job, labels: Json) -> tuple[AuxiliaryObject, ...]:
    role = job.role(PS)
    if role is None or not role.replicas or not is_served(job, role):
        return ()
    text = job.config.files.get(PROGRAM, "")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": labels}, "data": {PROGRAM: text}}
    return (AuxiliaryObject(CONFIG_MAP, map_name(job), lambda: body),)


def map_name(job: Job) -> str:
    return f"cm-ps-{job.runtime_id}"


def serve(template: Json, job: Job, slot: Slot, cluster: Mapping[str, tuple[str, ...]]) -> None:
    """Makes the container `tensorflow` of this template run our server for this slot."""
    master, made = job.role(MASTER), _container(job.parsed.spec["tfImage"])
    if template == default_template(job.parsed.spec["tfImage"]):
        like(template["spec"], containers_of(template)[0], master.template if master else None, "tensorflow")
    if not has_container(template, "tensorflow"):
        like({}, made, master.template if master else None, "tensorflow")
        template["spec"]["containers"] = [*containers_of(template), made]
    # A type without replicas has no part: the server takes an empty one for a mistake.
    spec = ",".join(f"{name}|{';'.join(hosts)}" for name, hosts in sorted(cluster.items()) if hosts)
    command = ["python", f"{MOUNT}/{PROGRAM}", "--cluster_spec", spec, "--job_name", "ps", "--task_id", str(slot.index)]
    container = next(one for one in containers_of(template) if one.get("name") == "tensorflow")
    container["command"] = command
    mounts = container.get("volumeMounts")
    listed = mounts if isinstance(mounts, list) else []
    if all(one.get("name") != VOLUME for one in listed if isinstance(one, dict)):
        append(container, "volumeMounts", {"name": VOLUME, "mountPath": MOUNT})
    append_volume(template, {"name": VOLUME, "configMap": {"name": map_name(job)}})
