"""Jobs of kubeflow.org as TrainJobs, checked with the schemas of Kubeflow Trainer 2.3.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conversion.jobs import CONVERSIONS, job, mpi_job
from tests.conversion.trainer_schemas import problems_of
from tests.support.samples import kubeflow_job, pods
from trainyard.conversion import KUBEFLOW, TRAINJOB, Conversion, convert, is_convertible
from trainyard.objects import Json

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
TO_TRAINJOB = [kind for kind, target in CONVERSIONS if target == TRAINJOB]
SAMPLES = [pytest.param(job(kind), id=f"{kind.gvk.kind}.{kind.gvk.version}.{kind.gvk.group}") for kind in TO_TRAINJOB]
FULL_POLICY = {
    "suspend": True,
    "activeDeadlineSeconds": 60,
    "ttlSecondsAfterFinished": 5,
    "backoffLimit": 3,
    "managedBy": "kueue.x-k8s.io/multikueue",
}


def unnamed(obj: Json) -> Json:
    return {**obj, "metadata": {"name": "example"}}


def torch_job(template: Json | None = None, run_policy: Json | None = None, policy: str = "OnFailure") -> Json:
    replica_set: dict[str, Any] = {"restartPolicy": policy, **({"template": template} if template else {})}
    roles: dict[str, Any] = {"Master": replica_set, "Worker": {"replicas": 2, **replica_set}}
    return unnamed(kubeflow_job("PyTorchJob", run_policy=run_policy, **roles))


def train_job(obj: Json) -> tuple[Json, Json | None]:
    """The TrainJob of a job and its own runtime, valid for Trainer; nothing is left unmapped."""
    conversion = convert(obj, TRAINJOB)
    assert conversion.unmapped == []
    for result in conversion.objects:
        assert problems_of(result) == []
    *runtimes, converted = conversion.objects
    return converted, runtimes[0] if runtimes else None


def unmapped(conversion: Conversion) -> list[str]:
    return [problem.path for problem in conversion.unmapped]


def env_of(container: Json) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]}


@pytest.mark.parametrize("obj", SAMPLES)
@pytest.mark.parametrize("run_policy", [{}, FULL_POLICY], ids=["without a policy", "with all policies"])
def test_every_sample_is_valid_for_trainer(obj: Json, run_policy: Json) -> None:
    old = obj["apiVersion"] not in ("kubeflow.org/v1", "kubeflow.org/v2beta1")
    policies = run_policy if old else {"runPolicy": run_policy}
    for result in convert({**obj, "spec": {**obj["spec"], **policies}}, TRAINJOB).objects:
        assert problems_of(result) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid_for_trainer(path: Path) -> None:
    for obj in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
        if obj and is_convertible(obj, TRAINJOB):
            for result in convert(obj, TRAINJOB).objects:
                assert problems_of(result) == []


def test_the_shipped_runtime_is_enough_for_what_a_train_job_has_itself() -> None:
    template = pods("pytorch", image="example.com/train:1", nodeSelector={"gpu": "yes"}, volumes=[{"name": "data"}])
    template["metadata"] = {"labels": {"team": "a"}}
    container = template["spec"]["containers"][0]
    container |= {"command": ["python", "train.py"], "args": ["-v"], "resources": {"limits": {"cpu": "2"}}}
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    converted, runtime = train_job(torch_job(template))
    assert runtime is None
    spec = converted["spec"]
    assert spec["runtimeRef"] == {"name": "torch-distributed"}
    trainer = {name: value for name, value in spec["trainer"].items() if name != "env"}
    assert trainer == {
        "numNodes": 3,
        "image": "example.com/train:1",
        "command": ["python", "train.py"],
        "args": ["-v"],
        "resourcesPerNode": {"limits": {"cpu": "2"}},
    }
    (patch,) = spec["runtimePatches"]
    (replicated_job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert replicated_job["template"]["spec"]["template"] == {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "volumes": [{"name": "data"}],
            "containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        },
    }


@pytest.mark.parametrize(
    ("template", "run_policy", "policy"),
    [
        (pods("pytorch", hostNetwork=True), None, "OnFailure"),
        (pods("pytorch", initContainers=[{"name": "fetch", "image": "x"}]), None, "OnFailure"),
        ({"spec": {"containers": [{"name": "pytorch", "image": "x", "workingDir": "/w"}]}}, None, "OnFailure"),
        ({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "pytorch", "image": "x"}]}}, None, "OnFailure"),
        (None, {"ttlSecondsAfterFinished": 1}, "OnFailure"),
        (None, {"backoffLimit": 1}, "OnFailure"),
        (None, {"schedulingPolicy": {"queue": "research"}}, "OnFailure"),
        (None, {"schedulingPolicy": {"scheduleTimeoutSeconds": 9}}, "OnFailure"),
        (None, None, "Never"),
        (None, None, "ExitCode"),
    ],
)
def test_what_the_shipped_runtime_cannot_have_is_in_a_runtime_of_the_jobs_own(
    template: Json | None, run_policy: Json | None, policy: str
) -> None:
    converted, runtime = train_job(torch_job(template, run_policy, policy))
    assert runtime is not None
    assert converted["spec"]["runtimeRef"] == {
        "name": "example",
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
    }
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 1, "torch": {}}
    (replicated_job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    labels = replicated_job["template"]["metadata"]["labels"]
    assert labels == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = next(c for c in replicated_job["template"]["spec"]["template"]["spec"]["containers"] if c["name"] == "node")
    assert node["image"]  # the SDK needs it
    text = json.dumps(runtime)
    for value in ("hostNetwork", "fetch", "workingDir"):
        assert (value in text) == (value in json.dumps(template))


@pytest.mark.parametrize(
    ("policy", "limit", "backoff_limit"),
    [("Never", None, 0), ("Never", 4, 0), ("OnFailure", 4, 4), ("ExitCode", 4, 4)],
)
def test_pods_restart_as_before(policy: str, limit: int | None, backoff_limit: int) -> None:
    run_policy = None if limit is None else {"backoffLimit": limit}
    _, runtime = train_job(torch_job(run_policy=run_policy, policy=policy))
    assert runtime
    spec = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == ("OnFailure" if policy == "OnFailure" else "Never")
    assert spec["backoffLimit"] == backoff_limit
    assert ("podFailurePolicy" in spec) == (policy == "ExitCode")
    if policy == "ExitCode":
        (rule,) = spec["podFailurePolicy"]["rules"]
        assert rule["onExitCodes"]["values"] == list(range(1, 128)) and rule["action"] == "FailJob"


@pytest.mark.parametrize(
    ("command", "has_variables"),
    [(["python", "train.py"], True), (["torchrun", "train.py"], False), (None, True)],
)
def test_a_program_without_torchrun_gets_the_variables_of_its_process_group(
    command: list[str] | None, has_variables: bool
) -> None:
    template = pods("pytorch")
    template["spec"]["containers"][0] |= {"command": command} if command else {}
    converted, _ = train_job(torch_job(template))
    env = env_of(converted["spec"]["trainer"])
    assert env.pop("PYTHONUNBUFFERED") == "1"
    assert bool(env) == has_variables
    if has_variables:
        assert env["MASTER_ADDR"] == "example-node-0-0.example" and env["WORLD_SIZE"] == "3"
        assert env["RANK"]["fieldRef"]["fieldPath"].endswith("['batch.kubernetes.io/job-completion-index']")


def test_variables_that_trainer_refuses_are_left_out_and_named() -> None:
    template = pods("pytorch")
    template["spec"]["containers"][0]["env"] = [{"name": "PET_NNODES", "value": "7"}, {"name": "A", "value": "b"}]
    conversion = convert(torch_job(template), TRAINJOB)
    env = env_of(conversion.objects[-1]["spec"]["trainer"])
    assert "PET_NNODES" not in env and env["A"] == "b"
    assert any("PET_NNODES" in note.text for note in conversion.notes)


def test_references_to_the_main_container_follow_its_name() -> None:
    template = pods("pytorch")
    reference = {"resourceFieldRef": {"containerName": "pytorch", "resource": "limits.cpu"}}
    template["spec"]["containers"][0]["env"] = [{"name": "CPUS", "valueFrom": reference}]
    converted, _ = train_job(torch_job(template))
    assert env_of(converted["spec"]["trainer"])["CPUS"]["resourceFieldRef"]["containerName"] == "node"


def worker_env(**env: Any) -> Json:
    """A container whose variables have a value, or a reference to a field."""
    template = pods("jax")
    variables = [
        {"name": name, **(value if isinstance(value, dict) else {"value": value})} for name, value in env.items()
    ]
    template["spec"]["containers"][0] |= {"env": variables, "args": ["--peer=example-worker-1:80", "example-worker-1x"]}
    return {"template": template, "replicas": 2, "restartPolicy": "OnFailure"}


def label(name: str) -> Json:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['training.kubeflow.org/{name}']"}}}


def test_host_names_and_labels_of_the_pods_are_those_of_a_train_job() -> None:
    worker = worker_env(
        JAX_COORDINATOR_ADDRESS="example-worker-0:6666",
        HOSTS="example-worker-0.team.svc.cluster.local,example-worker-1,example-worker-12,my-example-worker-0",
        JAX_PROCESS_ID=label("replica-index"),
        JOB=label("job-name"),
    )
    trainer = train_job(unnamed(kubeflow_job("JAXJob", Worker=worker)))[0]["spec"]["trainer"]
    env = env_of(trainer)
    assert env["JAX_COORDINATOR_ADDRESS"] == "example-node-0-0.example:6666"
    unknown = "example-worker-12,my-example-worker-0"
    assert env["HOSTS"] == f"example-node-0-0.example,example-node-0-1.example,{unknown}"
    assert env["JAX_PROCESS_ID"] == env["PROCESS_ID"]
    assert env["JOB"]["fieldRef"]["fieldPath"] == "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
    assert trainer["args"] == ["--peer=example-node-0-1.example:80", "example-worker-1x"]


def test_roles_keep_their_host_names_and_labels() -> None:
    worker = worker_env(FIRST="example-ps-0:2222", INDEX=label("replica-index"), ROLE=label("replica-type"))
    _, runtime = train_job(unnamed(kubeflow_job("TFJob", PS=1, Worker=worker)))
    assert runtime
    workers = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]
    env = env_of(workers["template"]["spec"]["template"]["spec"]["containers"][0])
    assert env["FIRST"] == "example-ps-0-0.example:2222"
    assert env["INDEX"] == env["TASK_INDEX"]
    assert env["ROLE"]["fieldRef"]["fieldPath"] == "metadata.labels['jobset.sigs.k8s.io/replicatedjob-name']"


def test_the_first_worker_of_paddle_is_elsewhere() -> None:
    _, runtime = train_job(
        unnamed(kubeflow_job("PaddleJob", Worker=worker_env(A="example-worker-0", B="example-worker-1")))
    )
    assert runtime
    env = env_of(
        runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][
            0
        ]
    )
    assert (env["A"], env["B"]) == ("example-first-0-0.example", "example-worker-0-0.example")


@pytest.mark.parametrize("name", ["replica-index", "replica-type"])
def test_a_label_that_counts_otherwise_is_reported(name: str) -> None:
    role = worker_env(INDEX=label(name))
    conversion = convert(unnamed(kubeflow_job("XGBoostJob", Master={**role, "replicas": 1}, Worker=role)), TRAINJOB)
    roles = ("Master", "Worker")
    assert unmapped(conversion) == [f"spec.xgbReplicaSpecs.{role}.template.spec" for role in roles]
    assert f"no label training.kubeflow.org/{name}" in conversion.unmapped[0].text


@pytest.mark.parametrize("has_servers", [False, True])
def test_all_replicas_have_to_succeed_where_the_job_says_so(has_servers: bool) -> None:
    roles: dict[str, Any] = {"Chief": 1, "Worker": 2, **({"PS": 1} if has_servers else {})}
    obj = unnamed(kubeflow_job("TFJob", **roles))
    obj["metadata"]["annotations"] = {"trainyard.dev/success-policy": "AllReplicas", "team": "a"}
    converted, runtime = train_job(obj)
    assert runtime and converted["metadata"]["annotations"] == {"team": "a"}
    success = runtime["spec"]["template"]["spec"]["successPolicy"]["targetReplicatedJobs"]
    assert success == (["chief"] if has_servers else ["chief", "worker"])


def test_a_worker_that_is_not_like_the_master_is_reported_field_by_field() -> None:
    obj = torch_job()
    worker = obj["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["containers"][0]["args"] = ["--worker"]
    worker["restartPolicy"] = "Never"
    assert unmapped(convert(obj, TRAINJOB)) == [
        "spec.pytorchReplicaSpecs.Worker.restartPolicy",
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].args",
    ]


@pytest.mark.parametrize(
    ("value", "processes", "paths"),
    [("4", 4, []), ("auto", None, []), (None, None, []), ("gpu", None, ["spec.nprocPerNode"])],
)
def test_processes_of_a_node(value: str | None, processes: int | None, paths: list[str]) -> None:
    obj = torch_job()
    obj["spec"] |= {} if value is None else {"nprocPerNode": value}
    conversion = convert(obj, TRAINJOB)
    assert unmapped(conversion) == paths
    assert conversion.objects[-1]["spec"]["trainer"].get("numProcPerNode") == processes


def test_an_elastic_job_keeps_its_rendezvous_and_reports_its_bounds() -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 2,
        "rdzvId": "r",
        "rdzvConf": [{"key": "a", "value": "b"}],
        "maxRestarts": 3,
        "nProcPerNode": 2,
        "standalone": True,
        "metrics": [{"type": "Resource"}],
    }
    roles: dict[str, Any] = {"Worker": {"replicas": 2, "restartPolicy": "OnFailure"}}
    conversion = convert(unnamed(kubeflow_job("PyTorchJob", elasticPolicy=policy, **roles)), TRAINJOB)
    assert unmapped(conversion) == ["spec.elasticPolicy.minReplicas", "spec.elasticPolicy.metrics"]
    trainer = conversion.objects[-1]["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 2)
    assert {name: value for name, value in env_of(trainer).items() if name.startswith("PET_")} == {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "example-node-0-0.example:29500",
        "PET_MAX_RESTARTS": "3",
        "PET_RDZV_ID": "r",
        "PET_RDZV_CONF": "a=b",
        "PET_STANDALONE": "",
    }


def test_run_policies_are_in_the_train_job_and_its_runtime() -> None:
    converted, runtime = train_job(torch_job(run_policy=FULL_POLICY))
    assert runtime
    spec = {name: value for name, value in converted["spec"].items() if name not in ("trainer", "runtimeRef")}
    assert spec == {"suspend": True, "activeDeadlineSeconds": 60, "managedBy": "kueue.x-k8s.io/multikueue"}
    assert runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] == 5


def test_a_queue_is_that_of_volcano() -> None:
    _, runtime = train_job(torch_job(run_policy={"schedulingPolicy": {"queue": "research"}}))
    assert runtime and runtime["spec"]["podGroupPolicy"] == {"volcano": {}}
    annotations = runtime["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"scheduling.volcano.sh/queue-name": "research"}


@pytest.mark.parametrize(
    ("roles", "fields", "success", "first_index"),
    [
        ({"Chief": 1, "PS": 2, "Worker": 2}, {}, ["chief"], False),
        ({"Master": 1, "Worker": 2}, {}, ["master"], False),
        ({"PS": 1, "Worker": 2}, {}, ["worker"], True),
        ({"PS": 1, "Worker": 2}, {"successPolicy": "AllWorkers"}, ["worker"], False),
        ({"Worker": 1}, {}, ["worker"], False),
    ],
)
def test_roles_of_tensorflow_are_replicated_jobs(
    roles: dict[str, Any], fields: Json, success: list[str], first_index: bool
) -> None:
    converted, runtime = train_job(unnamed(kubeflow_job("TFJob", **roles, **fields)))
    assert runtime and "trainer" not in converted["spec"]
    job_set = runtime["spec"]["template"]["spec"]
    assert job_set["successPolicy"] == {"operator": "All", "targetReplicatedJobs": success}
    jobs = {job["name"]: job["template"]["spec"] for job in job_set["replicatedJobs"]}
    assert {name: job["parallelism"] for name, job in jobs.items()} == {
        role.lower(): count for role, count in roles.items()
    }
    assert ("successPolicy" in jobs["worker"]) == first_index
    for name, replicated_job in jobs.items():
        container = replicated_job["template"]["spec"]["containers"][0]
        if sum(roles.values()) == 1:
            assert "env" not in container
            continue
        env = env_of(container)
        config = json.loads(env["TF_CONFIG"].replace("$(TASK_INDEX)", "1"))
        assert list(env) == ["TASK_INDEX", "TF_CONFIG"]  # in this order: the second refers to the first
        assert config["task"] == {"type": name, "index": 1}
        assert config["cluster"]["worker"][1] == "example-worker-0-1.example:2222"


def test_the_first_pod_of_paddle_serves_the_rendezvous_at_its_address() -> None:
    _, runtime = train_job(unnamed(kubeflow_job("PaddleJob", Master=1, Worker=3)))
    assert runtime
    job_set = runtime["spec"]["template"]["spec"]
    jobs = {job["name"]: job["template"]["spec"] for job in job_set["replicatedJobs"]}
    assert {name: job["parallelism"] for name, job in jobs.items()} == {"first": 1, "worker": 3}
    assert job_set["successPolicy"]["targetReplicatedJobs"] == ["first"]
    envs = {name: env_of(job["template"]["spec"]["containers"][0]) for name, job in jobs.items()}
    assert envs["first"]["PADDLE_MASTER"] == "$(POD_IP_DUMMY):36543"
    assert envs["worker"]["PADDLE_MASTER"] == "example-first-0-0.example:36543"
    assert [env["PADDLE_NNODES"] for env in envs.values()] == ["4", "4"]


def test_ranks_of_xgboost_follow_the_index_of_the_pod() -> None:
    restarts = {"restartPolicy": "OnFailure"}
    converted, _ = train_job(unnamed(kubeflow_job("XGBoostJob", Master=restarts, Worker={"replicas": 2, **restarts})))
    env = env_of(converted["spec"]["trainer"])
    assert (env["WORLD_SIZE"], env["MASTER_ADDR"]) == ("3", "example-node-0-0.example")
    assert env["WORKER_ADDRS"] == "example-node-0-1.example,example-node-0-2.example"


@pytest.mark.parametrize(("as_worker", "nodes"), [(False, 2), (True, 3)])
def test_workers_of_mpi_serve_ssh_and_the_launcher_starts_them(as_worker: bool, nodes: int) -> None:
    obj = mpi_job("v2beta1", slotsPerWorker=2, runLauncherAsWorker=as_worker)
    converted, runtime = train_job(obj)
    assert runtime and converted["spec"]["trainer"]["numNodes"] == nodes
    assert converted["spec"]["trainer"]["command"][0] == "mpirun"
    assert runtime["spec"]["mlPolicy"]["mpi"]["numProcPerNode"] == 2
    node, launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert launcher["template"]["metadata"]["labels"] and "dependsOn" not in launcher


def test_a_launcher_waits_for_workers_if_the_job_says_so() -> None:
    _, runtime = train_job(mpi_job("v2beta1", launcherCreationPolicy="WaitForWorkersReady"))
    assert runtime
    _, launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]


@pytest.mark.parametrize(("name", "image", "paths"), [("sidecar", "x", []), ("absent", None, ["spec.mainContainer"])])
def test_mpi_runs_in_the_main_container_of_a_worker(name: str, image: str | None, paths: list[str]) -> None:
    obj = mpi_job("v1", mainContainer=name)
    worker = obj["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"].append({"name": "sidecar", "image": "x"})
    conversion = convert(obj, TRAINJOB)
    assert unmapped(conversion) == paths
    node, _ = conversion.objects[0]["spec"]["template"]["spec"]["replicatedJobs"]
    containers = {
        container["name"]: container["image"]
        for container in node["template"]["spec"]["template"]["spec"]["containers"]
    }
    assert containers["node"] == (image or "example/train:1")


def test_workers_that_wait_for_exec_are_reported() -> None:
    obj = mpi_job("v1")
    container = obj["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["command"] = ["sleep", "365d"]
    assert unmapped(convert(obj, TRAINJOB)) == ["spec.mpiReplicaSpecs.Worker.template.spec.containers"]


def test_a_name_that_is_too_long_for_the_pods_is_reported() -> None:
    obj = {**torch_job(), "metadata": {"name": "a" * 49}}
    assert unmapped(convert(obj, TRAINJOB)) == ["metadata.name"]


def test_a_job_without_a_name_is_reported() -> None:
    obj = {**torch_job(), "metadata": {"generateName": "example-"}}
    assert unmapped(convert(obj, TRAINJOB)) == ["metadata.generateName"]


def test_a_train_job_is_not_converted_again() -> None:
    converted, _ = train_job(torch_job())
    assert not is_convertible(converted, TRAINJOB) and not is_convertible(torch_job(), KUBEFLOW)
