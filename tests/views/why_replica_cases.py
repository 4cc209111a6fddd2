"""Findings of `why` about pods, their controllers, a rendezvous, and a job without problems."""

from __future__ import annotations

from typing import Any

from tests.views.why_values import (
    RUNNING,
    WORKERS,
    Case,
    at,
    child,
    elastic,
    ended,
    pod,
    pytorch,
    refused,
    template,
    tfjob,
    unplaced,
    waits,
)
from trainyard.objects import Json
from trainyard.views.diagnosis import BLOCK, FINE, WAIT, Endpoint

LOOP: dict[str, Any] = {"restartCount": 4, "lastState": ended(1)}
TRACE = ("Traceback (most recent call last):", "ValueError: no data")
NODES: tuple[dict[str, Any], ...] = ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, {"status": {}})
QUOTA = 'pods "mnist" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3'


def chainer() -> Json:
    sets = {"ws": {"replicas": 2, "template": template("chainer")}}
    spec = {"backend": "mpi", "master": {"template": template("chainer")}, "workerSets": sets}
    return {**tfjob(RUNNING), "apiVersion": "kubeflow.org/v1alpha1", "kind": "ChainerJob", "spec": spec}


def evicted() -> Json:
    failed_pod = pod("WORKER-0", {"state": {}}, "Failed")
    failed_pod["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    return failed_pod


def initial() -> Json:
    pending_pod = pod("MASTER-0", waits("PodInitializing"), "Pending")
    status = {"name": "prepare", "restartCount": 2, "lastState": ended(127), **waits("CrashLoopBackOff")}
    pending_pod["status"]["initContainerStatuses"] = [status]
    return pending_pod


REPLICA_CASES = (
    # --- pods
    Case(
        "no node",
        tfjob(RUNNING),
        (unplaced("MASTER-0", "no node is ready"),),
        BLOCK,
        (
            "master-0: no node fits its pod (unschedulable)",
            "no node is ready",
            "1 of 2 nodes are ready",
            "status.conditions[PodScheduled]",
        ),
        {"nodes": NODES},
    ),
    Case(
        "too little of something",
        tfjob(RUNNING),
        (unplaced("MASTER-0", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),),
        BLOCK,
        ("Insufficient nvidia.com/gpu", "resources.requests"),
    ),
    Case(
        "a taint",
        tfjob(RUNNING),
        (unplaced("MASTER-0", "1 node(s) had untolerated taint {gpu: true}"),),
        BLOCK,
        ("toleration",),
    ),
    Case(
        "an image without an entry",
        tfjob(RUNNING),
        (pod("MASTER-0", waits("ErrImageNeverPull", "no catalogue has an entry for the image"), "Pending"),),
        BLOCK,
        ("no command, and no catalogue says", "registry/x:1", "--images", "state.waiting"),
        {"process_nodes": frozenset({"here"})},
    ),
    Case(
        "an image that cannot be pulled",
        tfjob(RUNNING),
        (pod("MASTER-0", waits("ImagePullBackOff", "not found"), "Pending"),),
        BLOCK,
        ("cannot be pulled (ImagePullBackOff)", "imagePullSecrets"),
    ),
    Case(
        "a reference to nothing",
        tfjob(RUNNING),
        (pod("MASTER-0", waits("CreateContainerConfigError", 'configmap "c" not found'), "Pending"),),
        BLOCK,
        (
            'configmap "c" not found',
            "there is no ConfigMap c (CreateContainerConfigError)",
            "kubectl create configmap c",
        ),
    ),
    Case(
        "an image that takes long",
        tfjob(RUNNING),
        (pod("MASTER-0", waits("ContainerCreating"), "Pending"),),
        WAIT,
        ("being prepared for 2m", "image: registry/x:1"),
    ),
    Case(
        "a crash loop with its last lines",
        tfjob(RUNNING),
        (pod("WORKER-1", waits("CrashLoopBackOff", **LOOP)),),
        BLOCK,
        (
            "worker-1: its program ends and is started again, 4 times so far; exit code 1",
            "ValueError: no data",
            "lastState.terminated.exitCode=1",
        ),
        {"logs": {("p-WORKER-1", "tensorflow"): TRACE}},
    ),
    Case(
        "a crash loop of an init container",
        tfjob(RUNNING),
        (initial(),),
        BLOCK,
        ("master-0: its program ends", "exit code 127", "container prepare", "command was not found"),
    ),
    Case(
        "it was restarted and runs",
        tfjob(RUNNING),
        (pod("MASTER-0", {"state": {"running": {}}, **LOOP, "restartCount": 1}), *WORKERS),
        FINE,
        ("started again once", "30s ago", "trainyard logs -p tfjob/mnist", "it runs fine"),
    ),
    Case(
        "a pod that does not go",
        tfjob(RUNNING),
        (pod("MASTER-0", deletionTimestamp=at(300)),),
        BLOCK,
        ("does not end, 5m after its grace period", "metadata.deletionTimestamp"),
    ),
    Case(
        "a pod that has failed in a job that goes on",
        tfjob(RUNNING),
        (pod("WORKER-0", {"state": ended(139)}, "Failed"),),
        WAIT,
        ("worker-0: its pod has failed, and is made again later; it ended with exit code 139", "SIGSEGV"),
    ),
    Case(
        "a pod that ended with the process of its node",
        tfjob(RUNNING),
        (pod("WORKER-0", {"state": ended(137, "ContainerStatusUnknown")}, "Failed"),),
        WAIT,
        ("ContainerStatusUnknown): the process of its node that ran it ended", "nothing needs to be"),
        {"process_nodes": frozenset({"here"})},
    ),
    Case(
        "an environment that `run` does not try again",
        tfjob(RUNNING),
        (pod("MASTER-0", waits("ErrImagePull", "the package index cannot be reached"), "Pending"),),
        BLOCK,
        ("cannot be provided on this machine", "and run it again"),
        {"process_nodes": frozenset({"here"}), "cluster_ends": True},
    ),
    Case("an eviction", tfjob(RUNNING), (evicted(),), WAIT, ("Evicted", "low on resource: memory")),
    Case(
        "a refused pod",
        tfjob(RUNNING),
        (),
        BLOCK,
        ("no pod can be created for Job master-abcd-0", "exceeded quota: small", "raise the quota"),
        {"children": (child("Job", "master-abcd-0"),), "events": (refused("c", QUOTA),)},
    ),
    Case(
        "a Job without a pod",
        tfjob(RUNNING),
        (),
        BLOCK,
        ("Job master-abcd-0 has created no pod yet",),
        {"children": (child("Job", "master-abcd-0"),)},
    ),
    Case(
        "workers that are not ready",
        chainer(),
        (pod("ws-0", container="chainer"),),
        WAIT,
        ("1 of 2 workers of j-workerset-ws are ready", "status.readyReplicas"),
        {"children": (child("StatefulSet", "j-workerset-ws", spec={"replicas": 2}, status={"readyReplicas": 1}),)},
    ),
    # --- a rendezvous
    Case(
        "nobody at the endpoint",
        elastic(RUNNING),
        (pod("Worker-0", container="elasticjob-worker"), pod("Worker-1", container="elasticjob-worker")),
        BLOCK,
        ("there is no Service etcd-service", "spec.rdzvEndpoint: etcd-service:2379"),
        {"endpoint": Endpoint("etcd-service:2379", "spec.rdzvEndpoint", "etcd-service", True, False)},
    ),
    Case(
        "nobody ready behind the endpoint",
        elastic(RUNNING),
        (pod("Worker-0", container="elasticjob-worker"), pod("Worker-1", container="elasticjob-worker")),
        WAIT,
        ("no pod behind Service etcd-service is ready",),
        {"endpoint": Endpoint("etcd-service:2379", "spec.rdzvEndpoint", "etcd-service", True, True, 0)},
    ),
    Case(
        "fewer than the least",
        elastic(RUNNING),
        (pod("Worker-0", container="elasticjob-worker"),),
        BLOCK,
        ("1 of at least 2 replicas run", "spec.minReplicas"),
    ),
    Case(
        "fewer than the least of a PyTorchJob",
        pytorch(RUNNING),
        (pod("Worker-0", container="pytorch"),),
        BLOCK,
        ("1 of at least 2 replicas run", "spec.elasticPolicy.minReplicas"),
    ),
    Case(
        "nobody at the endpoint of a PyTorchJob",
        pytorch(RUNNING),
        (pod("Worker-0", container="pytorch"), pod("Worker-1", container="pytorch")),
        BLOCK,
        ("there is no Service etcd-service", "spec.elasticPolicy.rdzvHost: etcd-service:2379"),
        {"endpoint": Endpoint("etcd-service:2379", "spec.elasticPolicy.rdzvHost", "etcd-service", True, False)},
    ),
    Case(
        "its output speaks of the rendezvous",
        elastic(RUNNING),
        (pod("Worker-0", container="elasticjob-worker"), pod("Worker-1", container="elasticjob-worker")),
        WAIT,
        ("cannot reach the etcd of its rendezvous", "worker-0"),
        {"logs": {("p-Worker-0", "elasticjob-worker"): ("etcd.EtcdConnectionFailed: Connection to etcd failed",)}},
    ),
    Case(
        "a slot without a pod that the operator would make",
        elastic(RUNNING),
        (pod("Worker-0", container="elasticjob-worker"),),
        BLOCK,
        ("worker-1: no pod is there", "pod mnist-worker-1"),
    ),
    # --- all is well
    Case(
        "it runs",
        tfjob(RUNNING),
        (pod("MASTER-0"), pod("WORKER-0"), pod("WORKER-1")),
        FINE,
        ("it runs fine for 3m: 3 of 3 replicas run",),
    ),
    Case(
        "it runs towards a deadline",
        tfjob(RUNNING, activeDeadlineSeconds=600),
        (pod("MASTER-0"), *WORKERS),
        FINE,
        (f"activeDeadlineSeconds stops it at {at(-400)}",),
    ),
    Case(
        "some have ended well",
        tfjob(RUNNING),
        (pod("MASTER-0"), pod("WORKER-0", {"state": ended(0, "Completed")}, "Succeeded"), WORKERS[1]),
        FINE,
        ("2 of 3 replicas run, 1 ended well",),
    ),
    Case("it is being set up", tfjob(("Created", "JobCreated", "x")), (), WAIT, ("being set up",)),
)
