"""The kind is open: a PyTorchJob as the Training Operator has it, with what none of the four kinds needs, in 130 lines.

A restartPolicy for each role, a Service for each replica that lives and dies with its pod, success by the master or by
any elastic worker, and conditions that replace one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from tests.model.explorer import InitialState, explore
from tests.model.scenarios import Scenario
from tests.model.simulated_job import SimulatedJob, simulate
from tests.model.transitions import Bounds
from tests.support.samples import job_of, pods
from trainyard import kinds
from trainyard.core import (
    POD_CARRIER,
    Api,
    AuxiliaryObject,
    ConditionUpdate,
    ExitAction,
    Job,
    Kind,
    Lifecycle,
    Outcome,
    ParsedSpec,
    PodRecipe,
    Replica,
    RestartScope,
    Role,
    RoleTable,
    Rule,
    Slot,
    StatusShape,
    violations,
)
from trainyard.core.names import digest
from trainyard.kinds.immutability import rules_after_start
from trainyard.kinds.policies import Policies, policy_of
from trainyard.kinds.services import headless_service
from trainyard.kinds.templates import PRESERVE_UNKNOWN, PodTemplate, append_env, containers_of, copy_template
from trainyard.objects import GVK, Json
from trainyard.objects.resources import POD, SERVICE
from trainyard.schema import Schema, from_struct

# --- The kind. From here ...
MASTER, WORKER, PORT = "Master", "Worker", 23456


class ReplicaSpec(msgspec.Struct):
    """One role."""

    replicas: Annotated[int, Meta(ge=0, le=10000)] = 1
    restartPolicy: Literal["Always", "OnFailure", "Never", "ExitCode"] = "OnFailure"
    template: Annotated[PodTemplate | None, Meta(extra_json_schema=PRESERVE_UNKNOWN)] = None


class TorchSpec(Policies, kw_only=True):
    """Master and workers of a torch.distributed program."""

    pytorchReplicaSpecs: Annotated[dict[str, ReplicaSpec] | None, Meta(description="Master and Worker.")] = None
    elastic: Annotated[bool, Meta(description="The job succeeds with any worker.")] = False


RULES = (
    Rule(
        "spec.pytorchReplicaSpecs",
        f"self.all(role, role in ['{MASTER}', '{WORKER}'])",
        lambda roles, old: set(roles) <= {MASTER, WORKER},
        "the roles are Master and Worker",
    ),
)
SCHEMA = Schema({**from_struct(TorchSpec), **PRESERVE_UNKNOWN})


def read(spec: Json, name: str) -> ParsedSpec:
    full = SCHEMA.default(spec)
    problems = [*SCHEMA.validate(full, "spec"), *violations(RULES, {"spec": full}, None)]
    replica_specs = full.get("pytorchReplicaSpecs") or {}
    roles = (
        ()
        if problems
        else tuple(_role(role, replica_specs[role]) for role in (MASTER, WORKER) if role in replica_specs)
    )
    return ParsedSpec(roles, policy_of(full), full, tuple(problems))


def _role(name: str, replica_spec: Json) -> Role:
    template = replica_spec.get("template") or {}
    return Role(name, replica_spec["replicas"], PORT, template, digest(template, replica_spec["restartPolicy"]))


def restart_policy(job: Job, role: str) -> str:
    return str(job.parsed.spec["pytorchReplicaSpecs"][role]["restartPolicy"])


def pod_name(job: Job, slot: Slot) -> str:
    return f"{job.key.name}-{slot.role.lower()}-{slot.index}"


def pod_labels(job: Job, slot: Slot) -> dict[str, str]:
    labels = {"training.kubeflow.org/job-name": job.key.name, "training.kubeflow.org/replica-type": slot.role.lower()}
    return {**labels, "training.kubeflow.org/replica-index": str(slot.index)}


def mutate_pod_template(template: Json, job: Job, slot: Slot) -> Json:
    pod_template = copy_template(template)
    rank = slot.index + (slot.role == WORKER and job.role(MASTER) is not None)
    first = Slot(MASTER if job.role(MASTER) else WORKER, 0)
    variables = {"MASTER_ADDR": pod_name(job, first), "MASTER_PORT": PORT, "WORLD_SIZE": len(job.slots()), "RANK": rank}
    for container in containers_of(pod_template):
        append_env(container, *((name, str(value)) for name, value in variables.items()))
    policy = restart_policy(job, slot.role)
    pod_template["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    return pod_template


def services(job: Job) -> tuple[AuxiliaryObject, ...]:
    def service(slot: Slot) -> AuxiliaryObject:
        labels = pod_labels(job, slot)
        body = lambda: headless_service(job, labels, {"pytorchjob-port": PORT}, labels)  # noqa: E731
        return AuxiliaryObject(SERVICE, pod_name(job, slot), body, slot=slot, deleted_with_slot=True)

    return tuple(map(service, job.slots()))


def success_sets(job: Job) -> tuple[frozenset[Slot], ...]:
    workers = [slot for slot in job.slots() if slot.role == WORKER]
    if job.role(MASTER):
        return (frozenset({Slot(MASTER, 0)}),)
    return tuple(frozenset({worker}) for worker in workers) if job.parsed.spec["elastic"] else (frozenset(workers),)


def on_exit(job: Job, slot: Slot, code: int, reason: str) -> ExitAction:
    """ExitCode retries from 128 on; a pod under Always or OnFailure fails only by a disruption of its node."""
    policy = restart_policy(job, slot.role)
    retried = policy in ("Always", "OnFailure") or (policy == "ExitCode" and (code >= 128 or code < 0))
    return ExitAction.RETRY if retried else ExitAction.FAIL


def condition_message(job: Job, update: ConditionUpdate, replicas: Sequence[Replica]) -> ConditionUpdate:
    return update._replace(reason=f"PyTorchJob{update.type}")


def render_status(job: Job, outcome: Outcome, counts: Any) -> Json:
    fields = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    statuses = {
        role: {field: states.get(state, 0) for field, state in fields.items()} for role, states in counts.items()
    }
    return {"replicaStatuses": statuses}


PYTORCHJOB = Kind(
    Api(GVK("example.com", "v1", "PyTorchJob", "pytorchjobs"), "pytorchjob", TorchSpec, read, rules=RULES),
    RoleTable(lambda role: POD_CARRIER, "pytorch", child_resources=(POD, SERVICE)),
    PodRecipe(pod_name, pod_labels, mutate_pod_template),
    Lifecycle(
        success_sets,
        on_exit,
        supervised_slots=lambda job: frozenset(job.slots()),
        restart_scope=RestartScope.SLOT,
        default_backoff_limit=None,
    ),
    StatusShape(
        render_status,
        condition_message=condition_message,
        replaced_conditions={"Running": ("Restarting",), "Restarting": ("Running",), "Succeeded": (), "Failed": ()},
    ),
    services,
)
# --- ... to here.


def replica_spec(restart: str, replicas: int = 1) -> Json:
    return {"replicas": replicas, "restartPolicy": restart, "template": pods("pytorch")}


def job(master: str = "ExitCode", worker: str = "Never", **spec: Any) -> Json:
    roles = {
        role: replica_spec(policy, count)
        for role, policy, count in ((MASTER, master, 1), (WORKER, worker, 2))
        if policy
    }
    return job_of("example.com/v1", "PyTorchJob", {"pytorchReplicaSpecs": roles, **spec})


def started(**spec: Any) -> SimulatedJob:
    simulated = simulate(PYTORCHJOB, job(**spec))
    simulated.run()
    simulated.settle()
    return simulated


def condition_types(simulated: SimulatedJob) -> list[str]:
    return [condition["type"] for condition in simulated.job["status"]["conditions"] if condition["status"] == "True"]


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "ALL", (*kinds.ALL, PYTORCHJOB))


def test_it_has_fewer_than_130_lines() -> None:
    text = Path(__file__).read_text().partition("# --- The kind. From here ...")[2].partition("# --- ... to here.")[0]
    assert len([line for line in text.splitlines() if line.strip()]) < 130


def test_each_replica_has_a_service_that_is_created_right_after_its_pod() -> None:
    creates = SimulatedJob(PYTORCHJOB, {**job(), "status": {}}).step().creates
    names = ["example-master-0", "example-worker-0", "example-worker-1"]
    assert [(create.gvk.kind, create.name) for create in creates] == [
        (kind, name) for name in names for kind in ("Pod", "Service")
    ]


def test_the_environment_is_that_of_torch_distributed() -> None:
    pod = started().get("Pod", "example-worker-1")
    assert {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]} == {
        "MASTER_ADDR": "example-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "3",
        "RANK": "2",
    }


def test_the_restart_policy_is_that_of_the_role() -> None:
    simulated = started()
    simulated.end("example-master-0", 143)
    simulated.now += 60
    assert simulated.settle()["restarts"] == 1 and simulated.names("Pod")[-1] == "example-master-0"
    simulated.run()
    simulated.settle()
    simulated.end("example-worker-1", 143)
    simulated.settle()
    assert condition_types(simulated)[-1] == "Failed"


def test_conditions_replace_one_another_and_the_newest_is_last() -> None:
    simulated = started()
    assert condition_types(simulated) == ["Created", "Running"]
    simulated.end("example-master-0", 137)
    for name in ("example-worker-0", "example-worker-1"):
        simulated.lose("Pod", name)
    simulated.step()
    assert [condition["type"] for condition in simulated.job["status"]["conditions"]] == ["Created", "Restarting"]
    simulated.now += 60
    simulated.settle()
    simulated.run()
    simulated.settle()
    assert [condition["type"] for condition in simulated.job["status"]["conditions"]] == ["Created", "Running"]
    simulated.end("example-master-0", 0)
    conditions = simulated.settle()["conditions"]
    assert [(condition["type"], condition["status"], condition["reason"]) for condition in conditions][-1] == (
        "Succeeded",
        "True",
        "PyTorchJobSucceeded",
    )


def test_any_worker_of_an_elastic_job_makes_it_succeed_and_all_of_another() -> None:
    elastic, plain = started(master="", elastic=True), started(master="")
    for simulated in (elastic, plain):
        simulated.end("example-worker-1", 0)
        simulated.settle()
    assert condition_types(elastic)[-1] == "Succeeded" and condition_types(plain)[-1] == "Running"
    plain.end("example-worker-0", 0)
    plain.settle()
    assert condition_types(plain)[-1] == "Succeeded"


def test_the_service_of_a_replica_is_deleted_with_its_pod() -> None:
    simulated = started(cleanPodPolicy="Running")
    simulated.end("example-worker-0", 0)
    simulated.end("example-master-0", 0)
    simulated.settle()
    assert sorted(simulated.names()) == ["example-master-0", "example-master-0", "example-worker-0", "example-worker-0"]


def test_what_the_roles_are_made_of_is_fixed_after_the_start_without_a_rule_in_the_kind() -> None:
    assert [rule.field for rule in rules_after_start(PYTORCHJOB)] == ["spec.pytorchReplicaSpecs", "spec.elastic"]
    check, running = kinds.rules_check(PYTORCHJOB), started().job
    edited = {**running, "spec": {**running["spec"], "pytorchReplicaSpecs": {WORKER: replica_spec("Always", 5)}}}
    assert [problem.path for problem in check(edited, running)] == ["spec.pytorchReplicaSpecs"]
    assert not check({**running, "spec": {**running["spec"], "suspend": True}}, running)
    assert not check({**edited, "spec": {**edited["spec"], "suspend": True}}, running)


def test_a_lost_pod_of_an_edited_role_is_named_in_condition_blocked() -> None:
    """An API server without the rule took the edit: the replica cannot be made again, and that is said."""
    simulated = started()
    simulated.edit(pytorchReplicaSpecs={MASTER: replica_spec("Always"), WORKER: replica_spec("Never", 2)})
    simulated.lose("Pod", "example-master-0")
    status = simulated.settle()
    blocked = next(condition for condition in status["conditions"] if condition["type"] == "Blocked")
    assert blocked["status"] == "True" and "Master 0 is gone" in blocked["message"]


@pytest.mark.slow
def test_every_small_world_of_it_keeps_the_rules() -> None:
    scenario = Scenario(
        kind=PYTORCHJOB,
        spec={key: value for key, value in job(worker="ExitCode")["spec"].items() if key != "RuntimeId"},
        slots=(Slot(MASTER, 0), Slot(WORKER, 0), Slot(WORKER, 1)),
        styles=("alone", "alone", "alone"),
        ends=((1, "Error"), (137, "Error")),
        permanent=lambda code, reason: code == 1,
        deciding=frozenset({0}),
        wants=lambda spec: frozenset({0, 1, 2}),
        bodies=True,
        reasons={"PyTorchJobSucceeded": "JobSucceeded", "PyTorchJobFailed": "PermanentFailure"},
    )
    transitions = frozenset(
        ["pass", "dying pass", "unasked", "succeed", "fail", "drain", "suspend", "time", "delete pod"]
    )
    assert explore(InitialState({}, scenario, bounds=Bounds(trouble=1, time=1)), transitions=transitions).worlds > 100
