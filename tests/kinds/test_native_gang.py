"""Gangs of kube-scheduler itself: the PodGroup of each attempt, and what must hold whatever becomes of its members."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob
from tests.support.samples import KINDS_WITH_TEMPLATES, elasticjob, kubeflow_job, pods, sample
from trainyard.core import Config, Job, Kind, Plan, changes, parse_job
from trainyard.core.job_state import OwnedObjects
from trainyard.kinds import (
    CHAINERJOB,
    ELASTICJOB,
    JAXJOB,
    KUBEFLOW_TFJOB,
    MXJOB,
    PYTORCHJOB,
    TFJOB,
    gang_members,
    native_gang,
)
from trainyard.kinds.gang_members import started_members
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.kinds.native_gang import NATIVE, group_name
from trainyard.objects import Json, find_condition, labels_of, name_of
from trainyard.objects.labels import ATTEMPT
from trainyard.objects.resources import NATIVE_POD_GROUP

every_kind = pytest.mark.parametrize(
    "kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.api_version + kind.gvk.kind
)


def submitted(kind: Kind, job: Json | None = None) -> SimulatedJob:
    simulated = SimulatedJob(kind, job or sample(kind.gvk.kind), config=Config(gang_scheduler=NATIVE))
    simulated.settle()
    return simulated


def started(kind: Kind, job: Json | None = None) -> SimulatedJob:
    simulated = submitted(kind, job)
    simulated.run()
    simulated.settle()
    return simulated


def group_of(pod: Json) -> str:
    group = (pod.get("spec") or {}).get("schedulingGroup") or {}
    return str(group.get("podGroupName", ""))


def members(simulated: SimulatedJob) -> list[Json]:
    """The pods that kube-scheduler counts: those that have not ended."""
    listed = [simulated.get("Pod", name) for name in simulated.names("Pod")]
    return [pod for pod in listed if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]


def min_count(simulated: SimulatedJob) -> int:
    (name,) = simulated.names("PodGroup")
    return int(simulated.get("PodGroup", name)["spec"]["schedulingPolicy"]["gang"]["minCount"])


@every_kind
def test_all_pods_of_a_job_are_members_of_one_group_with_as_many_members(kind: Kind) -> None:
    simulated = started(kind)
    (group,) = simulated.names("PodGroup")
    assert group == f"{name_of(simulated.job)}-0" and {group_of(pod) for pod in members(simulated)} == {group}
    assert min_count(simulated) == len(members(simulated)) > 1
    assert simulated.get("PodGroup", group)["spec"]["disruptionMode"] == {"all": {}}


@every_kind
def test_without_the_option_there_is_no_group(kind: Kind) -> None:
    simulated = SimulatedJob(kind, sample(kind.gvk.kind))
    simulated.settle()
    assert not simulated.names("PodGroup")


@every_kind
def test_a_suspended_job_has_no_group_and_a_resumed_one_a_new_one(kind: Kind) -> None:
    simulated = started(kind)
    simulated.edit(suspend=True)
    simulated.settle()
    assert not simulated.names("PodGroup")
    simulated.edit(suspend=False)
    simulated.settle()
    assert simulated.names("PodGroup") == [f"{name_of(simulated.job)}-1"]


@every_kind
def test_a_job_that_has_ended_has_no_group(kind: Kind) -> None:
    simulated = started(kind)
    for name in simulated.names("Job") or simulated.names("Pod"):
        simulated.end(name, 0)
    simulated.settle()
    assert find_condition(simulated.job["status"]["conditions"], "Succeeded") and not simulated.names("PodGroup")


def test_a_gang_that_restarts_has_a_new_group() -> None:
    """Members of the attempt before that still end would count for the new one."""
    simulated = started(PYTORCHJOB)
    simulated.end("example-worker-0", 137)
    simulated.settle()
    simulated.now += 20
    simulated.settle()
    assert simulated.names("PodGroup") == ["example-1"]
    assert {group_of(pod) for pod in members(simulated)} == {"example-1"} and min_count(simulated) == 3


@pytest.mark.parametrize(("causes", "name"), [({}, "example-2"), ({"program": 0, "stall": 1}, "example-3")])
def test_replicas_that_restart_alone_have_a_new_group_after_a_resume_and_a_stall(
    causes: dict[str, int], name: str
) -> None:
    job = {**sample("TFJob"), "status": {"resumes": 2, "restartCauses": causes}}
    assert group_name(parse_job(TFJOB, job, Config(gang_scheduler=NATIVE))) == name


def test_a_member_that_has_ended_for_good_is_not_waited_for() -> None:
    simulated = started(PYTORCHJOB)
    simulated.end("example-worker-0", 0)
    simulated.settle()
    assert min_count(simulated) == 2


def test_a_new_group_is_created_without_what_has_ended() -> None:
    """With a patch a moment later, kube-scheduler would hold the pods until then."""
    simulated = started(TFJOB)
    simulated.end(simulated.names("Job")[-1], 0)
    for suspended in (True, False):
        simulated.edit(suspend=suspended)
        patches = [patch for planned in _until_settled(simulated) for patch in planned.patches]
    assert simulated.names("PodGroup") == ["example-job-1"] and not patches


def _until_settled(simulated: SimulatedJob) -> Iterator[Plan]:
    while not (planned := simulated.step()).idle:
        yield planned


def _upgraded(kind: Kind) -> SimulatedJob:
    """A job that an operator without gangs has started, under one with them."""
    simulated = SimulatedJob(kind, sample(kind.gvk.kind))
    simulated.settle()
    simulated.run()
    simulated.settle()
    simulated.config = Config(gang_scheduler=NATIVE)
    simulated.now += 5
    simulated.settle()
    return simulated


@pytest.mark.parametrize("kind", [KUBEFLOW_TFJOB, CHAINERJOB, ELASTICJOB], ids=lambda kind: kind.gvk.kind)
def test_pods_of_an_operator_without_gangs_are_not_waited_for(kind: Kind) -> None:
    """A replacement of one of them is the only member of the group."""
    simulated = _upgraded(kind)
    assert min_count(simulated) == 1
    simulated.lose("Pod", simulated.names("Pod")[0])
    simulated.settle()
    assert min_count(simulated) == 1


def test_a_gang_of_an_operator_without_gangs_restarts_as_one() -> None:
    simulated = _upgraded(PYTORCHJOB)
    simulated.end("example-worker-0", 137)
    simulated.settle()
    simulated.now += 20
    simulated.settle()
    assert {group_of(pod) for pod in members(simulated)} == {"example-1"} and min_count(simulated) == 3


def test_a_launcher_that_waits_for_its_workers_is_a_member_once_it_is_there() -> None:
    job = kubeflow_job("MPIJob", launcherCreationPolicy="WaitForWorkersReady")
    simulated = submitted(MPIJOB_V2BETA1, {**job, "apiVersion": MPIJOB_V2BETA1.gvk.api_version})
    assert min_count(simulated) == 2 == len(members(simulated))
    simulated.run()
    simulated.settle()
    assert min_count(simulated) == 3


@pytest.mark.parametrize(
    ("kind", "job", "least"),
    [
        (ELASTICJOB, elasticjob(3, minReplicas=2, maxReplicas=4), 2),
        (PYTORCHJOB, kubeflow_job("PyTorchJob", Worker=4, elasticPolicy={"minReplicas": 2, "maxReplicas": 4}), 2),
        (JAXJOB, kubeflow_job("JAXJob", run_policy={"schedulingPolicy": {"minAvailable": 1}}, Worker=4), 1),
    ],
    ids=["ElasticJob", "elasticPolicy", "minAvailable"],
)
def test_of_an_elastic_job_so_many_members_start_together(kind: Kind, job: Json, least: int) -> None:
    simulated = started(kind, job)
    assert min_count(simulated) == least
    assert simulated.get("PodGroup", "example-0")["spec"]["disruptionMode"] == {"single": {}}


def test_the_group_and_its_pods_have_one_priority() -> None:
    policy = {"schedulingPolicy": {"priorityClass": "high"}}
    simulated = started(JAXJOB, kubeflow_job("JAXJob", run_policy=policy))
    assert simulated.get("PodGroup", "example-0")["spec"]["priorityClassName"] == "high"
    assert {pod["spec"]["priorityClassName"] for pod in members(simulated)} == {"high"}


def test_roles_of_several_priorities_are_no_gang() -> None:
    master = {"replicas": 1, "template": pods("pytorch", priorityClassName="high")}
    simulated = submitted(PYTORCHJOB, kubeflow_job("PyTorchJob", Master=master, Worker=2))
    failed = find_condition(simulated.job["status"]["conditions"], "Failed")
    assert failed is not None and failed["status"] == "True"
    assert "Master has high, Worker has none" in failed["message"] and not simulated.names()


def test_a_group_of_the_users_own_stays() -> None:
    template = pods("jax", schedulingGroup={"podGroupName": "mine"})
    simulated = started(JAXJOB, kubeflow_job("JAXJob", Worker={"replicas": 2, "template": template}))
    assert not simulated.names("PodGroup") and {group_of(pod) for pod in members(simulated)} == {"mine"}


def test_what_the_scheduler_says_of_the_group_blocks_the_job() -> None:
    simulated = submitted(JAXJOB)
    text = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    waiting = {"type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable", "message": text}
    simulated.get("PodGroup", "example-0")["status"] = {"conditions": [waiting]}
    blocked = find_condition(simulated.settle()["conditions"], "Blocked")
    assert blocked is not None and (blocked["status"], blocked["reason"]) == ("True", "GangUnschedulable")
    assert blocked["message"] == f"PodGroup example-0 waits: {text}"
    simulated.get("PodGroup", "example-0")["status"] = {
        "conditions": [{**waiting, "status": "True", "reason": "Scheduled"}]
    }
    simulated.run()
    blocked = find_condition(simulated.settle()["conditions"], "Blocked")
    assert blocked is not None and blocked["status"] == "False"


def _late(simulated: SimulatedJob, condition: str) -> Json:
    """The condition after half a minute."""
    simulated.now += 60
    return find_condition(simulated.settle()["conditions"], condition) or {}


def _place(simulated: SimulatedJob) -> None:
    for pod in members(simulated):
        pod["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


def test_a_held_gang_says_how_many_of_its_members_exist() -> None:
    """Somebody has raised minCount by hand."""
    simulated = submitted(JAXJOB)
    simulated.get("PodGroup", "example-0")["spec"]["schedulingPolicy"]["gang"]["minCount"] = 5
    assert not find_condition(simulated.settle()["conditions"], "Blocked")
    blocked = _late(simulated, "Blocked")
    assert (blocked["reason"], blocked["message"]) == ("GangHeld", "PodGroup example-0 waits: 2 of its 5 members exist")
    _place(simulated)
    assert _late(simulated, "Blocked")["status"] == "False"


def test_a_held_gang_names_the_member_with_a_scheduling_gate() -> None:
    simulated = submitted(JAXJOB)
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    simulated.get("Pod", "example-worker-1")["status"] = {"phase": "Pending", "conditions": [gated]}
    text = "PodGroup example-0 waits: its member example-worker-1 has a scheduling gate"
    assert _late(simulated, "Blocked")["message"] == text


def test_a_gang_whose_scheduler_does_not_know_groups_says_so() -> None:
    simulated = submitted(JAXJOB)
    _place(simulated)
    assert not find_condition(simulated.settle()["conditions"], "GangIgnored")
    ignored = _late(simulated, "GangIgnored")
    assert (ignored["status"], ignored["reason"]) == ("True", "SchedulerWithoutGangs")
    scheduled = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    simulated.get("PodGroup", "example-0")["status"] = {"conditions": [scheduled]}
    assert _late(simulated, "GangIgnored")["status"] == "False"


def test_a_gang_whose_field_the_api_server_drops_says_so() -> None:
    simulated = submitted(JAXJOB)
    for pod in members(simulated):
        del pod["spec"]["schedulingGroup"]
    ignored = _late(simulated, "GangIgnored")
    assert (ignored["status"], ignored["reason"]) == ("True", "FieldDropped")
    assert ignored["message"].startswith("the API server has dropped schedulingGroup of Pod example-worker-0")


def test_a_cluster_without_gangs_says_so_on_the_job_and_an_upgrade_does_not() -> None:
    simulated = SimulatedJob(JAXJOB, sample("JAXJob"), config=Config(gangs_not_served=True))
    ignored = _late(simulated, "GangIgnored")
    assert (ignored["status"], ignored["reason"]) == ("True", "NotServed")
    assert not _late(_upgraded(KUBEFLOW_TFJOB), "GangIgnored")


Action = Callable[[SimulatedJob], None]
Worlds = list[tuple[tuple[str, ...], SimulatedJob]]


def _end(index: int, code: int) -> Action:
    def act(simulated: SimulatedJob) -> None:
        running = [name for name in simulated.names("Pod") if _runs(simulated, name)]
        if running:
            workload = _workload_of(simulated, running[index])
            simulated.end(workload, code)

    return act


def _runs(simulated: SimulatedJob, pod: str) -> bool:
    return (simulated.get("Pod", pod).get("status") or {}).get("phase") == "Running"


def _workload_of(simulated: SimulatedJob, pod: str) -> str:
    jobs = [name for name in simulated.names("Job") if pod in simulated.pods(name)]
    return jobs[0] if jobs else pod


def _lose(simulated: SimulatedJob) -> None:
    """A drain deletes the first member."""
    if pods_ := [pod for pod in simulated.names("Pod") if _runs(simulated, pod)]:
        simulated.drop(simulated.get("Pod", pods_[0])["metadata"]["uid"])


def _end_and_lose(simulated: SimulatedJob) -> None:
    """The operator sees both at once."""
    if len([name for name in simulated.names("Pod") if _runs(simulated, name)]) > 1:
        _end(-1, 0)(simulated)
        _lose(simulated)


def _wait(simulated: SimulatedJob) -> None:
    simulated.now += 400


ACTIONS: dict[str, Action] = {
    "run": lambda simulated: simulated.run(),
    "first ends with 0": _end(0, 0),
    "last ends with 0": _end(-1, 0),
    "first is killed": _end(0, 137),
    "first is lost": _lose,
    "last ends with 0, first is lost": _end_and_lose,
    "suspend": lambda simulated: simulated.edit(suspend=True),
    "resume": lambda simulated: simulated.edit(suspend=False),
    "wait": _wait,
}


@pytest.mark.parametrize("kind", [PYTORCHJOB, MXJOB, ELASTICJOB, TFJOB, CHAINERJOB], ids=lambda kind: kind.gvk.kind)
def test_no_replacement_is_ever_held_and_no_gang_starts_in_part(kind: Kind) -> None:
    """All that four of ACTIONS lead to. With more than its members as minCount, kube-scheduler holds a group for ever
    and says nothing; with fewer it starts a part of it."""
    assert _explore(submitted(kind)) > 50


def _explore(first: SimulatedJob) -> int:
    """Check all that four of ACTIONS lead to; the number of different states."""
    states = {_state(first)}
    worlds: Worlds = [((), first)]
    for _ in range(4):
        worlds = [(path, world) for path, world in _next_worlds(worlds) if _state(world) not in states]
        unseen = {_state(world): (path, world) for path, world in worlds}
        states |= set(unseen)
        worlds = list(unseen.values())
    return len(states)


def _next_worlds(worlds: Worlds) -> Iterator[tuple[tuple[str, ...], SimulatedJob]]:
    for path, world in worlds:
        for name, act in ACTIONS.items():
            simulated = copy.deepcopy(world)
            act(simulated)
            before = copy.deepcopy(simulated)
            for planned in _until_settled(simulated):
                patched = {patch.gvk for patch in simulated.look().patches}
                assert not planned.creates or NATIVE_POD_GROUP not in patched, (*path, name)  # it was, before them
            _check(before, simulated, (*path, name))
            yield (*path, name), simulated


def _state(simulated: SimulatedJob) -> str:
    """All that later passes depend on but the times."""
    pods_ = [(ref, obj.get("status", {}).get("phase"), group_of(obj)) for ref, obj in simulated.objects.items()]
    roles = simulated.job["status"].get("roles")
    return repr(
        (sorted(pods_, key=repr), roles, simulated.job["spec"].get("suspend"), simulated.job["spec"].get("runPolicy"))
    )


def _check(before: SimulatedJob, simulated: SimulatedJob, sequence: tuple[str, ...]) -> None:
    if any(find_condition(simulated.job["status"]["conditions"], name) for name in ("Succeeded", "Failed")):
        return
    groups, listed = simulated.names("PodGroup"), members(simulated)
    assert {group_of(pod) for pod in listed} <= set(groups) and len(groups) <= 1, sequence
    _check_members(before, simulated, sequence)
    starting = [pod for pod in listed if not (pod.get("status") or {}).get("phase")]
    to_come = _pods_to_come(simulated)
    if (starting or to_come) and not _gang_waits_for_its_retry(simulated):
        existing = len(listed) + to_come
        assert min_count(simulated) <= existing, sequence
        assert len(starting) + to_come < existing or min_count(simulated) == existing, sequence


def _check_members(before: SimulatedJob, simulated: SimulatedJob, sequence: tuple[str, ...]) -> None:
    """They have the priority of their group. Members of the attempt before, which may still end, are in another one."""
    old = {group_of(pod): labels_of(pod)[ATTEMPT] for pod in members(before)}
    restarts_gang = parse_job(simulated.kind, simulated.job, simulated.config).restarts_gang()
    for pod in members(simulated):
        group, attempt = group_of(pod), labels_of(pod)[ATTEMPT]
        priority = simulated.get("PodGroup", group)["spec"].get("priorityClassName")
        assert pod["spec"].get("priorityClassName") == priority, sequence
        assert not restarts_gang or old.get(group, attempt) == attempt, sequence


def _joined_without_class(pod_spec: Json, job: Job, priority_class: str) -> None:
    pod_spec["schedulingGroup"] = {"podGroupName": native_gang.group_name(job)}


def _lowered_after_the_creates(job: Job, owned: OwnedObjects, *rest: Any) -> Any:
    deletes, patches = AUXILIARY_CHANGES(job, owned, *rest)
    return deletes, [] if changes.missing_creates(job, owned) else patches


AUXILIARY_CHANGES = changes.auxiliary_changes
HIGH_MASTER = {"replicas": 1, "template": pods("pytorch", priorityClassName="high")}
HIGH = kubeflow_job(
    "PyTorchJob", run_policy={"schedulingPolicy": {"priorityClass": "high"}}, Master=HIGH_MASTER, Worker=2
)
MISTAKES: dict[str, tuple[object, str, object]] = {
    "one group for all attempts": (native_gang, "group_name", lambda job: f"{job.key.name}-0"),
    "ended members are counted": (gang_members, "living_members", started_members),
    "minCount is lowered after the replacement is created": (changes, "auxiliary_changes", _lowered_after_the_creates),
    "the priority of one role": (native_gang, "_join", _joined_without_class),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(AssertionError):
        _ = [_explore(submitted(kind, job)) for kind, job in ((PYTORCHJOB, HIGH), (MXJOB, None), (ELASTICJOB, None))]


def _gang_waits_for_its_retry(simulated: SimulatedJob) -> bool:
    """Then a lost member that is created again need not start before the others do."""
    restarting = find_condition(simulated.job["status"]["conditions"], "Restarting")
    is_gang = parse_job(simulated.kind, simulated.job, simulated.config).restarts_gang()
    return is_gang and restarting is not None and restarting["status"] == "True"


def _pods_to_come(simulated: SimulatedJob) -> int:
    """The pods that batch Jobs and StatefulSets have not created yet."""
    missing = 0
    for name in simulated.names("StatefulSet"):
        live = sum(_is_live(simulated, pod) for pod in simulated.pods(name))
        missing += simulated.get("StatefulSet", name)["spec"]["replicas"] - live
    jobs = (name for name in simulated.names("Job") if not simulated.get("Job", name).get("status"))
    return missing + sum(all(not _is_live(simulated, pod) for pod in simulated.pods(name)) for name in jobs)


def _is_live(simulated: SimulatedJob, pod: str) -> bool:
    return (simulated.get("Pod", pod).get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _with_gpus(count: int) -> Json:
    template = pods("jax")
    template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": count}}
    return kubeflow_job("JAXJob", Worker={"replicas": 2, "template": template})


@pytest.mark.parametrize(("gpus", "groups"), [(0, []), (1, ["example-0"])])
def test_on_one_machine_a_job_has_a_group_where_it_asks_for_devices(gpus: int, groups: list[str]) -> None:
    config = Config(gang_scheduler=NATIVE, gangs_need_devices=True)
    simulated = SimulatedJob(JAXJOB, _with_gpus(gpus), config=config)
    simulated.settle()
    assert simulated.names("PodGroup") == groups
    assert {group_of(pod) for pod in members(simulated)} == {"".join(groups)}


def test_on_one_machine_roles_of_several_priorities_are_a_gang() -> None:
    """No priority counts there."""
    config = Config(gang_scheduler=NATIVE, gangs_need_devices=True)
    template = {**_with_gpus(1)["spec"]["jaxReplicaSpecs"]["Worker"]["template"]}
    template["spec"] = {**template["spec"], "priorityClassName": "high"}
    template["spec"]["containers"] = [{**template["spec"]["containers"][0], "name": "pytorch"}]
    master = {"replicas": 1, "template": template}
    simulated = SimulatedJob(PYTORCHJOB, kubeflow_job("PyTorchJob", Master=master, Worker=2), config=config)
    simulated.settle()
    assert simulated.names("PodGroup") == ["example-0"]


def _in_one(key: str) -> Json:
    job = kubeflow_job("JAXJob", Worker=2)
    job["metadata"]["annotations"] = {"trainyard.dev/topology-key": key}
    return job


def test_a_topology_key_is_a_constraint_of_the_group_and_follows_an_edit_with_the_next_one() -> None:
    simulated = started(JAXJOB, _in_one("example.com/rack"))
    constraints = simulated.get("PodGroup", "example-0")["spec"]["schedulingConstraints"]
    assert constraints == {"topology": [{"key": "example.com/rack"}]}
    simulated.job["metadata"]["annotations"]["trainyard.dev/topology-key"] = "example.com/row"
    simulated.settle()
    assert simulated.get("PodGroup", "example-0")["spec"]["schedulingConstraints"] == constraints
    simulated.edit(suspend=True)
    simulated.settle()
    simulated.edit(suspend=False)
    simulated.settle()
    (name,) = simulated.names("PodGroup")
    topology = simulated.get("PodGroup", name)["spec"]["schedulingConstraints"]["topology"]
    assert (name, topology) == ("example-1", [{"key": "example.com/row"}])


def test_a_topology_key_that_is_no_label_key_is_told() -> None:
    simulated = submitted(JAXJOB, _in_one("no good"))
    failed = find_condition(simulated.job["status"]["conditions"], "Failed")
    assert failed is not None and not simulated.names()
    assert "'no good' is no key of a label" in failed["message"]
    assert "(metadata.annotations[trainyard.dev/topology-key])" in failed["message"]
