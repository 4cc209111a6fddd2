"""Kinds x policies and carriers x policies, two tables: which children are deleted at every end (rules.md S3 to S6)."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.builders import replicas, tfjob
from tests.support.samples import KINDS_WITH_TEMPLATES, chainerjob, elasticjob, kubeflow_job, mx_set, mxjob, worker_set
from trainyard import kinds
from trainyard.core import JOB_CARRIER, POD_CARRIER, RETRYING_JOB_CARRIER, STATEFUL_SET_CARRIER, Kind
from trainyard.objects import Json, is_condition_true

CARRIERS = {
    "batch Job": JOB_CARRIER,
    "retrying Job": RETRYING_JOB_CARRIER,
    "set": STATEFUL_SET_CARRIER,
    "Pod": POD_CARRIER,
}


class Player(NamedTuple):
    """A job of one kind: the workload whose end decides it, and one that only runs."""

    kind: Kind
    job: Json
    first: str
    other: str
    carriers: tuple[str, ...]


MXJOB = mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER"))
PLAYERS = {
    "TfJob": Player(
        kinds.TFJOB, tfjob(replicas("MASTER"), replicas("WORKER")), "master-76no-0", "worker-76no-0", ("batch Job",)
    ),
    "MxJob": Player(kinds.MXJOB, MXJOB, "example-scheduler-1kkf-0", "example-worker-1kkf-0", ("batch Job",)),
    "ChainerJob": Player(
        kinds.CHAINERJOB,
        chainerjob({"ws0": worker_set(1)}),
        "example-master",
        "example-workerset-ws0",
        ("retrying Job", "set"),
    ),
    "ElasticJob": Player(kinds.ELASTICJOB, elasticjob(2), "example-worker-0", "example-worker-1", ("Pod",)),
    "TFJob": Player(
        kinds.KUBEFLOW_TFJOB, kubeflow_job("TFJob", Chief=1, Worker=1), "example-chief-0", "example-worker-0", ("Pod",)
    ),
    "PyTorchJob": Player(
        kinds.PYTORCHJOB,
        kubeflow_job("PyTorchJob", Master={"restartPolicy": "ExitCode"}, Worker=1),
        "example-master-0",
        "example-worker-0",
        ("Pod",),
    ),
    "XGBoostJob": Player(
        kinds.XGBOOSTJOB,
        kubeflow_job("XGBoostJob", Master=1, Worker=1),
        "example-master-0",
        "example-worker-0",
        ("Pod",),
    ),
    "PaddleJob": Player(
        kinds.PADDLEJOB,
        kubeflow_job("PaddleJob", Master={"restartPolicy": "Never"}, Worker=1),
        "example-master-0",
        "example-worker-0",
        ("Pod",),
    ),
    "MPIJob": Player(
        kinds.MPIJOB, kubeflow_job("MPIJob", Launcher=1, Worker=1), "example-launcher", "example-worker-0", ("Pod",)
    ),
    "JAXJob": Player(kinds.JAXJOB, kubeflow_job("JAXJob", Worker=2), "example-worker-0", "example-worker-1", ("Pod",)),
}
ENDS = ("Succeeded", "Failed", "DeadlineExceeded", "suspended")
# What becomes of what still runs: it "runs" on, is "stopped", or "nothing" at all is left.
TABLE = [
    (clean, end, fate)
    for clean, fates in {
        "": ("runs", "runs", "stopped", "stopped"),
        "None": ("runs", "runs", "stopped", "stopped"),
        "Running": ("stopped", "stopped", "stopped", "stopped"),
        "All": ("nothing", "nothing", "nothing", "stopped"),
    }.items()
    for end, fate in zip(ENDS, fates, strict=True)
]


def lives(simulated: SimulatedJob, workload: str) -> bool:
    """Whether a pod of it runs."""
    pods = [simulated.get("Pod", name) for name in simulated.pods(workload)]
    return any(pod["status"]["phase"] == "Running" for pod in pods)


ALL_WORKERS = (kinds.ELASTICJOB, kinds.JAXJOB)
"""Kinds whose jobs succeed with all of their workers."""


def policies_of(kind: Kind, job: Json) -> Json:
    """The object of a job's manifest that has the policies; it is made when it is missing."""
    field = kind.api.policy_field
    holder: Json = job["spec"].setdefault(field, {}) if field else job["spec"]
    return holder


def brought_about(player: Player, clean: str, end: str) -> SimulatedJob:
    """The job at that end, with one replica that still runs where the end leaves one."""
    job = copy.deepcopy(player.job)
    policies = policies_of(player.kind, job)
    policies |= {"cleanPodPolicy": clean} if clean else {}
    if end == "DeadlineExceeded":
        place = job["spec"]["master"] if player.kind is kinds.CHAINERJOB else policies
        place["activeDeadlineSeconds"] = 30
    simulated = simulate(player.kind, job)
    simulated.run()
    simulated.settle()
    simulated.now += 60
    if end == "Succeeded":
        for slot in {player.first, *([player.other] if player.kind in ALL_WORKERS else [])}:
            simulated.end(slot, 0)
    elif end == "Failed":
        simulated.end(player.first, 1)
        if player.kind is kinds.CHAINERJOB:
            simulated.finish(player.first, "BackoffLimitExceeded")
    elif end == "suspended":
        simulated.edit(suspend=True)
    elif player.kind is kinds.CHAINERJOB:
        for name in simulated.pods(player.first):
            simulated.drop(simulated.get("Pod", name)["metadata"]["uid"])
        simulated.finish(player.first, "DeadlineExceeded")
    simulated.settle()
    return simulated


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize(("clean", "end", "fate"), TABLE)
def test_clean_pod_policy_and_running_replicas_at_the_end(name: str, clean: str, end: str, fate: str) -> None:
    player = PLAYERS[name]
    if player.kind is kinds.CHAINERJOB and fate == "runs" and (clean == "" or end == "Failed"):
        fate = "stopped"  # as documented (S3); and what fails it is its master Job's limit (S4)
    simulated = brought_about(player, clean, end)
    conditions = simulated.job["status"]["conditions"]
    wanted = {"DeadlineExceeded": "Failed", "suspended": "Suspended"}.get(end, end)
    assert is_condition_true(conditions, wanted)
    ends_with_it = player.kind in ALL_WORKERS and end == "Succeeded"  # all its workers have ended
    assert lives(simulated, player.other) == (fate == "runs" and not ends_with_it)
    # Services go with their Pods, so that nothing is left when no Pod is; the ConfigMap and Role of an MPIJob stay.
    services_go_with_pods = bool(player.kind.api.policy_field) and player.kind is not kinds.MPIJOB
    assert (simulated.names() == []) == (fate == "nothing" or (services_go_with_pods and not simulated.names("Pod")))
    if fate == "stopped" and end in ("Succeeded", "Failed"):
        assert simulated.pods(player.first), "what has ended stays with its logs"


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_finished_job_is_deleted_when_its_ttl_expires(name: str, end: str) -> None:
    simulated = brought_about(PLAYERS[name], "", end)
    simulated.edit(ttlSecondsAfterFinished=60)
    simulated.now += 59
    planned = simulated.look()
    assert not planned.deletes and planned.requeue_at == simulated.now + 1
    simulated.now += 1
    (gone,) = simulated.look().deletes
    assert (gone.gvk, gone.name) == (PLAYERS[name].kind.gvk, simulated.job["metadata"]["name"])


@pytest.mark.parametrize("name", PLAYERS)
def test_a_job_resumes_with_a_new_attempt_and_a_new_start(name: str) -> None:
    player = PLAYERS[name]
    simulated = brought_about(player, "", "suspended")
    assert "startTime" not in simulated.job["status"] and not any(
        lives(simulated, slot) for slot in (player.first, player.other)
    )
    simulated.edit(suspend=False)
    simulated.now += 10
    status = simulated.settle()
    assert status["resumes"] == 1 and {role["attempt"] for role in status["roles"].values()} == {1}
    simulated.run()
    assert is_condition_true(simulated.settle().get("conditions"), "Running") and lives(simulated, player.other)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_job_created_suspended_starts_at_attempt_0(name: str) -> None:
    player = PLAYERS[name]
    job = copy.deepcopy(player.job)
    policies_of(player.kind, job)["suspend"] = True
    simulated = simulate(player.kind, job)
    assert not any(simulated.names(kind) for kind in ("Job", "Pod", "StatefulSet"))
    simulated.edit(suspend=False)
    status = simulated.settle()
    assert "resumes" not in status and {role["attempt"] for role in status["roles"].values()} == {0}


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize(("manager", "ours"), [("", True), ("trainyard.dev/operator", True), ("example.com/x", False)])
def test_a_job_that_another_manages_is_left_alone(name: str, manager: str, ours: bool) -> None:
    player = PLAYERS[name]
    simulated = SimulatedJob(player.kind, copy.deepcopy(player.job))
    simulated.edit(managedBy=manager)
    assert simulated.look().idle is not ours


@pytest.mark.parametrize(
    ("name", "limit", "over"),
    [
        *(("TfJob", 0, True), ("TfJob", 1, False), ("MxJob", 0, True), ("ElasticJob", 0, True)),
        *(("ElasticJob", 1, False), ("PyTorchJob", 0, True)),
    ],
)
def test_backoff_limit_counts_failed_attempts_and_stops_the_job(name: str, limit: int, over: bool) -> None:
    player = PLAYERS[name]
    job = copy.deepcopy(player.job)
    policies_of(player.kind, job)["backoffLimit"] = limit
    simulated = simulate(player.kind, job)
    simulated.run()
    simulated.settle()
    simulated.end(player.first, 137)
    status = simulated.settle()
    assert sum(role["failures"] for role in status["roles"].values()) == 1
    assert is_condition_true(status["conditions"], "Failed") is over
    assert lives(simulated, player.other) is not over


@pytest.mark.parametrize("name", [name for name in PLAYERS if name != "ChainerJob"])  # its controllers do that
def test_a_disruption_is_replaced_and_not_counted(name: str) -> None:
    player = PLAYERS[name]
    job = copy.deepcopy(player.job)
    policies_of(player.kind, job)["backoffLimit"] = 0
    simulated = simulate(player.kind, job)
    simulated.run()
    simulated.settle()
    simulated.evict(player.first)
    simulated.now += 60
    status = simulated.settle()
    assert not status["restarts"] and not is_condition_true(status["conditions"], "Failed")
    simulated.run()
    assert lives(simulated, player.first)


def test_every_carrier_of_a_kind_is_in_the_table() -> None:
    """Of every role of every kind, as the players have them."""
    played = {id(CARRIERS[carrier]) for player in PLAYERS.values() for carrier in player.carriers}
    assert played == {id(carrier) for carrier in CARRIERS.values()}
    assert {player.kind.gvk for player in PLAYERS.values()} == {kind.gvk for kind in KINDS_WITH_TEMPLATES}
    for player in PLAYERS.values():
        roles = simulate(player.kind, copy.deepcopy(player.job)).job["status"]["roles"]
        used = {id(player.kind.roles.carrier(role)) for role in roles}
        assert used == {id(CARRIERS[carrier]) for carrier in player.carriers}
