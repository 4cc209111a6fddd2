"""Scenarios of MPIJob: v1 of the training-operator, and v2beta1 of the mpi-operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.drop_in.jobs import GANGS, IMAGE, MPIJOB, MPIJOB2
from tests.drop_in.scenario import (
    DELETE,
    FINISH,
    RESUME,
    START,
    SUSPEND,
    TOUCH,
    VOLCANO,
    Scenario,
    deleted,
    evicted,
    failed,
    merged,
    patch,
    pods,
    policy,
    running,
    succeeded,
    wait,
)
from trainyard.objects import Json

WORKERS, LAUNCHER = "j-worker-*", "j-launcher*"
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def mpi() -> Iterator[Scenario]:
    make, job = MPIJOB.scenario, MPIJOB.job
    yield make("slots", job({"slotsPerWorker": 4}))
    yield make("main-container", job({"mainContainer": "mpi"}))
    yield make("clean-policy-of-spec", job({"cleanPodPolicy": "All"}), START, succeeded(LAUNCHER))
    both = {"cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": "None"}}
    yield make("clean-policy-twice", job(both), START, succeeded(LAUNCHER))
    yield make("launcher-with-gpu", job(Launcher=MPIJOB.replicas(1, container=GPU), Worker=2))
    yield make("workers-with-gpu", job(Launcher=1, Worker=MPIJOB.replicas(2, container=GPU)))
    command = MPIJOB.replicas(2, container={"command": ["/usr/sbin/sshd", "-D"]})
    yield make("worker-command", job(Launcher=1, Worker=command))
    arguments = MPIJOB.replicas(2, container={"args": ["365d"]})
    yield make("worker-args", job(Launcher=1, Worker=arguments))
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
    own = MPIJOB.replicas(1, {"template": {"spec": {"serviceAccountName": "mine"}}})
    yield make("launcher-own-account", job(Launcher=own, Worker=1), objects=[account])
    yield make("launcher-own-account-absent", job(Launcher=own, Worker=1))
    yield make("hosts-discovered", job(), running("j-worker-1"), running("j-worker-0"), running(LAUNCHER))
    yield make("launcher-first", job(), running(LAUNCHER), running(WORKERS), succeeded(LAUNCHER))
    yield make("launcher-evicted", job(), START, evicted(LAUNCHER))
    yield make("workers-evicted", job(), START, evicted(WORKERS))
    yield make("launcher-fails", job(), START, failed(LAUNCHER, 1), wait(1))
    yield make("config-map-taken", job(), objects=[config_map()])
    yield make("worker-succeeds-first", job(), START, succeeded("j-worker-1"), succeeded(LAUNCHER))


def config_map() -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j-config"}, "data": {"mine": "1"}}


def mpi_v2() -> Iterator[Scenario]:
    yield from _v2_templates()
    yield from _v2_lives()
    yield from _v2_policies()
    yield from _v2_gangs()


def _v2_templates() -> Iterator[Scenario]:
    make, job, replicas = MPIJOB2.scenario, MPIJOB2.job, MPIJOB2.replicas
    yield make("defaults", job(), START, succeeded(LAUNCHER))
    for implementation in ("OpenMPI", "Intel", "MPICH", "Mine"):
        for as_worker in (False, True):
            spec: Json = {"mpiImplementation": implementation, "slotsPerWorker": 2, "runLauncherAsWorker": as_worker}
            title = f"implementation-{implementation}{'-launcher-as-worker' if as_worker else ''}".lower()
            yield make(title, job(spec), running(WORKERS))
    yield make("ssh-mount-path", job({"sshAuthMountPath": "/home/mpiuser/.ssh"}))
    yield make("slots-zero", job({"slotsPerWorker": 0}))
    yield make("slots-negative", job({"slotsPerWorker": -1}))
    user = replicas(2, container={"securityContext": {"runAsUser": 1000}})
    yield make(
        "worker-user", job(Launcher=replicas(1, container={"securityContext": {"runAsUser": 1000}}), Worker=user)
    )
    yield make("worker-command", job(Launcher=1, Worker=replicas(2, container={"command": ["sleep"], "args": ["1"]})))
    yield make("worker-args", job(Launcher=1, Worker=replicas(2, container={"args": ["-f"]})))
    env = [{"name": name, "value": "mine"} for name in ("K_MPI_JOB_ROLE", "OMPI_MCA_orte_default_hostfile", "OTHER")]
    yield make("env-own", MPIJOB2.everywhere(container={"env": env}))
    sidecar = {"name": "sidecar", "image": IMAGE}
    two = {"template": {"spec": {"containers": [{"name": "mpi", "image": IMAGE}, sidecar]}}}
    yield make("containers-two", MPIJOB2.everywhere(two))
    setup = {"template": {"spec": {"initContainers": [{"name": "setup", "image": IMAGE}]}}}
    yield make("containers-own-init", MPIJOB2.everywhere(setup))
    own = {"labels": {"team": "a", "training.kubeflow.org/job-name": "mine"}, "annotations": {"note": "b"}}
    yield make("template-metadata", MPIJOB2.everywhere({"template": {"metadata": own}}))
    host = {"template": {"spec": {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}}}
    yield make("template-host-network", MPIJOB2.everywhere(host))
    dns = {"template": {"spec": {"dnsConfig": {"searches": ["example.com"]}, "hostname": "mine", "subdomain": "mine"}}}
    yield make("template-dns", MPIJOB2.everywhere(dns))
    yield make("template-restart-policy", MPIJOB2.everywhere({"template": {"spec": {"restartPolicy": "Always"}}}))
    yield make("template-gpu", MPIJOB2.everywhere(container=GPU))
    yield make(
        "launcher-priority", job(Launcher=replicas(1, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}), Worker=1)
    )
    yield make("job-metadata", job(metadata={"labels": {"team": "a"}, "annotations": {"note": "b"}}))
    yield from _v2_refusals()


def _v2_refusals() -> Iterator[Scenario]:
    make, job, replicas = MPIJOB2.scenario, MPIJOB2.job, MPIJOB2.replicas
    for policy_name in ("Never", "OnFailure", "Always", "ExitCode"):
        yield make(f"restart-policy-{policy_name}".lower(), MPIJOB2.everywhere({"restartPolicy": policy_name}))
    yield make("roles-launcher-only", job(Launcher=1), START, succeeded(LAUNCHER))
    yield make("roles-launcher-only-as-worker", job({"runLauncherAsWorker": True}, Launcher=1))
    yield make("roles-workers-only", job(Worker=2))
    yield make("roles-lower-case", job(launcher=1, worker=1))
    yield make("roles-unknown", job(Launcher=1, Worker=1, Helper=1))
    yield make("replicas-none", job(Launcher=replicas(None), Worker=replicas(None)))
    yield make("replicas-two-launchers", job(Launcher=2, Worker=1))
    yield make("replicas-zero-workers", job(Launcher=1, Worker=0))
    yield make("containers-none", MPIJOB2.everywhere({"template": {"spec": {"containers": []}}}))
    yield make("name-not-a-dns-label", job(name="9.j"))
    yield make("name-long", job(name="j" + "0123456789" * 6))
    yield make("name-taken-secret", job(), objects=[_taken("Secret", "j-ssh")])
    yield make("name-taken-config-map", job(), objects=[config_map()])
    yield make(
        "name-taken-service", job(), objects=[merged(_taken("Service", "j"), {"spec": {"ports": [{"port": 1}]}})]
    )


def _taken(kind: str, name: str) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def _v2_lives() -> Iterator[Scenario]:
    make, job = MPIJOB2.scenario, MPIJOB2.job
    waits: dict[str, Any] = {"launcherCreationPolicy": "WaitForWorkersReady"}
    yield make(
        "launcher-waits-for-workers",
        job(waits),
        running("j-worker-0"),
        running("j-worker-1"),
        START,
        succeeded(LAUNCHER),
    )
    yield make("launcher-at-startup", job({"launcherCreationPolicy": "AtStartup"}), running(LAUNCHER), running(WORKERS))
    yield make("launcher-creation-unknown", job({"launcherCreationPolicy": "Later"}))
    yield make("hosts-discovered", job(), running("j-worker-1"), running("j-worker-0"), deleted("j-worker-1"))
    yield make("worker-fails", job(), START, failed("j-worker-1", 1))
    yield make(
        "worker-fails-on-failure", MPIJOB2.everywhere({"restartPolicy": "OnFailure"}), START, failed("j-worker-1", 1)
    )
    yield make("worker-deleted", job(), START, deleted("j-worker-1"), START)
    yield make("worker-evicted", job(), START, evicted("j-worker-1"))
    yield make("worker-succeeds-first", job(), START, succeeded("j-worker-1"), succeeded(LAUNCHER))
    none = {"runPolicy": {"backoffLimit": 0}}
    yield make("launcher-fails", job(none), START, failed(LAUNCHER, 1))
    yield make("launcher-fails-with-message", job(none), START, failed(LAUNCHER, 137))
    yield make("launcher-evicted", job(none), START, evicted(LAUNCHER))
    yield make("launcher-deleted", job(), START, deleted(LAUNCHER), wait(1))
    workers = patch(mpiReplicaSpecs={"Worker": {"replicas": 3}})
    yield make("scale-up", job(), START, workers, START)
    yield make("scale-down", job(), START, patch(mpiReplicaSpecs={"Worker": {"replicas": 1}}))
    yield make("deleted-while-running", job(), START, DELETE)
    yield make("suspend-at-creation", MPIJOB2.with_policy(suspend=True), RESUME, START, succeeded(LAUNCHER))
    yield make("suspend-while-running", job(), START, SUSPEND, RESUME, START, succeeded(LAUNCHER))
    yield make("suspend-after-success", job(), START, succeeded(LAUNCHER), SUSPEND)
    other = patch(
        mpiReplicaSpecs={
            role: {"template": {"spec": {"nodeSelector": {"pool": "spot"}}}} for role in ("Launcher", "Worker")
        }
    )
    yield make("suspend-and-template-changed", MPIJOB2.with_policy(suspend=True), other, RESUME)
    yield make("suspend-waiting-launcher", job({**waits, "runPolicy": {"suspend": True}}), RESUME, running(WORKERS))


def _v2_policies() -> Iterator[Scenario]:
    make, job = MPIJOB2.scenario, MPIJOB2.job
    for name in ("All", "Running", "None", "Some"):
        run_policy: Json = {"runPolicy": {"cleanPodPolicy": name, "backoffLimit": 0}}
        mixed = (running(LAUNCHER, "j-worker-0"),)  # one worker waits
        end = () if name == "Some" else (*mixed, succeeded(LAUNCHER), TOUCH)
        yield make(f"clean-{name}-success".lower(), job(run_policy), *end)
        if name in ("All", "None"):
            yield make(f"clean-{name}-failure".lower(), job(run_policy), *mixed, failed(LAUNCHER, 1), TOUCH)
    for name in ("kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue", "example.com/mine"):
        yield make(f"managed-by-{name.rpartition('/')[2]}", MPIJOB2.with_policy(managedBy=name))
    yield make("managed-by-changed", job(), policy(managedBy="kueue.x-k8s.io/multikueue"))
    limits: Json = {"ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 600, "backoffLimit": 2}
    yield make("limits-handed-to-the-launcher", MPIJOB2.with_policy(**limits))
    yield make("ttl", MPIJOB2.with_policy(ttlSecondsAfterFinished=10), START, succeeded(LAUNCHER), wait(10))
    yield make("deadline", MPIJOB2.with_policy(activeDeadlineSeconds=10), START, wait(10))
    yield make("limits-negative", MPIJOB2.with_policy(backoffLimit=-1))
    yield make("finish-of-everything", job(), START, FINISH)
    yield make(
        "worker-starts-after-launcher-ends", job(), running(LAUNCHER), succeeded(LAUNCHER), pods("Running", WORKERS)
    )


def _v2_gangs() -> Iterator[Scenario]:
    resources = {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    full = {
        "minAvailable": 2, "queue": "research", "priorityClass": "system-node-critical",
        "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60,
    }  # fmt: skip
    for gang in GANGS:
        go = ({"podGroup": "Inqueue"},) if gang == VOLCANO else ()

        def make(name: str, manifest: Json, *steps: Json, gang: str = gang) -> Scenario:
            return MPIJOB2.scenario(f"gang-{gang}-{name}", manifest, *steps, gang=gang)

        plain = MPIJOB2.everywhere(container=resources)
        yield make("success", plain, *go, START, succeeded(LAUNCHER))
        clean = merged(plain, {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}})
        yield make("clean-all", clean, *go, START, succeeded(LAUNCHER))
        yield make("policy", MPIJOB2.with_policy(schedulingPolicy=full))
        yield make("suspend", MPIJOB2.with_policy(suspend=True), RESUME, *go, START, SUSPEND)
        yield make("launcher-only", MPIJOB2.job(Launcher=MPIJOB2.replicas(1, container=resources)))
