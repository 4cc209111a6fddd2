"""Scenarios of Trainer's TrainJob: jobs called `tj`, on the runtimes that Trainer ships or on one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.drop_in.scenario import (
    DELETE,
    TOUCH,
    TRAINER,
    Scenario,
    failed,
    merged,
    patch,
    pods,
    running,
    succeeded,
)
from trainyard.objects import Json

TRAIN_JOBS = "trainjob"
API = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
IMAGE = "example.com/train:1"
TORCH, JAX, XGBOOST, DEEPSPEED = (f"{name}-distributed" for name in ("torch", "jax", "xgboost", "deepspeed"))
TUNE = "torchtune-llama3.2-1b"
OWN: Json = {"name": "own", "kind": "TrainingRuntime"}
START: Json = running("tj-*", **{"from": "Pending"})
FINISH: Json = pods("Succeeded", "tj-*", exitCode=0, **{"from": "Running"})
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def scenario(name: str, manifest: Json, *steps: Json, objects: tuple[Json, ...] = ()) -> Scenario:
    return Scenario(TRAIN_JOBS, name, manifest, steps, TRAINER, objects=objects)


def job(runtime: str | Json = TORCH, name: str = "tj", metadata: Json | None = None, **spec: Any) -> Json:
    reference = {"name": runtime} if isinstance(runtime, str) else runtime
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"runtimeRef": reference, **spec},
    }


def trained(runtime: str | Json = TORCH, **trainer: Any) -> Json:
    """A job with this `spec.trainer`."""
    return job(runtime, trainer=trainer)


def replicated_job(
    name: str = "node",
    ancestor: str = "trainer",
    container: Json | None = None,
    pod: Json | None = None,
    job_spec: Json | None = None,
    **more: Any,
) -> Json:
    """One with a container of the name that its ancestor requires. `pod` is merged into the pod's spec, `job_spec` into
    that of the Job."""
    main = {"name": "node" if ancestor in ("trainer", "") else ancestor, "image": IMAGE, **(container or {})}
    metadata = {"metadata": {"labels": {ANCESTOR: ancestor}}} if ancestor else {}
    spec = merged({"template": {"spec": merged({"containers": [main]}, pod or {})}}, job_spec or {})
    return {"name": name, "template": {**metadata, "spec": spec}, **more}


def runtime(policy: Json | None, *jobs: Json, name: str = "own", labels: Json | None = None, **more: Any) -> Json:
    """A TrainingRuntime. `more`: further fields of the JobSet's spec, and `podGroupPolicy`."""
    groups = {"podGroupPolicy": more.pop("podGroupPolicy")} if "podGroupPolicy" in more else {}
    template = {"spec": {**more, "replicatedJobs": list(jobs) or [replicated_job()]}}
    spec = {**({} if policy is None else {"mlPolicy": policy}), **groups, "template": template}
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": API, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def cluster_runtime(policy: Json | None, *jobs: Json, **more: Any) -> Json:
    return {**runtime(policy, *jobs, **more), "kind": "ClusterTrainingRuntime"}


def runtime_patch(manager: str = "acme.io/team", pod: Json | None = None, name: str = "node", **template: Any) -> Json:
    """A patch of one replicated job: `pod` is merged into the pod's spec, `template` are other fields of the patched
    JobSet template, or of the pod template where it is called `podMetadata`."""
    pod_template: Json = {} if pod is None else {"spec": pod}
    if "podMetadata" in template:
        pod_template["metadata"] = template.pop("podMetadata")
    patched_job = {"name": name, "template": {"spec": {"template": pod_template}}}
    spec = {"spec": {"replicatedJobs": [patched_job]}} if pod_template else {}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {**template, **spec}}}


def patched(*patches: Json, on: str | Json = TORCH, **spec: Any) -> Json:
    return job(on, runtimePatches=list(patches), **spec)


def env(**values: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


def trainjobs() -> Iterator[Scenario]:
    yield from definitions()
    yield from refusals()
    yield from tune_refusals()
    yield from runtimes()
    yield from torch()
    yield from other_frameworks()
    yield from mpi()
    yield from tune()
    yield from patches()
    yield from gangs()
    yield from lives()
    yield from ends()


def definitions() -> Iterator[Scenario]:
    """What the definitions say of a job."""
    yield scenario("defaults", job())
    for what, name in (("digit", "1a"), ("upper", "A"), ("dash", "a-"), ("dot", "a.b"), ("64-letters", "a" * 64)):
        yield scenario(f"name-{what}", job(name=name))
    yield scenario("name-of-60-letters", job(name="a" * 60))
    yield scenario("name-of-48-letters", job(name="a" * 48))
    yield scenario("managed-by-unknown", job(managedBy="x"))
    yield scenario("managed-by-multikueue", job(managedBy=MULTIKUEUE), TOUCH)
    yield scenario("deadline-zero", job(activeDeadlineSeconds=0))
    yield scenario("deadline-changed", job(activeDeadlineSeconds=600), patch(activeDeadlineSeconds=5))
    for name, uri in (("no-scheme", "foo/bar"), ("no-path", "hf://"), ("empty", ""), ("whole", "hf://a/b")):
        yield scenario(f"storage-uri-{name}", job(TUNE, initializer={"dataset": {"storageUri": uri}}))
    changes = (patch(trainer={"numNodes": 3}), patch(runtimeRef={"name": JAX}), patch(managedBy=MULTIKUEUE))
    yield scenario("fixed-fields", trained(numNodes=2), *changes, patch(initializer={"model": {}}))
    yield scenario("trainer-added-later", job(), patch(trainer={"numNodes": 3}))
    yield scenario("nodes-negative", trained(numNodes=-1))
    yield scenario("nodes-zero", trained(numNodes=0))
    yield scenario("processes-zero", trained(numNodes=1, numProcPerNode=0))


def refusals() -> Iterator[Scenario]:
    """What Trainer's webhook refuses, and what it does not."""
    yield scenario("runtime-missing", job("nope"))
    yield scenario("runtime-missing-in-namespace", job({"name": "nope", "kind": "TrainingRuntime"}))
    yield scenario("runtime-of-unknown-kind", job({"name": "nope", "kind": "Foo"}))
    yield scenario("runtime-of-unknown-group", job({"name": "nope", "apiGroup": "acme.io"}))
    deprecated = cluster_runtime({}, name="old", labels={"trainer.kubeflow.org/support": "deprecated"})
    yield scenario("runtime-deprecated", job("old"), objects=(deprecated,))
    yield scenario("reserved-torch", trained(env=env(PET_NNODES="3")))
    yield scenario("reserved-torch-several", trained(env=env(PET_NODE_RANK="1", A="1", PET_MASTER_ADDR="x")))
    yield scenario("reserved-xgboost", trained(XGBOOST, env=env(DMLC_TASK_ID="1", A="1", DMLC_NUM_WORKER="2")))
    reserved = env(OMPI_MCA_plm_rsh_args="-v", OMPI_MCA_orte_set_default_slots="3")
    yield scenario("reserved-mpi", trained(DEEPSPEED, env=reserved))
    yield scenario("reserved-nothing-jax", trained(JAX, env=env(JAX_PROCESS_ID="7")))
    both = {"dataset": {"storageUri": "hf://a/b"}, "model": {"storageUri": "hf://c/d"}}
    yield scenario("initializers-without-jobs", job(initializer=both))
    no_container = replicated_job("dataset-initializer", "")
    yield scenario("initializer-without-container", job(OWN, initializer=both), objects=(runtime({}, no_container),))
    no_mount = replicated_job("dataset-initializer", "dataset-initializer")
    objects = (runtime({}, no_mount, replicated_job()),)
    yield scenario("initializer-without-mount", job(OWN, initializer=both), objects=objects)
    for container in ("node", "x"):
        pod = {"containers": [{"name": container, "env": env(A="1")}]}
        yield scenario(f"patch-env-of-{container}", patched(runtime_patch(pod=pod)))
    pod = {"initContainers": [{"name": "x", "env": env(A="1")}]}
    yield scenario("patch-env-of-unknown-init", patched(runtime_patch(pod=pod)))
    yield scenario("patch-unknown-job", patched(runtime_patch(pod={"nodeSelector": {"a": "b"}}, name="x")))
    for name, manager in (("plain", "foo"), ("ends-with-slash", "a.b/"), ("upper", "A.b/c"), ("good", "a.b/c")):
        yield scenario(f"manager-{name}", patched(runtime_patch(manager)))
    yield scenario("manager-twice", patched(runtime_patch("a.b/c"), runtime_patch("a.b/c")))
    launcher = replicated_job("launcher")
    mpi_policy = {"mpi": {"runLauncherAsNode": True}}
    yield scenario("mpi-without-node", trained(OWN, numNodes=2), objects=(runtime(mpi_policy, launcher),))
    targets = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["x"]}]}}}
    yield scenario("injection-of-unknown-container", trained(OWN), objects=(runtime(targets),))
    several = patched(runtime_patch("foo", pod={"containers": [{"name": "node", "env": env(A="1")}]}))
    several["spec"]["trainer"] = {"env": env(PET_NNODES="3")}
    yield scenario("several-problems", several)
    volcano: Json = {"podGroupPolicy": {"volcano": {}}, "name": "volcano"}
    no_class = runtime({}, replicated_job(pod={"priorityClassName": "nope"}), **volcano)
    yield scenario("volcano-unknown-priority", job({**OWN, "name": "volcano"}), objects=(no_class,))
    annotation: Json = {"annotations": {"scheduling.volcano.sh/queue-name": ""}}
    empty_queue = patched(runtime_patch(metadata=annotation), on={**OWN, "name": "volcano"})
    yield scenario("volcano-empty-queue", empty_queue, objects=(runtime({}, **volcano),))


def tune_refusals() -> Iterator[Scenario]:
    command = ["tune", "run"]
    lora = ["model.lora_attn_modules=[q_proj]"]
    qlora = [*lora, "model.quantize_base=True"]
    yield scenario("tune-on-torch", trained(command=command))
    yield scenario("tune-two-nodes", trained(TUNE, command=command, numNodes=2))
    yield scenario("tune-lora-two-nodes", trained(TUNE, command=command, numNodes=2, args=lora))
    yield scenario("tune-qlora-two-gpus", trained(TUNE, command=command, args=qlora))
    yield scenario("tune-qlora-qwen", trained("torchtune-qwen2.5-1.5b", command=command, args=qlora))
    yield scenario("tune-fixed-argument", trained(TUNE, command=command, args=["epochs=1", "output_dir=x"]))


def runtimes() -> Iterator[Scenario]:
    """The definitions and the webhook of runtimes."""

    def make(name: str, manifest: Json, *steps: Json) -> Scenario:
        return Scenario("trainingruntime", name, manifest, steps, TRAINER)

    yield make("plain", runtime(None))
    yield make("defaults-mpi", runtime({"mpi": {}}))
    yield make("defaults-coscheduling", runtime({}, podGroupPolicy={"coscheduling": {}}))
    yield make("two-policies", runtime({"torch": {}, "mpi": {}}))
    yield make("mpi-intel", runtime({"mpi": {"mpiImplementation": "Intel"}}))
    yield make("injection-of-node", runtime({"torch": {"envInjection": {"targets": [
        {"jobName": "node", "containerNames": ["node"]}]}}}))  # fmt: skip
    yield make("replicas-two", runtime({}, replicated_job(replicas=2)))
    yield make("replicas-two-without-label", runtime({}, replicated_job("other", "", replicas=2), replicated_job()))
    yield make("without-required-container", runtime({}, replicated_job(container={"name": "x"})))
    order: Json = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    depends = [{"name": "a", "status": "Complete"}]
    first, second = replicated_job("a", ""), replicated_job(dependsOn=depends)
    yield make("order-and-depends-on", runtime({}, first, second, **order))
    yield make("flux-zero-processes", runtime({"flux": {"numProcPerNode": 0}}))
    yield make("without-spec", {**runtime(None), "spec": {}})
    change = {"patch": {"spec": {"template": {"spec": {"replicatedJobs": [replicated_job(replicas=2)]}}}}}
    yield make("update-is-not-checked", runtime({}), change)
    network = {"patch": {"spec": {"template": {"spec": {"network": {"subdomain": "other"}}}}}}
    yield make("network-is-fixed", runtime({}, network={"subdomain": "sub"}), network)


def torch() -> Iterator[Scenario]:
    yield scenario("torch-two-nodes", trained(numNodes=2))
    yield scenario("torch-variable", trained(numNodes=2, env=env(A="1")))
    source = {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    key = {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}
    share = {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "node"}}}
    yield scenario("torch-variables-from-elsewhere", trained(env=[source, key, share]))
    with_env = runtime({"torch": {}}, replicated_job(container={"env": env(A="1", B="2", PET_NNODES="9")}))
    yield scenario("torch-variables-of-runtime", trained(OWN, env=env(A="9", C="3")), objects=(with_env,))
    yield scenario("torch-image-command-args", trained(image="i:2", command=["a", "b"], args=["c"]))
    own_command = runtime({"torch": {}}, replicated_job(container={"command": ["old"], "args": ["old"]}))
    yield scenario("torch-args-alone", trained(OWN, args=["new"]), objects=(own_command,))
    yield scenario("torch-empty-args", trained(OWN, args=[], command=[]), objects=(own_command,))
    for name, resources in (
        ("fractional-cpu", {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1500m"}}),
        ("request-and-limit", {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}),
        ("limit-alone", {"limits": {"cpu": "4"}}),
        ("memory-alone", {"limits": {"memory": "1Gi"}}),
        ("gpus", {"limits": {"nvidia.com/gpu": "4"}}),
        ("amd-gpus", {"limits": {"amd.com/gpu": 2}}),
    ):
        yield scenario(f"torch-processes-{name}", trained(resourcesPerNode=resources))
    gpus = {"limits": {"nvidia.com/gpu": "4"}}
    yield scenario("torch-processes-given", trained(numProcPerNode=3, resourcesPerNode=gpus))
    has_gpus = replicated_job(container={"resources": {"limits": {"nvidia.com/gpu": "2"}}})
    with_gpus = runtime({"torch": {}}, has_gpus)
    yield scenario("torch-processes-of-runtime", trained(OWN, numNodes=2), objects=(with_gpus,))
    yield scenario(
        "torch-processes-cpu-over-gpus", trained(OWN, resourcesPerNode={"limits": {"cpu": "4"}}), objects=(with_gpus,)
    )
    injection = {"torch": {"envInjection": {"targets": [
        {"jobName": "node", "containerNames": ["sidecar", "setup"]}]}}}  # fmt: skip
    sidecars = replicated_job(
        pod={
            "containers": [{"name": "node", "image": IMAGE}, {"name": "sidecar", "image": IMAGE}],
            "initContainers": [{"name": "setup", "image": IMAGE, "env": env(PET_NNODES="1")}],
        }
    )
    yield scenario("torch-injection", trained(OWN, numNodes=2), objects=(runtime(injection, sidecars),))
    ports = [{"containerPort": 8080}, {"name": "http", "containerPort": 8081}]
    own_ports = runtime({"torch": {}}, replicated_job(container={"ports": ports}))
    yield scenario("torch-unnamed-port", trained(OWN), objects=(own_ports,))
    same_port = runtime({"torch": {}}, replicated_job(container={"ports": [{"name": "x", "containerPort": 29500}]}))
    yield scenario("torch-port-of-the-same-number", trained(OWN), objects=(same_port,))
    many = runtime({"numNodes": 3, "torch": {}}, replicated_job(job_spec={"parallelism": 7}))
    yield scenario("torch-nodes-of-runtime", trained(OWN), objects=(many,))
    yield scenario("torch-nodes-of-runtime-without-trainer", job(OWN), objects=(many,))
    network = runtime({"torch": {}}, network={"subdomain": "sub", "publishNotReadyAddresses": False})
    yield scenario("torch-own-subdomain", trained(OWN, numNodes=2), objects=(network,))
    other = replicated_job("workers")
    yield scenario("torch-job-of-another-name", trained(OWN, numNodes=2), objects=(runtime({"torch": {}}, other),))
    labelled = merged(
        runtime({"torch": {}}), {"spec": {"template": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}}}
    )
    metadata = {"labels": {"mine": "x"}, "annotations": {"mine": "y"}}
    yield scenario("torch-labels", job(OWN, metadata=metadata, trainer={}), objects=(labelled,))
    yield scenario("torch-with-cache", trained("torch-distributed-with-cache", numNodes=2))


def other_frameworks() -> Iterator[Scenario]:
    yield scenario("jax-three-nodes", trained(JAX, numNodes=3, env=env(X="1")))
    yield scenario("jax-without-trainer", job(JAX))
    user = env(JAX_NUM_PROCESSES="9", X="1")
    yield scenario("jax-own-variables", trained(JAX, numNodes=2, env=user))
    gpus = {"limits": {"nvidia.com/gpu": "2"}}
    yield scenario("xgboost-gpus", trained(XGBOOST, numNodes=2, resourcesPerNode=gpus, env=env(X="1")))
    yield scenario("xgboost-cpu", trained(XGBOOST, numNodes=3))
    yield scenario("xgboost-without-trainer", job(XGBOOST))
    plain = runtime({"numNodes": 2}, replicated_job(container={"env": env(A="1")}))
    yield scenario("plain", trained(OWN, env=env(A="2", B="3")), objects=(plain,))
    yield scenario("plain-nodes", trained(OWN, numNodes=3), objects=(plain,))
    cpu = {"limits": {"cpu": "1"}}
    bare = runtime(None, replicated_job(container={"resources": {"limits": {"memory": "1Gi"}}}))
    yield scenario("no-policy", trained(OWN, numNodes=2, env=env(A="1"), resourcesPerNode=cpu), objects=(bare,))
    yield scenario("plain-resources", trained(OWN, resourcesPerNode=cpu), objects=(merged(bare, {
        "spec": {"mlPolicy": {}}}),))  # fmt: skip
    parallel = runtime(None, replicated_job(job_spec={"parallelism": 3, "completions": 5}), replicated_job("b", ""))
    yield scenario("no-policy-parallelism", job(OWN), objects=(parallel,))


def mpi() -> Iterator[Scenario]:
    yield scenario("mpi-defaults", job(DEEPSPEED))
    yield scenario("mpi-one-node", trained(DEEPSPEED, numNodes=1))
    command = ["mpirun", "-n", "4", "python", "t.py"]
    yield scenario("mpi-three-nodes", trained(DEEPSPEED, numNodes=3, numProcPerNode=2, command=command))
    gpus = {"limits": {"nvidia.com/gpu": "4"}}
    yield scenario("mpi-gpus", trained(DEEPSPEED, numNodes=2, resourcesPerNode=gpus, env=env(X="1")))
    yield scenario("mlx", trained("mlx-distributed", numNodes=2, image="mine:1"))
    node = replicated_job("node", "", container={"command": ["/usr/sbin/sshd"]})
    launcher = replicated_job("launcher", dependsOn=[{"name": "node", "status": "Ready"}])
    alone = runtime({"numNodes": 2, "mpi": {"numProcPerNode": 3}}, node, launcher)
    yield scenario("mpi-launcher-alone", trained(OWN, numNodes=2, env=env(X="1")), objects=(alone,))
    yield scenario("mpi-launcher-alone-defaults", job(OWN), objects=(alone,))


def tune() -> Iterator[Scenario]:
    command = ["tune", "run"]
    lora = ["model.lora_attn_modules=[q_proj]"]
    one_gpu, two_gpus = ({"limits": {"nvidia.com/gpu": count}} for count in ("1", "2"))

    def builtin(name: str, runtime_name: str = TUNE, **trainer: Any) -> Scenario:
        return scenario(f"tune-{name}", trained(runtime_name, command=command, **trainer))

    yield builtin("one-gpu", resourcesPerNode=one_gpu, args=["dtype=bf16"])
    yield builtin("two-gpus", resourcesPerNode=two_gpus)
    yield builtin("runtime-gpus")
    yield builtin("one-process", numProcPerNode=1)
    yield builtin("cpu", resourcesPerNode={"limits": {"cpu": "3"}})
    yield builtin("lora-one-gpu", resourcesPerNode=one_gpu, args=lora)
    yield builtin("lora-two-gpus", resourcesPerNode=two_gpus, args=lora)
    yield builtin("qlora-one-gpu", resourcesPerNode=one_gpu, args=[*lora, "model.quantize_base=true"])
    yield builtin(
        "dora-one-gpu", resourcesPerNode=one_gpu, args=[*lora, "model.quantize_base=True", "model.use_dora=True"]
    )
    yield builtin("qwen", "torchtune-qwen2.5-1.5b", resourcesPerNode=one_gpu)
    yield builtin("3b", "torchtune-llama3.2-3b")
    yield scenario("tune-defaults", job(TUNE))
    dataset = {"storageUri": "hf://x/y", "env": env(ACCESS_TOKEN="t"), "secretRef": {"name": "s"}}
    yield scenario("tune-dataset", job(TUNE, initializer={"dataset": dataset}))
    both = {"dataset": {"env": env(STORAGE_URI="s3://mine/1")}, "model": {"storageUri": "hf://m/n"}}
    yield scenario("tune-both-initializers", job(TUNE, initializer=both))


def patches() -> Iterator[Scenario]:
    """runtimePatches."""
    tolerations = [{"key": "t", "operator": "Exists"}]
    pod = {"nodeSelector": {"a": "b"}, "tolerations": tolerations}
    yield scenario("patch-selector", patched(runtime_patch(pod=pod, podMetadata={"labels": {"c": "d"}})))
    both = {"labels": {"a": "1"}, "annotations": {"b": "2"}}
    yield scenario("patch-job-set-metadata", patched(runtime_patch(metadata=both)))
    job_metadata: Json = {"spec": {"replicatedJobs": [{"name": "node", "template": {"metadata": both}}]}}
    yield scenario("patch-job-metadata", patched(runtime_patch(**job_metadata)))
    sidecar = replicated_job(
        pod={
            "containers": [
                {"name": "node", "image": IMAGE},
                {"name": "a", "image": IMAGE, "env": env(X="0", Y="0")},
                {"name": "b", "image": IMAGE},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
            "tolerations": [{"key": "old", "operator": "Exists"}],
            "nodeSelector": {"old": "1"},
        }
    )
    base = runtime({"torch": {}}, sidecar)
    first = runtime_patch("acme.io/one", pod={"containers": [{"name": "b", "env": env(Z="1")}, {
        "name": "a", "env": env(Z="1", X="1")}]})  # fmt: skip
    second = runtime_patch("acme.io/two", pod={"containers": [{"name": "a", "env": env(Z="2")}]})
    yield scenario("patch-of-two-managers", patched(first, second, on=OWN), objects=(base,))
    volumes = {
        "volumes": [{"name": "n", "configMap": {"name": "c"}}, {"name": "v", "emptyDir": {"medium": "Memory"}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    }
    yield scenario("patch-volumes", patched(runtime_patch(pod=volumes), on=OWN), objects=(base,))
    more = {
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "p"}],
        "securityContext": {"runAsUser": 7},
        "terminationGracePeriodSeconds": 3,
        "schedulingGates": [{"name": "g.h/i"}],
        "tolerations": tolerations,
        "nodeSelector": {"new": "2"},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname"}]}},
    }  # fmt: skip
    yield scenario("patch-everything", patched(runtime_patch(pod=more), on=OWN), objects=(base,))
    steps = [runtime_patch("acme.io/init", pod={"nodeSelector": {"x": "y"}}, name="model-initializer")]
    yield scenario("patch-of-an-initializer", patched(*steps, on=TUNE))
    other = patch(runtimePatches=[runtime_patch(pod={"nodeSelector": {"later": "1"}})])
    yield scenario("patch-while-running", job(trainer={}), START, other)
    resume = patch(suspend=False, runtimePatches=[runtime_patch(pod={"nodeSelector": {"later": "1"}})])
    yield scenario("patch-and-resume", job(trainer={}, suspend=True), other, resume, START)
    affinity = patch(suspend=False, runtimePatches=[runtime_patch(pod={"affinity": more["affinity"]})])
    yield scenario("patch-affinity-and-resume", job(trainer={}, suspend=True), affinity)


def gangs() -> Iterator[Scenario]:
    requests = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    initializer = replicated_job("prepare", "", container={"resources": requests})
    jobs = (initializer, replicated_job(container={"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}}}))
    for name, policy in (
        ("coscheduling", {"coscheduling": {}}),
        ("coscheduling-timeout", {"coscheduling": {"scheduleTimeoutSeconds": 9}}),
        ("volcano", {"volcano": {}}),
        ("volcano-topology", {"volcano": {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}}),
    ):
        objects = (runtime({"torch": {}}, *jobs, podGroupPolicy=policy),)
        yield scenario(f"gang-{name}", trained(OWN, numNodes=3), objects=objects)
    queued = merged(runtime({"torch": {}}, *jobs, podGroupPolicy={"volcano": {}}), {
        "spec": {"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}}}})  # fmt: skip
    yield scenario("gang-volcano-queue", trained(OWN, numNodes=2), objects=(queued,))


def lives() -> Iterator[Scenario]:
    """Jobs whose pods move through their phases."""
    two = trained(numNodes=2)
    yield scenario("life-success", two, START, FINISH, TOUCH)
    yield scenario("life-one-of-two-runs", two, running("tj-node-0-0-*"))
    no_retry = runtime({"torch": {}}, replicated_job(job_spec={"backoffLimit": 0}))
    second = "tj-node-0-1-*"
    failure = trained(OWN, numNodes=2)
    yield scenario("life-failure", failure, START, failed(second), TOUCH, objects=(no_retry,))
    restarts = (running(second, restarts=count) for count in (5, 6, 7))
    yield scenario("life-restarts-in-place", two, START, *restarts)
    two_retries = runtime({"torch": {}}, replicated_job(job_spec={"backoffLimit": 2}))
    spread = (running("tj-node-0-0-*", restarts=1), running(second, restarts=1), running(second, restarts=2))
    yield scenario("life-restarts-of-two-pods", failure, START, *spread, objects=(two_retries,))
    restarting = runtime({"torch": {}}, replicated_job(job_spec={"backoffLimit": 0}), failurePolicy={"maxRestarts": 1})
    again = running("tj-node-0-*", **{"from": "Pending"})
    yield scenario("life-max-restarts", failure, START, failed(second), again, failed(second), objects=(restarting,))
    rules = [{"name": "stop", "action": "FailJobSet", "targetReplicatedJobs": ["node"]}]
    ruled = merged(restarting, {"spec": {"template": {"spec": {"failurePolicy": {"rules": rules}}}}})
    yield scenario("life-fail-by-rule", failure, START, failed(second), objects=(ruled,))
    action = {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureMessagePatterns": ["limit"]}
    unlimited = {"rules": [{"name": "again", **action}]}
    ruled = merged(no_retry, {"spec": {"template": {"spec": {"failurePolicy": unlimited}}}})
    yield scenario("life-restart-by-rule", failure, START, failed(second), again, objects=(ruled,))
    one_retry = runtime({"torch": {}}, replicated_job(job_spec={"backoffLimit": 1}), failurePolicy={"maxRestarts": 1})
    in_place = running(second, restarts=1)
    yield scenario("life-max-restarts-in-place", failure, START, in_place, again, in_place, objects=(one_retry,))
    yield scenario(
        "life-mpi", trained(DEEPSPEED, numNodes=2), running("tj-node-*"), running("tj-launcher-*"),
        succeeded("tj-launcher-*"),
    )  # fmt: skip
    initializers = ("tj-dataset-initializer-*", "tj-model-initializer-*")
    steps = [step for name in initializers for step in (running(name), succeeded(name))]
    yield scenario("life-initializers", job(TUNE), *steps, running("tj-node-*"), succeeded("tj-node-*"))
    first = replicated_job("a", "", job_spec={"backoffLimit": 0})
    depends = replicated_job(dependsOn=[{"name": "a", "status": "Complete"}])
    fails = (running("tj-a-*"), failed("tj-a-*"))
    yield scenario("life-dependency-fails", job(OWN), *fails, objects=(runtime({}, first, depends),))
    last = {**depends, **replicated_job(job_spec={"backoffLimit": 0})}
    ordered = runtime({}, first, last, failurePolicy={"maxRestarts": 1})
    twice = (running("tj-a-*"), succeeded("tj-a-*"), running("tj-node-*"), failed("tj-node-*"), running("tj-a-*"))
    yield scenario("life-restart-of-an-initializer", job(OWN), *twice, succeeded("tj-a-*"), objects=(ordered,))
    any_of = runtime({}, replicated_job("a", ""), replicated_job(), successPolicy={
        "operator": "Any", "targetReplicatedJobs": ["a", "node"]})  # fmt: skip
    yield scenario("life-success-of-any", job(OWN), START, succeeded("tj-a-*"), objects=(any_of,))


def ends() -> Iterator[Scenario]:
    """Suspension and deletion."""
    two = trained(numNodes=2)
    resume, suspend = patch(suspend=False), patch(suspend=True)
    yield scenario("suspended-at-creation", {**two, "spec": {**two["spec"], "suspend": True}}, resume, START, FINISH)
    yield scenario("suspended-while-running", two, START, suspend, resume, START)
    yield scenario("suspended-with-claims", job(TUNE, suspend=True), resume)
    yield scenario("suspended-after-its-end", two, START, FINISH, suspend)
    yield scenario("deletion", trained(DEEPSPEED, numNodes=2), DELETE)


EXAMPLE = "example-"


def from_documents(name: str, documents: list[Json]) -> Iterator[Scenario]:
    """The TrainJobs among the documents of an example, with their runtimes."""
    trainer = [item for item in documents if str(item.get("apiVersion", "")).startswith("trainer.kubeflow.org/")]
    objects = tuple(item for item in trainer if item["kind"] != "TrainJob")
    for item in trainer:
        if item["kind"] == "TrainJob":
            yield scenario(f"{EXAMPLE}{name}", item, objects=objects)
