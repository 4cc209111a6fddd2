"""`why` for the kinds of kubeflow.org/v1, as a table. Statuses are those that the operator decides on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.model.simulated_job import NOW, SimulatedJob, simulate
from tests.support.samples import KUBEFLOW_ROLES, kubeflow_job
from tests.views.why_values import everything
from trainyard import kinds
from trainyard.core import Config
from trainyard.objects import Json, format_time, operator_status, uid_of
from trainyard.views.diagnosis import BLOCK, END, WAIT, Facts, Finding, why

KINDS = {kind.gvk.kind: kind for kind in kinds.KINDS}
Logs = dict[str, tuple[str, ...]]  # by the pod's name
TRACE = ("Traceback (most recent call last):", '  File "/a/f1.py", line 4, in <module>', "    d[k]", "KeyError: 'rate'")
GLOO = (
    *TRACE[:2],
    "    dist.all_reduce(t)",
    "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.244.0.2]:51585",
)
NCCL = (
    *TRACE[:2],
    "    dist.all_reduce(t)",
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1970, remote process exited or there "
    "was a network error, NCCL version 2.20.5",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
)
JAX = (
    *TRACE[:2],
    "    print(total())",
    "jax.errors.JaxRuntimeError: FAILED_PRECONDITION: Gloo all-reduce failed: Connection closed by peer [::1]:5123",
)


class Played(NamedTuple):
    """A job, what became of it, and the last lines of its pods."""

    simulated: SimulatedJob
    logs: Logs = {}  # noqa: RUF012  (read only)


def _job(kind: str, policy: str = "ExitCode", gang: str = "", scope: str = "", **fields: Any) -> SimulatedJob:
    """A job of which every replica has that restartPolicy."""
    roles = {role: {"replicas": count, "restartPolicy": policy} for role, count in KUBEFLOW_ROLES[kind][2].items()}
    job = kubeflow_job(kind, **{**roles, **fields})
    if scope:
        job["metadata"]["annotations"] = {"trainyard.dev/restart-scope": scope}
    return simulate(KINDS[kind], job, Config(gang_scheduler=gang))


def _running(kind: str, policy: str = "ExitCode", scope: str = "", **fields: Any) -> SimulatedJob:
    simulated = _job(kind, policy, scope=scope, **fields)
    simulated.run()
    simulated.settle()
    return simulated


def _ended(simulated: SimulatedJob, code: int, *pods: str) -> SimulatedJob:
    """They have ended; it was not the first time, so that what is tried again waits for its back-off."""
    for role in operator_status(simulated.job)["roles"].values():
        role["withoutProgress"] = 1
    for pod in pods:
        simulated.end(f"example-{pod}", code)
    simulated.settle()
    return simulated


def _not_admitted() -> Played:
    """A job that Volcano keeps out of its queue for longer than a job waits that it admits."""
    simulated = _job("JAXJob", gang="volcano")
    simulated.now += 31
    simulated.settle()
    return Played(simulated)


def _first_pod(kind: str, role: str) -> str:
    """The name of the role's first pod, without that of the job. That of an MPIJob's launcher has no index."""
    return next(name for name in _job(kind).names("Pod") if role in name).removeprefix("example-")


def _waiting_for_master(init_state: Json) -> SimulatedJob:
    simulated = _job("PyTorchJob")
    for worker in ("example-worker-0", "example-worker-1"):
        simulated.get("Pod", worker)["status"] = {
            "phase": "Pending",
            "startTime": format_time(NOW),
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "initContainerStatuses": [{"name": "init-pytorch", "restartCount": 0, **init_state}],
            "containerStatuses": [{"name": "pytorch", "state": {"waiting": {"reason": "PodInitializing"}}}],
        }
    return simulated


def _master_does_not_fit() -> Played:
    simulated = _waiting_for_master({"state": {"running": {"startedAt": format_time(NOW)}}})
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    simulated.get("Pod", "example-master-0")["status"] = {"phase": "Pending", "conditions": [scheduled]}
    simulated.settle()
    return Played(simulated)


def _master_has_no_address() -> Played:
    terminated = {"exitCode": 1, "reason": "Error", "finishedAt": format_time(NOW)}
    state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": terminated}}
    simulated = _waiting_for_master({**state, "restartCount": 2})
    simulated.run("example-master-0")
    simulated.settle()
    return Played(simulated, {"example-worker-0": ("waiting for master", "the master example-master-0 has no address")})


def _beside_a_sidecar(state: Json, *, code: int | None = None) -> Played:
    """A JAXJob of one worker that runs, or ended with that code, beside a native sidecar in this state."""
    simulated = simulate(KINDS["JAXJob"], kubeflow_job("JAXJob", Worker={"restartPolicy": "Never"}))
    simulated.run()
    if code is not None:
        simulated.end("example-worker-0", code)
    pod = simulated.get("Pod", "example-worker-0")
    pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
    pod["status"]["initContainerStatuses"] = [{"name": "proxy", "restartCount": 0, "state": state}]
    simulated.settle()
    return Played(simulated, {"example-worker-0": TRACE} if code else {})


def _elastic(count: int, *running: str) -> SimulatedJob:
    worker = {"replicas": count, "restartPolicy": "ExitCode"}
    job = kubeflow_job("PyTorchJob", Worker=worker, elasticPolicy={"minReplicas": count, "maxReplicas": count + 1})
    simulated = simulate(KINDS["PyTorchJob"], job)
    simulated.run(*(f"example-{name}" for name in running))
    simulated.settle()
    return simulated


def _lost_peer(kind: str, lines: tuple[str, ...]) -> Played:
    names = [name.removeprefix("example-") for name in _job(kind).names("Pod")][-2:]
    simulated = _ended(_running(kind, "Never"), 1, *names)
    return Played(simulated, {f"example-{names[0]}": TRACE, f"example-{names[1]}": lines})


def _after_deadline() -> Played:
    simulated = _running("JAXJob", run_policy={"activeDeadlineSeconds": 30})
    simulated.now += 60
    simulated.settle()
    return Played(simulated)


def _without_arguments() -> Played:
    simulated = _ended(_running("JAXJob", "Never"), 1, "worker-0")
    simulated.end("example-worker-1", 143)
    simulated.settle()
    lines = (*TRACE[:2], "    jax.distributed.initialize()", "ValueError: Number of processes must be defined.")
    return Played(simulated, {"example-worker-0": lines, "example-worker-1": lines})


CASES: dict[str, tuple[Callable[[], Played], int, tuple[str, ...]]] = {
    "the workers wait for a master that fits nowhere": (
        _master_does_not_fit,
        BLOCK,
        (
            "master-0: no node fits its pod",
            "worker-0, worker-1: its init container init-pytorch has been running for 60s: it waits until the name of "
            "the master resolves",
            "see the findings about master-0",
        ),
    ),
    "the name of the master does not resolve": (
        _master_has_no_address,
        BLOCK,
        (
            "in init container init-pytorch: the name of the master, example-master-0, did not resolve",
            "NetworkPolicies",
        ),
    ),
    "a rendezvous that does not fill": (
        lambda: Played(_elastic(3, "worker-0", "worker-1")),
        BLOCK,
        ("2 of at least 3 replicas run: its rendezvous waits for the others", "lower spec.elasticPolicy.minReplicas"),
    ),
    "a rendezvous that did not fill in time": (
        lambda: Played(
            _ended(_elastic(2, "worker-0", "worker-1"), 1, "worker-0"),
            {"example-worker-0": ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",)},
        ),
        END,
        ("worker-0 ended with exit code 1 (Error): its rendezvous did not fill in time",),
    ),
    **{
        f"an exit code that is not retried, {kind}": (
            lambda kind=kind, role=role: Played(_ended(_running(kind), 3, _first_pod(kind, role.lower()))),
            END,
            (f"{role.lower()}-0 ended with exit code 3", "ExitCode retries codes from 128 on, and 3 fails the job"),
        )
        for kind, (_, _, roles) in KUBEFLOW_ROLES.items()
        for role in [next(iter(roles))]
    },
    "gloo lost a peer": (
        lambda: _lost_peer("PyTorchJob", GLOO),
        END,
        ("worker-0 ended with exit code 1 (Error): KeyError: 'rate'", "worker-1 lost a peer by that, and ended, too"),
    ),
    "NCCL lost a peer": (
        lambda: _lost_peer("PyTorchJob", NCCL),
        END,
        ("worker-0 ended with exit code 1 (Error): KeyError: 'rate'", "worker-1 lost a peer by that, and ended, too"),
    ),
    "NCCL lost a peer that has left no word": (
        lambda: Played(_ended(_running("PyTorchJob", "Never"), 1, "worker-1"), {"example-worker-1": NCCL[-1:]}),
        END,
        ("NCCL lost a peer: another process of the job ended, or the network", "NCCL_DEBUG=INFO in env"),
    ),
    "jax lost a peer": (
        lambda: _lost_peer("JAXJob", JAX),
        END,
        ("worker-0 ended with exit code 1 (Error): KeyError: 'rate'", "worker-1 lost a peer by that, and ended, too"),
    ),
    "jax.distributed.initialize without arguments": (
        _without_arguments,
        END,
        (
            "worker-0 ended with exit code 1 (Error): jax.distributed.initialize lacks an argument",
            'write jax.distributed.initialize(f\'{os.environ["COORDINATOR_ADDRESS"]}',
        ),
    ),
    "a gang restarts": (
        lambda: Played(_ended(_running("JAXJob"), 137, "worker-1")),
        WAIT,
        ("worker-1: its pod has failed, and is made again at", "and all other replicas with it; it ended with exit"),
    ),
    "a replica restarts alone": (
        lambda: Played(_ended(_running("JAXJob", scope="replica"), 137, "worker-1")),
        WAIT,
        ("(in 9s); it ended with exit code 137",),
    ),
    "the gang scheduler does not run": (
        lambda: Played(_job("JAXJob", gang="coscheduler")),
        BLOCK,
        (
            "worker-0, worker-1: the scheduler coscheduler has not handled its pod for 60s",
            "or the operator's --gang-scheduler-name",
        ),
    ),
    "the PodGroup is pending": (
        _not_admitted,
        BLOCK,
        (
            "its gang scheduler has not admitted it, so no pod is created for it",
            "PodGroup example is Pending: its scheduler has not admitted the job",
            "it may be full, or its scheduler not run",
        ),
    ),
    "the deadline": (
        _after_deadline,
        END,
        ("it failed 60s ago (DeadlineExceeded)", "raise spec.runPolicy.activeDeadlineSeconds"),
    ),
    "backoffLimit": (
        lambda: Played(_ended(_running("JAXJob", run_policy={"backoffLimit": 0}), 137, "worker-1")),
        END,
        ("worker-1 ended with exit code 137",),
    ),
    "suspended": (
        lambda: Played(_job("JAXJob", run_policy={"suspend": True})),
        BLOCK,
        ("it is suspended", "spec.runPolicy.suspend", "trainyard resume jaxjob/example"),
    ),
}


def findings_of(played: Played, later: float) -> list[Finding]:
    """The findings of that many seconds later."""
    simulated = played.simulated
    pods = [obj for ref, obj in simulated.objects.items() if ref.kind == "Pod"]
    for pod in pods:
        if (pod.get("status") or {}).get("containerStatuses"):
            pod["spec"]["nodeName"] = "node"
    logs = {
        (uid_of(pod), container["name"]): lines
        for pod in pods
        if (lines := played.logs.get(pod["metadata"]["name"]))
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    }
    job = simulated.job
    job["metadata"]["creationTimestamp"] = format_time(NOW)
    children = [obj for ref, obj in simulated.objects.items() if ref.kind != "Pod"]
    facts = Facts(simulated.kind, job, simulated.now + later, tuple(pods), children=tuple(children), logs=logs)
    return why(facts)


@pytest.mark.parametrize("name", CASES)
def test_the_answer_names_the_cause_its_place_and_the_fix(name: str) -> None:
    played, level, texts = CASES[name]
    findings = findings_of(played(), 1 if "restarts" in name else 60)
    answer = everything(findings)
    assert not [text for text in texts if text not in answer], answer
    assert findings[0].level == level and all(finding.fix for finding in findings), answer
    assert "operator runs" not in answer, answer  # it has done all that it can


def test_a_replica_that_was_stopped_while_it_failed_of_the_same_cause_is_no_second_problem() -> None:
    answer = everything(findings_of(_without_arguments(), 60))
    assert answer.count("jax.distributed.initialize lacks an argument") == 1 and "143" not in answer, answer


def test_the_fields_of_a_custom_rendezvous_are_looked_up() -> None:
    policy = {"minReplicas": 1, "rdzvHost": "etcd-service", "rdzvPort": 2379}
    endpoint = KINDS["PyTorchJob"].diagnosis.endpoint(kubeflow_job("PyTorchJob", Worker=2, elasticPolicy=policy))
    assert endpoint is not None
    assert (endpoint.service, endpoint.field) == ("etcd-service", "spec.elasticPolicy.rdzvHost")
    assert KINDS["PyTorchJob"].diagnosis.endpoint(kubeflow_job("PyTorchJob")) is None


def test_a_sidecar_that_runs_on_and_is_stopped_is_no_finding() -> None:
    """It runs as long as the others, and a program without a handler ends with 143 when it is stopped after them."""
    running = everything(findings_of(_beside_a_sidecar({"running": {"startedAt": format_time(NOW)}}), 600))
    assert "init container" not in running and "proxy" not in running, running
    terminated = {"exitCode": 143, "reason": "Error", "finishedAt": format_time(NOW)}
    failed = everything(findings_of(_beside_a_sidecar({"terminated": terminated}, code=1), 60))
    assert "worker-0 ended with exit code 1" in failed and "143" not in failed and "proxy" not in failed, failed


def test_a_restart_of_all_containers_is_no_kill_without_a_memory_limit() -> None:
    played = _beside_a_sidecar({"running": {"startedAt": format_time(NOW)}})
    pod = played.simulated.get("Pod", "example-worker-0")
    terminated = {"exitCode": 137, "reason": "RestartingAllContainers", "finishedAt": format_time(NOW)}
    for status in (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]):
        status |= {"restartCount": 2, "lastState": {"terminated": terminated}}
    answer = everything(findings_of(played, 60))
    assert answer.count("were started again 2 times, by a rule of restartPolicyRules") == 1, answer
    assert "137" not in answer and "dmesg" not in answer and "logs -p" not in answer, answer
