"""TfJob, ElasticJob and ChainerJob as kinds of kubeflow.org/v1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conversion.jobs import OLD_KINDS, job
from tests.support.builders import tfjob
from tests.support.samples import GPU, chainerjob, elasticjob, mxjob, pods, worker_set
from trainyard import kinds
from trainyard.conversion import KUBEFLOW, TRAINJOB, Conversion, convert
from trainyard.core import Kind
from trainyard.objects import Json


def converted(obj: Json) -> Json:
    """The job of a conversion without anything that is not mapped."""
    conversion = convert(obj, KUBEFLOW)
    assert conversion.unmapped == []
    (result,) = conversion.objects
    return result


def unmapped(conversion: Conversion) -> list[str]:
    return [problem.path for problem in conversion.unmapped]


def tf_job(*items: Json, **spec: Any) -> Json:
    obj = tfjob()
    return {**obj, "metadata": {"name": "example"}, "spec": {"replicaSpecs": list(items), **spec}}


def tf_set(replica_type: str, template: Json | None = None, **fields: Any) -> Json:
    return {"tfReplicaType": replica_type, "template": template or pods("tensorflow"), **fields}


@pytest.mark.parametrize("kind", OLD_KINDS, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")
def test_the_sample_of_every_kind_and_api_group_is_a_valid_job(kind: Kind) -> None:
    result = converted(job(kind))
    assert result["apiVersion"] == "kubeflow.org/v1" and result["metadata"] == {"name": "example"}
    new_kind = kinds.kind_of(result)
    assert new_kind is None or kinds.admit(new_kind, result)[1] == []


def test_what_an_api_server_has_written_is_left_out() -> None:
    metadata = {"name": "example", "uid": "1", "resourceVersion": "2", "managedFields": [], "labels": {"a": "b"}}
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}
    obj = {**elasticjob(), "metadata": {**metadata, "annotations": annotations}, "status": {"state": "Running"}}
    result = converted(obj)
    assert result["metadata"] == {"name": "example", "labels": {"a": "b"}, "annotations": {"kept": "yes"}}
    assert "status" not in result


@pytest.mark.parametrize(("task_type", "role"), [(None, "Master"), ("master", "Master"), ("chief", "Chief")])
def test_the_master_keeps_its_task_type(task_type: str | None, role: str) -> None:
    spec = {} if task_type is None else {"masterTaskType": task_type}
    result = converted(tf_job(tf_set("MASTER"), tf_set("WORKER", replicas=2), **spec))
    assert list(result["spec"]["tfReplicaSpecs"]) == [role, "Worker"]


@pytest.mark.parametrize(
    ("replica_type", "policy", "new_policy"),
    [
        ("MASTER", None, "ExitCode"),
        ("MASTER", "Never", "ExitCode"),
        ("MASTER", "Always", "ExitCode"),
        ("MASTER", "OnFailure", "OnFailure"),
        ("WORKER", "Never", "OnFailure"),
        ("WORKER", "OnFailure", "OnFailure"),
    ],
)
def test_replicas_restart_as_before(replica_type: str, policy: str | None, new_policy: str) -> None:
    template = pods("tensorflow", **({"restartPolicy": policy} if policy else {}))
    items = [tf_set(replica_type, template), *([tf_set("MASTER")] if replica_type != "MASTER" else [])]
    sets = converted(tf_job(*items))["spec"]["tfReplicaSpecs"]
    replica_set = sets["Master" if replica_type == "MASTER" else "Worker"]
    assert replica_set["restartPolicy"] == new_policy
    assert "restartPolicy" not in replica_set["template"]["spec"]


def test_a_port_becomes_a_named_port_of_the_container() -> None:
    template = pods("tensorflow")
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 4444}, {"containerPort": 80, "name": "web"}]
    (replica_set,) = converted(tf_job(tf_set("MASTER", template, tfPort=4444)))["spec"]["tfReplicaSpecs"].values()
    ports = replica_set["template"]["spec"]["containers"][0]["ports"]
    assert ports == [{"containerPort": 80, "name": "web"}, {"name": "tfjob-port", "containerPort": 4444}]


@pytest.mark.parametrize(
    ("ps", "names"),
    [
        ({"tfReplicaType": "PS", "replicas": 2}, ["tensorflow"]),
        (tf_set("PS", pods("sidecar", image="x")), ["sidecar", "tensorflow"]),
        (tf_set("PS", pods("tensorflow"), IsDefaultPS=True), ["tensorflow"]),
    ],
    ids=["without a template", "without the container", "IsDefaultPS"],
)
def test_a_default_parameter_server_is_a_program_in_the_manifest(ps: Json, names: list[str]) -> None:
    master = tf_set("MASTER", pods("tensorflow", serviceAccountName="trainer"))
    result = converted(tf_job(master, ps, tfImage="tensorflow/tensorflow:2.21.0"))
    containers = result["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"]
    server = containers[-1]
    assert server["name"] == "tensorflow" and server["command"][:2] == ["python", "-c"]
    assert "TF_CONFIG" in server["command"][2]
    assert [container["name"] for container in containers] == names
    if "template" not in ps:
        assert server["image"] == "tensorflow/tensorflow:2.21.0"


def test_a_tensorboard_is_reported_and_not_lost_in_silence() -> None:
    conversion = convert(tf_job(tf_set("MASTER"), tensorboard={"logDir": "/logs"}), KUBEFLOW)
    assert unmapped(conversion) == ["spec.tensorboard"]
    assert "Deployment" in conversion.unmapped[0].text


def test_a_job_without_a_limit_gives_up_as_early_as_before() -> None:
    assert converted(tf_job(tf_set("MASTER")))["spec"]["runPolicy"] == {"backoffLimit": 6}
    assert converted(tf_job(tf_set("MASTER"), backoffLimit=0))["spec"]["runPolicy"] == {"backoffLimit": 0}


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("etcd-service:2379", "etcd-service", 2379),
        ("etcd-service", "etcd-service", 2379),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("[::1]:80", "[::1]", 80),
        ("[::1]", "[::1]", 2379),
    ],
)
def test_the_endpoint_of_the_rendezvous_is_split(endpoint: str, host: str, port: int) -> None:
    policy = converted(elasticjob(rdzvEndpoint=endpoint))["spec"]["elasticPolicy"]
    assert (policy["rdzvBackend"], policy["rdzvHost"], policy["rdzvPort"]) == ("etcd", host, port)
    assert (policy["minReplicas"], policy["maxReplicas"], policy["rdzvId"]) == (2, 2, "example")


@pytest.mark.parametrize(
    ("command", "has_arguments"),
    [
        (None, True),
        (["python", "-m", "torchelastic.distributed.launch"], True),
        (["torchrun"], False),
        (["/opt/bin/torchrun", "train.py"], False),
        (["python", "-m", "torch.distributed.run"], False),
        (["sh", "-c", "exec torchrun train.py"], False),
    ],
)
def test_a_launcher_that_may_not_read_variables_gets_arguments(command: list[str] | None, has_arguments: bool) -> None:
    template = pods("elasticjob-worker")
    template["spec"]["containers"][0] |= {"args": ["train.py"], **({"command": command} if command else {})}
    sets = converted(elasticjob(worker={"template": template}))["spec"]["pytorchReplicaSpecs"]
    args = sets["Worker"]["template"]["spec"]["containers"][0]["args"]
    assert args[-1] == "train.py"
    assert ("--rdzv_endpoint=$(PET_RDZV_ENDPOINT)" in args) == has_arguments


def test_policies_are_read_where_the_operator_reads_them() -> None:
    obj = elasticjob(suspend=True, runPolicy={"suspend": False, "backoffLimit": 1}, RunPolicy={"backoffLimit": 2})
    assert converted(obj)["spec"]["runPolicy"] == {"backoffLimit": 1, "suspend": True}


def test_programs_read_the_labels_of_their_pods_under_the_new_names() -> None:
    template = pods("elasticjob-worker")
    source = {"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}
    template["spec"]["containers"][0]["env"] = [{"name": "RANK", "valueFrom": source}]
    obj = elasticjob(worker={"template": template}, rdzvBackend="none", rdzvEndpoint=None)
    spec = converted(obj)["spec"]
    assert "elasticPolicy" not in spec
    (variable,) = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['training.kubeflow.org/replica-index']"


def test_workers_without_a_policy_are_not_restarted() -> None:
    obj = elasticjob(worker={"restartPolicy": None})
    assert converted(obj)["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("manager", "new_manager", "paths"),
    [
        ("trainyard.dev/operator", "kubeflow.org/training-operator", []),
        ("kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/multikueue", []),
        ("example.com/another", None, ["spec.managedBy"]),
    ],
)
def test_a_manager_is_one_of_the_new_api(manager: str, new_manager: str | None, paths: list[str]) -> None:
    conversion = convert(elasticjob(managedBy=manager), KUBEFLOW)
    assert unmapped(conversion) == paths
    assert conversion.objects[0]["spec"].get("runPolicy", {}).get("managedBy") == new_manager


def test_a_master_of_chainer_becomes_a_launcher_and_one_worker_more() -> None:
    spec = converted(chainerjob({"ws0": worker_set(2), "ws1": worker_set(1)}))["spec"]
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 4
    assert spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["name"] == "mpi"
    assert spec["slotsPerWorker"] == 1


def test_limits_of_the_master_precede_those_of_the_job() -> None:
    master = {"template": pods("chainer"), "backoffLimit": 1}
    spec = converted(chainerjob(master=master, backoffLimit=5, activeDeadlineSeconds=9))["spec"]
    assert spec["runPolicy"] == {"activeDeadlineSeconds": 9, "backoffLimit": 1}


def test_slots_are_the_gpus_as_before() -> None:
    template = pods("chainer")
    template["spec"]["containers"][0]["resources"] = {"limits": {GPU: 4}}
    spec = converted(chainerjob({"a": worker_set(template=template)}, master={"template": template}))["spec"]
    assert spec["slotsPerWorker"] == 4


def test_a_job_of_one_pod_has_workers_only_if_it_starts_mpi() -> None:
    assert "Worker" not in converted(chainerjob({}))["spec"]["mpiReplicaSpecs"]
    template = pods("chainer")
    template["spec"]["containers"][0]["command"] = ["mpiexec", "-n", "2", "python", "train.py"]
    sets = converted(chainerjob({}, master={"template": template, "mpiConfig": {"slots": 2}}))["spec"]
    assert sets["mpiReplicaSpecs"]["Worker"]["replicas"] == 1 and sets["slotsPerWorker"] == 2


def test_worker_sets_that_one_role_cannot_be_are_reported() -> None:
    other = pods("chainer", image="another")
    sets = {"a": worker_set(), "b": worker_set(template=other, mpiConfig={"slots": 3})}
    assert unmapped(convert(chainerjob(sets), KUBEFLOW)) == [
        "spec.workerSets.b.mpiConfig.slots",
        "spec.workerSets.b.template.spec.containers[0].image",
    ]


@pytest.mark.parametrize("target", [KUBEFLOW, TRAINJOB])
def test_an_mx_job_stays_as_it_is(target: str) -> None:
    conversion = convert(mxjob(), target)
    assert conversion.objects == [] and unmapped(conversion) == ["kind"]
    assert "keep the MxJob" in conversion.unmapped[0].text


def test_a_name_that_the_new_kind_cannot_have_is_reported() -> None:
    obj = {**tf_job(tf_set("MASTER")), "metadata": {"name": "1st"}}
    assert unmapped(convert(obj, KUBEFLOW)) == ["TFJob metadata.name"]
