"""What a TfJob makes: TF_CONFIG, the default PS, accelerators, TensorBoard, labels and owners (rules.md I.6 to I.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import IMAGE, NOW, RUNTIME_ID, UID, replicas, template, tfjob
from trainyard.core import Config, Observed, Plan, plan, render_object
from trainyard.kinds import TFJOB
from trainyard.kinds.pods.accelerators import add_accelerators
from trainyard.objects import Json, decode, encode, labels

PROGRAM = {"grpc_tensorflow_server.py": "# the server\n"}


def created_objects(job: Json, config: Config | None = None) -> dict[str, Json]:
    """Everything that the first pass makes, by name."""
    config = config or Config(program_files=PROGRAM)
    first: Plan = plan(TFJOB, job, Observed(config=config), NOW)
    stored = {**job, "status": first.status}
    return {
        f"{create.gvk.kind}/{create.name}": render_object(TFJOB, stored, create, config) for create in first.creates
    }


def container(obj: Json, name: str = "tensorflow") -> Json:
    template: Json = next(
        container for container in obj["spec"]["template"]["spec"]["containers"] if container["name"] == name
    )
    return template


def env(obj: Json, name: str = "tensorflow") -> list[tuple[str, str]]:
    return [(variable["name"], variable["value"]) for variable in container(obj, name).get("env", [])]


README = replicas("MASTER"), replicas("WORKER"), replicas("PS", 2)
CLUSTER = (
    '{"cluster":{"master":["master-76no-0:2222"],"ps":["ps-76no-0:2222","ps-76no-1:2222"],'
    '"worker":["worker-76no-0:2222"]},"task":{"type":"%s","index":%d},"environment":"cloud"}'
)


@pytest.mark.parametrize(("kind", "index"), [("master", 0), ("worker", 0), ("ps", 0), ("ps", 1)])
def test_tf_config_is_byte_for_byte_the_old_operators(kind: str, index: int) -> None:
    assert env(created_objects(tfjob(*README))[f"Job/{kind}-76no-{index}"]) == [("TF_CONFIG", CLUSTER % (kind, index))]


@pytest.mark.parametrize(("role", "task"), [("master", "chief"), ("worker", "worker"), ("ps", "ps")])
def test_the_master_may_be_called_chief_and_keeps_its_host_name(role: str, task: str) -> None:
    children = created_objects(tfjob(*README, masterTaskType="chief"))
    document = json.loads(env(children[f"Job/{role}-76no-0"])[0][1])
    assert document["cluster"]["chief"] == ["master-76no-0:2222"] and "master" not in document["cluster"]
    assert document["task"] == {"type": task, "index": 0}


def test_the_default_ps_serves_a_cluster_with_a_chief() -> None:
    command = container(
        created_objects(tfjob(replicas("MASTER"), replicas("PS"), masterTaskType="chief"))["Job/ps-76no-0"]
    )["command"]
    assert "chief|master-76no-0:2222,ps|ps-76no-0:2222" in command


def test_tf_config_sorts_task_types_with_their_own_ports_and_an_empty_list_for_zero_replicas() -> None:
    items = replicas("WORKER", 0, tfPort=3333), replicas("PS", 1, tfPort=4444), replicas("MASTER")
    value = env(created_objects(tfjob(*items))["Job/master-76no-0"])[0][1]
    cluster = '{"master":["master-76no-0:2222"],"ps":["ps-76no-0:4444"],"worker":[]}'
    assert value == f'{{"cluster":{cluster},"task":{{"type":"master","index":0}},"environment":"cloud"}}'


def test_a_type_that_the_spec_does_not_have_is_not_in_the_cluster() -> None:
    value = env(created_objects(tfjob(replicas("MASTER")))["Job/master-76no-0"])[0][1]
    assert json.loads(value)["cluster"] == {"master": ["master-76no-0:2222"]}


def test_every_container_tensorflow_gets_tf_config_after_the_users_variables_and_no_other_does() -> None:
    mine = {"name": "tensorflow", "image": IMAGE, "env": [{"name": "TF_CONFIG", "value": "mine"}]}
    containers = [mine, {"name": "sidecar", "image": "x", "env": [{"name": "A", "value": "1"}]}]
    init = [{"name": "tensorflow", "image": "x"}]
    job = tfjob(replicas("MASTER", template={"spec": {"containers": containers, "initContainers": init}}))
    master = created_objects(job)["Job/master-76no-0"]
    assert [name for name, _ in env(master)] == ["TF_CONFIG", "TF_CONFIG"] and env(master)[0][1] == "mine"
    assert env(master, "sidecar") == [("A", "1")]
    assert master["spec"]["template"]["spec"]["initContainers"] == init


def test_the_users_object_is_never_changed() -> None:
    job = tfjob(*README, tensorboard={"logDir": "/l"})
    before = encode(job)
    created_objects(job, Config({"gpu": {"envVars": [{"name": "A", "value": "1"}]}}, PROGRAM))
    assert encode(job) == before


def test_child_names_are_as_documented_in_creation_order() -> None:
    names = list(created_objects(tfjob(*README, tensorboard={"logDir": "/l"})))
    assert names[0] == "Service/tfjob-76no" and names[1] == "ConfigMap/cm-ps-76no"
    assert names[2:6] == ["Job/master-76no-0", "Job/worker-76no-0", "Job/ps-76no-0", "Job/ps-76no-1"]
    assert names[6:] == ["Service/tensorboard-76no", "Deployment/tensorboard-76no"]


def test_children_carry_the_documented_labels_on_themselves_and_on_their_pods() -> None:
    job = tfjob(replicas("MASTER"), replicas("PS", 2))
    ps = created_objects(job)["Job/ps-76no-1"]
    documented = {"tensorflow.org": "", "job_type": "PS", "runtime_id": RUNTIME_ID, "tf_job_name": "example-job"}
    ours = {labels.OWNER: UID, labels.ROLE: "PS", labels.INDEX: "1", labels.ATTEMPT: "0"}
    for meta in (ps["metadata"], ps["spec"]["template"]["metadata"]):
        assert meta["labels"] == {**documented, "task_index": "1", **ours}


def test_the_users_labels_and_annotations_are_kept_and_the_operators_override_them() -> None:
    given_template = {
        **template(),
        "metadata": {"labels": {"team": "a", "job_type": "x"}, "annotations": {"note": "b"}},
    }
    master = created_objects(tfjob(replicas("MASTER", template=given_template)))["Job/master-76no-0"]
    meta = master["spec"]["template"]["metadata"]
    assert meta["labels"]["team"] == "a" and meta["labels"]["job_type"] == "MASTER"
    assert meta["annotations"]["note"] == "b"


def test_every_child_has_the_job_as_its_controller() -> None:
    owner = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "name": "example-job", "uid": UID}
    for child in created_objects(tfjob(*README, tensorboard={"logDir": "/l"})).values():
        assert child["metadata"]["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": True}]
        assert child["metadata"]["namespace"] == "default"


def test_pods_resolve_each_other_through_one_headless_service() -> None:
    objects = created_objects(tfjob(replicas("MASTER"), replicas("WORKER", 3, tfPort=3333)))
    service = objects["Service/tfjob-76no"]["spec"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    assert [port["port"] for port in service["ports"]] == [2222, 3333]
    pod = objects["Job/worker-76no-2"]["spec"]["template"]
    assert labels.matches_labels(service["selector"], pod["metadata"]["labels"])
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("worker-76no-2", "tfjob-76no")
    assert pod["spec"]["dnsConfig"] == {"searches": ["tfjob-76no.default.svc.cluster.local"]}
    hosts = labels.expand_hosts(pod["metadata"]["annotations"][labels.HOSTS])
    assert hosts == ["master-76no-0", "worker-76no-0", "worker-76no-1", "worker-76no-2"]


def test_the_cluster_domain_is_configured_and_the_users_dns_is_kept() -> None:
    own = template(dnsConfig={"searches": ["corp.example"], "nameservers": ["10.0.0.1"]})
    config = Config(cluster_domain="k8s.corp")
    pod = created_objects(tfjob(replicas("MASTER", template=own)), config)["Job/master-76no-0"]["spec"]["template"][
        "spec"
    ]
    assert pod["dnsConfig"]["searches"] == ["tfjob-76no.default.svc.k8s.corp", "corp.example"]
    assert pod["dnsConfig"]["nameservers"] == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("policy", "master", "worker"),
    [("OnFailure", "Never", "OnFailure"), ("Never", "Never", "Never"), ("Always", "Never", "OnFailure"),
     (None, "Never", "OnFailure")],
)  # fmt: skip
def test_restart_policies_and_limits_of_the_batch_jobs(policy: str | None, master: str, worker: str) -> None:
    """S13, S14, S31: one Job object is one attempt where the slot decides; else the limit is the operator's."""
    own = template(restartPolicy=policy)
    objects = created_objects(tfjob(replicas("MASTER", template=own), replicas("WORKER", template=own), backoffLimit=3))
    for name, expected, limit in (("master", master, 0), ("worker", worker, 2147483647)):
        spec = objects[f"Job/{name}-76no-0"]["spec"]
        assert spec["template"]["spec"]["restartPolicy"] == expected
        assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, limit)


# --- the default PS


def test_a_ps_without_a_template_runs_the_shipped_server() -> None:
    objects = created_objects(tfjob(*README))
    assert objects["ConfigMap/cm-ps-76no"]["data"] == PROGRAM
    server = container(objects["Job/ps-76no-1"])
    cluster = "master|master-76no-0:2222,ps|ps-76no-0:2222;ps-76no-1:2222,worker|worker-76no-0:2222"
    program = "/ps-server/grpc_tensorflow_server.py"
    assert server["command"] == ["python", program, "--cluster_spec", cluster, "--job_name", "ps", "--task_id", "1"]
    assert server["image"] == IMAGE
    assert server["volumeMounts"] == [{"name": "ps-config-volume", "mountPath": "/ps-server"}]
    volumes = objects["Job/ps-76no-1"]["spec"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "ps-config-volume", "configMap": {"name": "cm-ps-76no"}}]


def test_the_default_ps_runs_the_jobs_tensorflow() -> None:
    assert container(created_objects(tfjob(*README, tfImage="mine:2"))["Job/ps-76no-0"])["image"] == "mine:2"


def test_a_ps_with_a_program_of_its_own_is_left_alone() -> None:
    objects = created_objects(tfjob(replicas("MASTER"), replicas("PS", template=template())))
    assert "ConfigMap/cm-ps-76no" not in objects
    assert "command" not in container(objects["Job/ps-76no-0"])


def test_a_server_is_added_beside_a_users_sidecar() -> None:
    pod = created_objects(tfjob(replicas("MASTER"), replicas("PS", template=template("proxy"))))["Job/ps-76no-0"]
    names = [container["name"] for container in pod["spec"]["template"]["spec"]["containers"]]
    assert names == ["proxy", "tensorflow"] and container(pod)["command"][0] == "python"


def test_a_ps_marked_as_default_keeps_its_image_and_gets_the_servers_command() -> None:
    own = {"spec": {"containers": [{"name": "tensorflow", "image": "mine", "command": ["x"]}]}}
    objects = created_objects(tfjob(replicas("MASTER"), replicas("PS", template=own, IsDefaultPS=True)))
    server = container(objects["Job/ps-76no-0"])
    assert server["image"] == "mine" and server["command"][:2] == ["python", "/ps-server/grpc_tensorflow_server.py"]
    assert "ConfigMap/cm-ps-76no" in objects


def test_defaults_are_stored_once_in_the_spelling_the_user_wrote() -> None:
    for spelling in ("replicaSpecs", "replica_specs"):
        job = tfjob()
        job["spec"] = {spelling: [replicas("MASTER"), {"tfReplicaType": "PS"}]}
        planned = plan(TFJOB, job, Observed(), NOW)
        patch: Any = planned.spec_patch
        assert patch.keys() == {spelling, "RuntimeId", "tfImage"}
        server = patch[spelling][1]
        assert (server["replicas"], server["tfPort"], server["IsDefaultPS"]) == (1, 2222, True)
        # kubectl apply takes it away again: it is not stored a second time (S29)
        assert plan(TFJOB, {**job, "status": planned.status}, Observed(), NOW).spec_patch is None


# --- accelerators

GPU = "alpha.kubernetes.io/nvidia-gpu"
LIB = {"name": "lib", "mountPath": "/usr/lib/nvidia", "hostPath": "/usr/lib/nvidia-384"}
ACCELERATORS: dict[str, Json] = {
    GPU: {"volumes": [LIB], "envVars": [{"name": "LD_LIBRARY_PATH", "value": "/usr/lib/nvidia"}]},
    "example.com/other": {"envVars": [{"name": "OTHER", "value": "1"}]},
}


def with_gpu(where: str, first: Json | None = None) -> Json:
    asking = {"name": "tensorflow", "image": "x", "resources": {where: {GPU: 0}}, **(first or {})}
    return tfjob(replicas("MASTER", template={"spec": {"containers": [asking]}}))


@pytest.mark.parametrize("where", ["limits", "requests"])
def test_a_container_that_names_an_accelerator_gets_its_volumes_mounts_and_variables(where: str) -> None:
    master = created_objects(with_gpu(where), Config(ACCELERATORS))["Job/master-76no-0"]
    pod = master["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "lib", "hostPath": {"path": "/usr/lib/nvidia-384"}}]
    assert container(master)["volumeMounts"] == [{"name": "lib", "mountPath": "/usr/lib/nvidia"}]
    assert [name for name, _ in env(master)] == ["LD_LIBRARY_PATH", "TF_CONFIG"]


def test_other_containers_do_not_get_accelerators() -> None:
    asking = {"resources": {"limits": {GPU: 1}}}
    containers = [{"name": "tensorflow", "image": "x"}, {"name": "sidecar", "image": "x", **asking}]
    master = created_objects(
        tfjob(replicas("MASTER", template={"spec": {"containers": containers}})), Config(ACCELERATORS)
    )
    pod = master["Job/master-76no-0"]["spec"]["template"]["spec"]
    assert "volumes" not in pod and all("volumeMounts" not in container for container in pod["containers"])


def test_a_volume_that_is_there_already_is_not_added_again() -> None:
    job = with_gpu("limits", {"volumeMounts": [{"name": "lib", "mountPath": "/usr/lib/nvidia"}]})
    job["spec"]["replicaSpecs"][0]["template"]["spec"]["volumes"] = [{"name": "lib", "emptyDir": {}}]
    master = created_objects(job, Config(ACCELERATORS))["Job/master-76no-0"]
    assert master["spec"]["template"]["spec"]["volumes"] == [{"name": "lib", "emptyDir": {}}]
    assert len(container(master)["volumeMounts"]) == 1


@settings(max_examples=60)
@given(st.sets(st.sampled_from(["a", "b", "c"])), st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True))
def test_accelerators_are_added_in_the_order_of_the_configuration(requested: set[str], configured: list[str]) -> None:
    container: Json = {"name": "tensorflow", "resources": {"limits": dict.fromkeys(requested, 1)}}
    whole: Json = {"spec": {"containers": [container]}}
    add_accelerators(whole, container, {name: {"envVars": [{"name": name, "value": 1}]} for name in configured})
    assert [pair["name"] for pair in container.get("env", [])] == [name for name in configured if name in requested]
    assert all(pair["value"] == "1" for pair in container.get("env", []))


# --- TensorBoard


@pytest.mark.parametrize("spelling", ["tensorboard", "tensorBoard"])
@pytest.mark.parametrize(
    ("given_type", "service_type"), [("", "ClusterIP"), (None, "ClusterIP"), ("LoadBalancer", "LoadBalancer")]
)
def test_tensorboard_is_a_deployment_and_a_service(spelling: str, given_type: str | None, service_type: str) -> None:
    board = {"logDir": "gs://x", "serviceType": given_type, "volumes": None, "volumeMounts": None}
    objects = created_objects(tfjob(replicas("MASTER"), **{spelling: board}))
    service = objects["Service/tensorboard-76no"]["spec"]
    assert service["type"] == service_type
    assert service["ports"] == [{"name": "tb-port", "port": 80, "targetPort": 6006}]
    deployment = objects["Deployment/tensorboard-76no"]["spec"]
    pod = deployment["template"]
    assert deployment["replicas"] == 1
    assert labels.matches_labels(deployment["selector"]["matchLabels"], pod["metadata"]["labels"])
    assert labels.matches_labels(service["selector"], pod["metadata"]["labels"])
    board_container = pod["spec"]["containers"][0]
    assert board_container["name"] == "tensorboard-76no" and board_container["image"] == IMAGE
    assert board_container["command"] == ["tensorboard", "--logdir", "gs://x", "--host", "0.0.0.0"]
    assert "env" not in board_container and "volumes" not in pod["spec"]


def test_tensorboard_is_deleted_on_suspend_and_created_on_resume() -> None:
    job = tfjob(replicas("MASTER"), tensorboard={"logDir": "/l"}, suspend=True)
    assert all("tensorboard" not in name for name in created_objects(job))


def test_rendered_objects_are_deterministic_json() -> None:
    job = tfjob(*README, tensorboard={"logDir": "/l"})
    assert encode(created_objects(job)) == encode(created_objects(job))
    assert decode(encode(created_objects(job))) == created_objects(job)


def test_a_child_of_another_spec_is_never_rendered() -> None:
    """A create of a plan that was made from another spec is refused, not guessed."""
    first = plan(TFJOB, tfjob(*README), Observed(), NOW)
    other = tfjob(replicas("MASTER"), status=first.status)
    gone = [create for create in first.creates if create.name.startswith("ps-")]
    assert len(gone) == 2
    for create in gone:
        with pytest.raises(ValueError, match="default/example-job"):
            render_object(TFJOB, other, create, Config())


def test_where_both_spellings_are_stored_all_the_same_the_job_fails() -> None:
    job = tfjob()
    job["spec"]["replica_specs"] = [replicas("MASTER"), replicas("WORKER", 5)]
    planned = plan(TFJOB, job, Observed(), NOW)
    assert planned.status["state"] == "Failed" and "write one of the two" in planned.status["reason"]
    assert sum(len(replica_status["ReplicasStates"]) for replica_status in planned.status["replicaStatuses"]) == 2
