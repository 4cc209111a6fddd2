"""Scenarios that every kind of the training-operator has: corners of the pod template, policies, suspension, gangs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drop_in.jobs import GANGS, IMAGE, MPIJOB, JobKind
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
    patch,
    policy,
    running,
    succeeded,
    wait,
)
from trainyard.objects import Json

WORKER = "j-worker-1"
CODES: tuple[tuple[str, int | None], ...] = (
    ("Never", 1), ("OnFailure", 1), ("Always", 1), ("ExitCode", 1), ("ExitCode", 127), ("ExitCode", 128),
    ("ExitCode", 130), ("ExitCode", 137), ("ExitCode", 143), ("ExitCode", None),
)  # fmt: skip
"""Restart policies, and exit codes of the replica that fails; None: nobody knows its code."""
LEADER_CODES: tuple[tuple[str, int | None], ...] = (("Never", 1), ("OnFailure", 1), ("ExitCode", 1), ("ExitCode", 137))


def common(kind: JobKind) -> Iterator[Scenario]:
    yield from templates(kind)
    yield from refusals(kind)
    yield from restarts(kind)
    yield from ends(kind)
    yield from suspensions(kind)
    yield from limits(kind)
    yield from changes(kind)
    yield from gangs(kind)


def first_pod(kind: JobKind) -> str:
    """The pod of the role that leads."""
    role = next(iter(kind.roles)).lower()
    return "j-launcher" if kind is MPIJOB else f"j-{role}-0"


def templates(kind: JobKind) -> Iterator[Scenario]:
    """Corners of what the operator fills into pods and Services."""
    make, every = kind.scenario, kind.everywhere
    yield make("defaults", kind.job(), START, FINISH)
    port, http = {"name": kind.port or "mpi-port", "containerPort": 7777}, {"name": "http", "containerPort": 8080}
    yield make("ports-own-number", every(container={"ports": [http, port]}))
    yield make("ports-other-name", every(container={"ports": [http]}))
    yield make("ports-unnamed", every(container={"ports": [{"containerPort": 5000}]}))
    sidecar: Json = {"name": "sidecar", "image": IMAGE, "ports": [{"name": "side", "containerPort": 9000}]}
    both = {"template": {"spec": {"containers": [sidecar, {"name": kind.container, "image": IMAGE}]}}}
    yield make("containers-sidecar-first", every(both), START, failed(first_pod(kind), 1, container="sidecar"))
    both = {"template": {"spec": {"containers": [{"name": kind.container, "image": IMAGE}, sidecar]}}}
    yield make("containers-sidecar-last", every(both), START, failed(first_pod(kind), 1, container="sidecar"))
    setup = {"name": "setup", "image": IMAGE}
    yield make("containers-own-init", every({"template": {"spec": {"initContainers": [setup]}}}))
    names = ("TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PYTHONUNBUFFERED", "PET_NNODES",
             "COORDINATOR_ADDRESS", "PADDLE_MASTER", "OMPI_MCA_orte_default_hostfile")  # fmt: skip
    env: list[Json] = [{"name": name, "value": "mine"} for name in names]
    env.append({"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}})
    yield make("env-own", every(container={"env": env}))
    yield from _pod_templates(kind)


def _pod_templates(kind: JobKind) -> Iterator[Scenario]:
    make, every = kind.scenario, kind.everywhere
    labels = {"team": "a", "training.kubeflow.org/replica-type": "mine", "training.kubeflow.org/job-name": "mine"}
    own = {"labels": labels, "annotations": {"note": "b", "sidecar.istio.io/inject": "false"}, "name": "mine"}
    yield make("template-metadata", every({"template": {"metadata": own}}))
    metadata = {"labels": {"team": "a", "kueue.x-k8s.io/queue-name": "q"}, "annotations": {"note": "b"}}
    yield make("job-metadata", kind.job(metadata=metadata), START, FINISH)
    host = {"template": {"spec": {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}}}
    yield make("template-host-network", every(host))
    yield make("template-restart-policy", every({"template": {"spec": {"restartPolicy": "OnFailure"}}}))
    full = {
        "nodeSelector": {"disk": "ssd"}, "serviceAccountName": "trainer", "terminationGracePeriodSeconds": 5,
        "tolerations": [{"key": "gpu", "operator": "Exists"}], "schedulerName": "mine", "hostname": "mine",
        "subdomain": "mine", "volumes": [{"name": "data", "emptyDir": {}}],
    }  # fmt: skip
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "workingDir": "/data", "args": ["--epochs=1"]}
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    change: Json = {"template": {"spec": full}}
    yield make("template-scheduling-and-volumes", every(change, mounts), objects=[account])
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1", "memory": "1Gi"}}}
    yield make("template-gpu", every(container=gpu))
    if kind is not MPIJOB:
        service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "j-worker-0"}}
        service["spec"] = {"clusterIP": "None", "ports": [{"port": 1}]}
        yield make("name-taken-service", kind.job(), objects=[service])
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j-worker-0"}}
    pod["spec"] = {"containers": [{"name": "c", "image": IMAGE}]}
    yield make("name-taken-pod", kind.job(), objects=[pod])


def refusals(kind: JobKind) -> Iterator[Scenario]:
    """What the webhook or the definition refuses, or what becomes of it."""
    make = kind.scenario
    lower = kind.with_roles({role.lower(): count for role, count in kind.roles.items()})
    yield make("roles-lower-case", lower)
    yield make("roles-unknown", kind.job(**dict(kind.roles), Helper=1))
    yield make("roles-none", kind.job({kind.field: None}))
    yield make("roles-empty", {**kind.job(), "spec": {kind.field: {}}})
    yield make("containers-other-name", kind.everywhere(container={"name": "main"}))
    yield make("containers-none", kind.everywhere({"template": {"spec": {"containers": []}}}))
    yield make("containers-no-image", kind.everywhere(container={"image": None}))
    yield make("name-not-a-dns-label", kind.job(name="9.j"))
    yield make("name-upper-case", kind.job(name="Job"))
    yield make("name-long", kind.job(name="j" + "0123456789" * 6))
    yield make("restart-policy-unknown", kind.everywhere({"restartPolicy": "Sometimes"}))
    yield make("replicas-none", kind.with_roles({role: kind.replicas(None) for role in kind.roles}), START)
    yield make("replicas-zero-workers", kind.with_roles({**kind.roles, "Worker": 0}), START, FINISH)
    yield make("replicas-negative", kind.with_roles({**kind.roles, "Worker": -1}))
    first = next(iter(kind.roles))
    if first != "Worker":
        yield make("replicas-two-leaders", kind.with_roles({**kind.roles, first: 2}), START)
        yield make("roles-leader-only", kind.with_roles({first: 1}), START, FINISH)
        yield make("roles-workers-only", kind.job(Worker=2), START, succeeded("j-worker-0"), succeeded(WORKER))
    yield make("managed-by-foreign", kind.with_policy(managedBy="kueue.x-k8s.io/multikueue"))
    yield make("managed-by-operator", kind.with_policy(managedBy="kubeflow.org/training-operator"), START)
    yield make("managed-by-unknown", kind.with_policy(managedBy="example.com/mine"))
    yield make("managed-by-changed", kind.job(), policy(managedBy="kueue.x-k8s.io/multikueue"))
    yield make(
        "queue-changed", kind.with_policy(schedulingPolicy={"queue": "a"}), policy(schedulingPolicy={"queue": "b"})
    )
    yield make("clean-pod-policy-unknown", kind.with_policy(cleanPodPolicy="Some"))


def restarts(kind: JobKind) -> Iterator[Scenario]:
    """A replica fails, is perhaps made anew, and runs to its end."""
    leader = next(iter(kind.roles))
    for role, pod, table in (("Worker", WORKER, CODES), (leader, first_pod(kind), LEADER_CODES)):
        if role == "Worker" and table is LEADER_CODES:
            continue
        for name, code in table:
            manifest = kind.everywhere({"restartPolicy": name})
            title = f"restart-{name}-{'unknown' if code is None else code}-{role}".lower()
            yield kind.scenario(title, manifest, START, failed(pod, code), START, FINISH)
    yield kind.scenario("restart-default", kind.job(), START, failed(WORKER, 1), START, FINISH)
    twice = (START, failed(WORKER, 137), START, failed("j-worker-0", 137), START, FINISH)
    yield kind.scenario("restart-twice", kind.everywhere({"restartPolicy": "ExitCode"}), *twice)
    per_role: Json = {role: kind.replicas(count, {"restartPolicy": "Never"}) for role, count in kind.roles.items()}
    per_role["Worker"] = kind.replicas(2, {"restartPolicy": "OnFailure"})
    yield kind.scenario("restart-policy-per-role", kind.job(**per_role), START, failed(WORKER, 1), START, FINISH)
    for name in ("Never", "OnFailure", "ExitCode"):
        manifest = kind.everywhere({"restartPolicy": name})
        yield kind.scenario(f"evicted-{name}".lower(), manifest, START, evicted(WORKER), START, FINISH)
    yield kind.scenario("pod-deleted-worker", kind.job(), START, deleted(WORKER), START, FINISH)
    yield kind.scenario("pod-deleted-leader", kind.job(), START, deleted(first_pod(kind)), START, FINISH)
    yield kind.scenario("pods-start-one-by-one", kind.job(), running(WORKER), running(first_pod(kind)), START)
    yield kind.scenario("failed-while-pending", kind.everywhere({"restartPolicy": "Never"}), failed(WORKER, 1))


def ends(kind: JobKind) -> Iterator[Scenario]:
    """cleanPodPolicy, for each end; and what becomes of the pods and Services of a job that is deleted."""
    leader = first_pod(kind)
    begin = (
        START,
        deleted(WORKER),
    )  # it is made again, and waits: one that waits and one that runs are there at the end
    for name in ("All", "Running", "None"):
        run_policy = {"runPolicy": {"cleanPodPolicy": name}}
        end = succeeded(leader) if len(kind.roles) > 1 else FINISH
        yield kind.scenario(f"clean-{name}-success".lower(), kind.job(run_policy), *begin, end, TOUCH)
        manifest = kind.everywhere({"restartPolicy": "Never"}, spec=run_policy)
        yield kind.scenario(f"clean-{name}-failure".lower(), manifest, *begin, failed(leader, 1), TOUCH)
    yield kind.scenario("deleted-while-running", kind.job(), START, DELETE)
    yield kind.scenario("deleted-after-success", kind.job(), START, FINISH, DELETE)
    yield kind.scenario("finished-pod-deleted", kind.job(), START, FINISH, deleted(leader))
    yield kind.scenario("ttl-zero", kind.with_policy(ttlSecondsAfterFinished=0), START, FINISH, wait(2))
    yield kind.scenario("ttl-ten", kind.with_policy(ttlSecondsAfterFinished=10), START, FINISH, wait(10))
    failure = kind.everywhere({"restartPolicy": "Never"}, spec={"runPolicy": {"ttlSecondsAfterFinished": 10}})
    yield kind.scenario("ttl-after-failure", failure, START, failed(WORKER, 1), wait(10))


def suspensions(kind: JobKind) -> Iterator[Scenario]:
    suspended = kind.with_policy(suspend=True)
    yield kind.scenario("suspend-at-creation", suspended, RESUME, START, FINISH)
    yield kind.scenario("suspend-while-running", kind.job(), START, SUSPEND, RESUME, START, FINISH)
    clean = kind.with_policy(cleanPodPolicy="None")
    yield kind.scenario("suspend-with-clean-none", clean, START, SUSPEND, TOUCH)
    yield kind.scenario("suspend-before-running", kind.job(), SUSPEND, RESUME, SUSPEND)
    yield kind.scenario("suspend-after-success", kind.job(), START, FINISH, SUSPEND, RESUME)
    restarted = (START, failed(WORKER, 137), SUSPEND, RESUME, START)
    yield kind.scenario("suspend-while-restarting", kind.everywhere({"restartPolicy": "ExitCode"}), *restarted)
    other = {kind.field: {"Worker": {"template": {"spec": {"nodeSelector": {"pool": "spot"}}}}}}
    yield kind.scenario("suspend-and-template-changed", suspended, patch(**other), RESUME)
    yield kind.scenario("suspend-with-ttl", kind.with_policy(suspend=True, ttlSecondsAfterFinished=0), wait(1))


def limits(kind: JobKind) -> Iterator[Scenario]:
    """Deadline and backoffLimit."""
    deadline = kind.with_policy(activeDeadlineSeconds=10)
    yield kind.scenario("deadline-quiet", deadline, START, wait(10))
    yield kind.scenario("deadline-then-touched", deadline, START, wait(10), TOUCH)
    clean = kind.with_policy(activeDeadlineSeconds=10, cleanPodPolicy="All")
    yield kind.scenario("deadline-clean-all", clean, START, wait(10), TOUCH)
    suspended = kind.with_policy(activeDeadlineSeconds=10, suspend=True)
    yield kind.scenario("deadline-suspended", suspended, wait(10), RESUME, START)
    for number in (0, 1, 2):
        spec = {"runPolicy": {"backoffLimit": number}}
        manifest = kind.everywhere({"restartPolicy": "OnFailure"}, spec=spec)
        again = (running(WORKER, restarts=1), running(WORKER, restarts=2))
        yield kind.scenario(f"backoff-limit-{number}-container-restarts", manifest, START, *again, FINISH)
        failures = (failed(WORKER, 1), START, failed(WORKER, 1), START)
        yield kind.scenario(f"backoff-limit-{number}-pod-failures", manifest, START, *failures)
    spec = {"runPolicy": {"backoffLimit": 1}}
    manifest = kind.everywhere({"restartPolicy": "Never"}, spec=spec)
    yield kind.scenario("backoff-limit-1-never", manifest, START, running(WORKER, restarts=2), failed(WORKER, 1))


def changes(kind: JobKind) -> Iterator[Scenario]:
    """A job that is edited while it runs."""

    def workers(count: int) -> Json:
        return patch(**{kind.field: {"Worker": {"replicas": count}}})

    yield kind.scenario("scale-up", kind.job(), START, workers(3), START, FINISH)
    yield kind.scenario("scale-down", kind.job(), START, workers(1), START, FINISH)
    yield kind.scenario("scale-down-before-running", kind.job(), workers(1), START)
    yield kind.scenario("scale-to-zero", kind.job(), START, workers(0))
    yield kind.scenario("scale-subresource", kind.job(), START, {"scale": 3}, START)
    template = {kind.field: {"Worker": {"template": {"metadata": {"labels": {"version": "2"}}}}}}
    yield kind.scenario("template-changed", kind.job(), START, patch(**template), deleted(WORKER))
    yield kind.scenario("clean-policy-changed", kind.job(), START, FINISH, policy(cleanPodPolicy="All"))


def gangs(kind: JobKind) -> Iterator[Scenario]:
    """PodGroups, for each of the two gang schedulers."""
    resources = {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    plain = kind.everywhere(container=resources)
    full = {
        "minAvailable": 2, "queue": "research", "priorityClass": "system-node-critical",
        "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60,
    }  # fmt: skip
    for gang in GANGS:
        go = ({"podGroup": "Inqueue"},) if gang == VOLCANO else ()

        def make(name: str, manifest: Json, *steps: Json, gang: str = gang) -> Scenario:
            return kind.scenario(f"gang-{gang}-{name}", manifest, *steps, gang=gang)

        yield make("success", plain, *go, START, FINISH)
        failing = kind.everywhere({"restartPolicy": "Never"}, resources, {"runPolicy": {"cleanPodPolicy": "All"}})
        yield make("failure", failing, *go, START, failed(WORKER, 1))
        yield make("policy", kind.with_policy(schedulingPolicy=full), *go)
        yield make(
            "min-available",
            kind.everywhere(None, resources, {"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}),
            *go,
        )
        yield make("suspend", kind.with_policy(suspend=True), RESUME, *go, START, SUSPEND)
        yield make("other-scheduler", kind.everywhere({"template": {"spec": {"schedulerName": "mine"}}}), *go)
        more = patch(**{kind.field: {"Worker": {"replicas": 3}}})
        yield make("scale", plain, *go, START, more)
        yield make("deleted", plain, *go, START, DELETE)
        annotated = kind.job(metadata={"annotations": {"note": "b"}, "labels": {"team": "a"}})
        yield make("job-metadata", annotated, *go)
