"""TfJob to TFJob: a list of replica sets becomes a map, the default parameter server a program in the manifest."""

from __future__ import annotations

from trainyard.conversion.fields import Fields, take_metadata
from trainyard.conversion.kubeflow.run_policy import take_run_policy, with_run_policy
from trainyard.conversion.template_edits import main_container, set_port, take_restart_policy, with_main_container
from trainyard.kinds.default_ps import server_container
from trainyard.kinds.kubeflow_v1.tfjob import CHIEF as CHIEF_ROLE
from trainyard.kinds.pods.templates import copy_required_fields, has_container
from trainyard.kinds.tfjob.kind import TFJOB
from trainyard.kinds.tfjob.spec import CHIEF, CONTAINER, IMAGE, MASTER, PORT, PS, WORKER
from trainyard.objects import Json

PORT_NAME = "tfjob-port"
TENSORBOARD = "a TFJob has no TensorBoard: run it as a Deployment of its own, with the same volumes"
RUNTIME_ID = "the Pods of a TFJob are called NAME-ROLE-INDEX, without a RuntimeId"


def convert(source: Fields) -> Json:
    """The TFJob of a TfJob."""
    metadata = take_metadata(source)
    spec = source.child("spec")
    policies = take_run_policy(spec)
    if spec.take("RuntimeId"):
        spec.note("RuntimeId", RUNTIME_ID)
    for name in ("tensorboard", "tensorBoard"):
        spec.unmapped(name, TENSORBOARD)
    master_role = CHIEF_ROLE if spec.take("masterTaskType") == CHIEF else "Master"
    roles = {MASTER: master_role, WORKER: "Worker", PS: "PS"}
    is_image_set, image = "tfImage" in spec, spec.take("tfImage", IMAGE)
    items = [*spec.items("replicaSpecs"), *spec.items("replica_specs")]
    sets = {item.take("tfReplicaType", MASTER): item for item in items}
    master = sets[MASTER].peek("template") if MASTER in sets else None
    replica_specs, runs_default_ps = {}, False
    for replica_type, item in sets.items():
        says_default_ps = item.take("IsDefaultPS", False)
        is_default_ps = replica_type == PS and (says_default_ps or not has_container(item.peek("template"), CONTAINER))
        runs_default_ps = runs_default_ps or is_default_ps
        replica_specs[roles[replica_type]] = _replica_spec(item, replica_type, image if is_default_ps else "", master)
    if is_image_set and not runs_default_ps:
        spec.note("tfImage", "is the image of default parameter servers and of TensorBoard: the TFJob has neither")
    if "backoffLimit" not in policies and TFJOB.lifecycle.default_backoff_limit is not None:
        policies["backoffLimit"] = TFJOB.lifecycle.default_backoff_limit  # a TFJob without a limit never gives up
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata,
        "spec": with_run_policy({"tfReplicaSpecs": replica_specs}, policies),
    }


def _replica_spec(item: Fields, replica_type: str, server_image: str, master: object) -> Json:
    """`server_image`: of the default parameter server; "" when the set runs the user's program."""
    replicas, port, template = item.take("replicas", 1), item.take("tfPort", PORT), item.take("template")
    if server_image:
        template = _server_template(template, server_image, master)
    template = with_main_container(template, CONTAINER, CONTAINER)
    policy = take_restart_policy(template)
    if port != PORT:
        set_port(main_container(template, CONTAINER), PORT_NAME, port)
    # A failed MASTER is retried by its exit code, which is what ExitCode does; the others by their Jobs, for any code.
    policy = "OnFailure" if replica_type != MASTER or policy == "OnFailure" else "ExitCode"
    return {"replicas": replicas, "restartPolicy": policy, "template": template}


def _server_template(template: object, image: str, master: object) -> Json:
    """The template with a TensorFlow server in the container `tensorflow`, which is added if it is missing."""
    server = server_container(image)
    spec: Json = {}
    copy_required_fields(spec, server, master, CONTAINER)
    if not isinstance(template, dict):
        return {"spec": {**spec, "containers": [server]}}
    if has_container(template, CONTAINER):
        copy = with_main_container(template, CONTAINER, CONTAINER)
        main_container(copy, CONTAINER)["command"] = server["command"]
        main_container(copy, CONTAINER).pop("args", None)
        return copy
    pod_spec = template.get("spec") or {}
    return {**template, "spec": {**pod_spec, "containers": [*(pod_spec.get("containers") or ()), server]}}
