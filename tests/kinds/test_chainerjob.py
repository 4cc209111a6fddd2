"""What a ChainerJob is made of: master Job, StatefulSets, slots, rights and files (docs/rules.md 1.3 to 1.6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import chainerjob, pods, worker_set
from trainyard import kinds
from trainyard.kinds.chainerjob.kind import job_limits, slots_of
from trainyard.objects import Json, format_time, uid_of

GPU = "nvidia.com/gpu"
ROOT = "/kubeflow/chainer-operator"


def part(name: str = "chainer", **container: Any) -> Json:
    return {"template": {"spec": {"containers": [{"name": name, "image": "i", **container}]}}}


SLOTS = [
    ("nothing said", part(), 1),
    ("mpiConfig", {**part(), "mpiConfig": {"slots": 3}}, 3),
    ("mpiConfig wins over GPUs", {**part(resources={"limits": {GPU: 4}}), "mpiConfig": {"slots": 3}}, 3),
    ("mpiConfig without slots", {**part(resources={"limits": {GPU: 4}}), "mpiConfig": {}}, 4),
    ("mpiConfig null", {**part(resources={"limits": {GPU: 4}}), "mpiConfig": None}, 4),
    ("GPU limits", part(resources={"limits": {GPU: 2}}), 2),
    ("GPU limits as text", part(resources={"limits": {GPU: "2"}}), 2),
    ("no GPU, in so many words", part(resources={"limits": {GPU: 0}}), 1),
    ("requests only", part(resources={"requests": {GPU: 2}}), 1),
    ("another accelerator", part(resources={"limits": {"amd.com/gpu": 2}}), 1),
    ("no container chainer", part("main", resources={"limits": {GPU: 2}}), 1),
    ("one container without a name", part("", resources={"limits": {GPU: 2}}), 2),
    ("a quantity that is no number", part(resources={"limits": {GPU: "many"}}), 1),
]


@pytest.mark.parametrize(("container", "slots"), [pytest.param(*row[1:], id=row[0]) for row in SLOTS])
def test_the_slots_of_a_pod(container: Json, slots: int) -> None:
    assert slots_of(container) == slots


def test_the_first_container_chainer_counts_and_no_other() -> None:
    whole = part(resources={"limits": {GPU: 2}})
    whole["template"]["spec"]["containers"].insert(0, {"name": "side", "resources": {"limits": {GPU: 8}}})
    whole["template"]["spec"]["initContainers"] = [{"name": "chainer", "resources": {"limits": {GPU: 8}}}]
    assert slots_of(whole) == 2


def test_the_list_for_the_hostfile_is_sorted_with_slots_and_replicas() -> None:
    sets = {"b": worker_set(2, mpiConfig={"slots": 4}), "a": worker_set(1)}
    simulated = simulate(kinds.CHAINERJOB, chainerjob(sets))
    text = simulated.get("ConfigMap", "example-assets")["data"]["statefulsets_and_slots"]
    assert text == "example-workerset-a slots=1 replicas=1\nexample-workerset-b slots=4 replicas=2\n"


@pytest.mark.parametrize(
    ("sets", "names"),
    [
        ({}, []),
        ({"ws0": worker_set(2)}, ["example-workerset-ws0-0", "example-workerset-ws0-1"]),
        ({"b": worker_set(1), "a": worker_set(1)}, ["example-workerset-a-0", "example-workerset-b-0"]),
    ],
)
def test_the_role_grants_exec_on_exactly_the_workers(sets: Json, names: list[str]) -> None:
    """A rule without names would be for every pod of the namespace (S22, docs/rules.md 1.5)."""
    rules = simulate(kinds.CHAINERJOB, chainerjob(sets)).get("Role", "example-launcher-role")["rules"]
    assert [(rule["resources"], rule["verbs"], rule["resourceNames"]) for rule in rules] == (
        [(["pods"], ["get"], names), (["pods/exec"], ["get", "create"], names)] if names else []
    )


def test_the_binding_gives_the_role_to_the_jobs_account() -> None:
    simulated = simulate(kinds.CHAINERJOB, chainerjob())
    binding = simulated.get("RoleBinding", "example-launcher-rolebinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "example-launcher", "namespace": "default"}]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "example-launcher-role")
    assert "rules" not in simulated.get("ServiceAccount", "example-launcher")


def objects(job: Json) -> tuple[SimulatedJob, Json, Json]:
    simulated = simulate(kinds.CHAINERJOB, job)
    return simulated, simulated.get("Job", "example-master"), simulated.get("StatefulSet", "example-workerset-ws0")


def test_the_master_job_and_the_stateful_set_have_the_shape_of_the_old_operators() -> None:
    _, master, workers = objects(chainerjob())
    assert (master["spec"]["completions"], master["spec"]["parallelism"]) == (1, 1)
    assert master["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    spec = workers["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["serviceName"]) == (
        2,
        "Parallel",
        "example-workerset-ws0",
    )
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    for child in (master, workers):
        assert child["spec"]["template"]["spec"]["serviceAccountName"] == "example-launcher"


def test_the_labels_list_every_part_of_a_job() -> None:
    job = chainerjob()
    job["metadata"]["labels"] = {"team": "vision", "chainerjob.kubeflow.org/name": "mine"}
    simulated, master, workers = objects(job)
    simulated.run()
    for body in simulated.objects.values():
        assert body["metadata"]["labels"]["chainerjob.kubeflow.org/name"] == "example"
    for child, role in ((master, "master"), (workers, "workerset")):
        inner = child["spec"]["template"]["metadata"]["labels"]
        assert child["metadata"]["labels"]["team"] == "vision" and "team" not in inner
        assert inner["chainerjob.kubeflow.org/role"] == role
    assert workers["metadata"]["labels"]["chainerjob.kubeflow.org/workersetname"] == "ws0"


def test_open_mpi_finds_its_agent_and_its_hosts() -> None:
    _, master, workers = objects(chainerjob())
    for child in (master, workers):
        (chainer,) = child["spec"]["template"]["spec"]["containers"]
        env = {pair["name"]: pair.get("value") for pair in chainer["env"]}
        assert env["OMPI_MCA_plm_rsh_agent"] == f"{ROOT}/assets/kubexeb.sh"
        assert env["OMPI_MCA_orte_keep_fqdn_hostnames"] == "t"
        assert env["OMPI_MCA_orte_default_hostfile"] == f"{ROOT}/generated/hostfile"
        assert env["OMPI_MCA_btl_tcp_if_exclude"] == "lo,docker0"
        assert env["PRTE_MCA_plm_ssh_agent"] == f"{ROOT}/assets/kubexeb.sh"
        assert env["PRTE_MCA_prte_default_hostfile"] == f"{ROOT}/generated/hostfile"
        assert "KUBECTL_DIR" not in env
    (generator,) = master["spec"]["template"]["spec"]["initContainers"]
    assert generator["name"] == "chainer-operator-hostfile-generator"
    assert generator["image"] == master["spec"]["template"]["spec"]["containers"][0]["image"]
    assert "initContainers" not in workers["spec"]["template"]["spec"]


def test_a_job_without_worker_sets_needs_no_mpi() -> None:
    alone = chainerjob({}, master={"template": {"spec": {"containers": [{"image": "i"}]}}})
    simulated = simulate(kinds.CHAINERJOB, alone)
    assert simulated.names() == [
        "example-launcher",
        "example-launcher-role",
        "example-launcher-rolebinding",
        "example-master",
    ]
    spec = simulated.get("Job", "example-master")["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    assert only["name"] == "chainer" and "env" not in only and "initContainers" not in spec and "volumes" not in spec


LIMITS = [
    ({}, {}, {}),
    ({"backoffLimit": 3}, {}, {"backoffLimit": 3}),
    ({"backoffLimit": 3}, {"backoffLimit": 1}, {"backoffLimit": 1}),
    ({"backoffLimit": 3}, {"backoffLimit": 0}, {"backoffLimit": 0}),
    ({"activeDeadlineSeconds": 9}, {"backoffLimit": 1}, {"backoffLimit": 1, "activeDeadlineSeconds": 9}),
]


@pytest.mark.parametrize(("of_the_job", "of_the_master", "expected"), LIMITS)
def test_limits_go_to_the_master_job_and_its_own_win(of_the_job: Json, of_the_master: Json, expected: Json) -> None:
    job = chainerjob(master={"template": pods("chainer"), **of_the_master}, **of_the_job)
    assert job_limits(job["spec"]) == expected
    _, master, _ = objects(job)
    spec = master["spec"]
    assert {key: spec[key] for key in ("backoffLimit", "activeDeadlineSeconds") if key in spec} == expected


POLICIES = [(None, "Never"), ("Never", "Never"), ("OnFailure", "OnFailure"), ("Always", "OnFailure")]


@pytest.mark.parametrize(("written_policy", "expected"), POLICIES)
def test_the_masters_restart_policy(written_policy: str | None, expected: str) -> None:
    policy = {} if written_policy is None else {"restartPolicy": written_policy}
    _, master, _ = objects(chainerjob(master={"template": pods("chainer", **policy)}))
    assert master["spec"]["template"]["spec"]["restartPolicy"] == expected


def test_the_status_of_a_done_job_is_a_job_status_as_printed() -> None:
    simulated, _, _ = objects(chainerjob())
    simulated.run()
    assert simulated.settle()["active"] == 1
    simulated.end("example-master", 0)
    status = simulated.settle()
    (complete,) = [condition for condition in status["conditions"] if condition["type"] == "Complete"]
    assert complete["status"] == "True" and complete["lastProbeTime"] == complete["lastTransitionTime"]
    assert status["succeeded"] == 1 and "active" not in status and status["startTime"] and status["completionTime"]
    assert simulated.get("StatefulSet", "example-workerset-ws0")["spec"]["replicas"] == 0


GONE = "and its pods have been deleted, so that the exit code of container chainer is not known"
FAILED_JOBS = [
    pytest.param("BackoffLimitExceeded", 1, "", f"1 pod of it failed, {GONE}", id="the node's last restart, pod gone"),
    pytest.param("DeadlineExceeded", 3, "", f"3 pods of it failed, {GONE}", id="a deadline, pods gone"),
    pytest.param("DeadlineExceeded", 0, "", GONE.removeprefix("and "), id="a deadline before the first pod failed"),
    pytest.param("DeadlineExceeded", 1, "runs", "container chainer was still running", id="a deadline, pod going"),
    pytest.param("BackoffLimitExceeded", 1, "3", "container chainer exited with code 3", id="a restart, pod going"),
    pytest.param("BackoffLimitExceeded", 1, "ended", "container chainer exited with code 3", id="the pod stays"),
]


@pytest.mark.parametrize(("reason", "failed", "pod", "text"), FAILED_JOBS)
def test_a_failed_master_job_is_counted_and_reported_with_or_without_its_pods(
    reason: str, failed: int, pod: str, text: str
) -> None:
    """Kubernetes removes the running pods of a Job that it gives up: all that is left then is the Job's own count."""
    simulated, _, _ = objects(chainerjob(master={"template": pods("chainer", restartPolicy="OnFailure")}))
    simulated.run()
    simulated.settle()
    name = simulated.pods("example-master")[0]
    if pod == "3":
        simulated.restart("example-master", 3)
        simulated.settle()
    if pod == "ended":
        simulated.end("example-master", 3)
    if not pod:
        simulated.drop(uid_of(simulated.get("Pod", name)))
    elif pod != "ended":
        simulated.get("Pod", name)["metadata"]["deletionTimestamp"] = format_time(simulated.now)
    simulated.finish("example-master", reason)
    simulated.get("Job", "example-master")["status"]["failed"] = failed
    status = simulated.settle()
    (condition,) = [candidate for candidate in status["conditions"] if candidate["type"] == "Failed"]
    assert status.get("failed", 0) == failed and status["state"] == "Failed"
    assert condition["reason"] == reason and text in condition["message"], condition["message"]
    limit = "raise activeDeadlineSeconds" if reason == "DeadlineExceeded" else "raise backoffLimit"
    hint = "see the logs of the pod" if pod and reason == "BackoffLimitExceeded" else limit
    assert hint in condition["message"]


def test_failed_pods_are_counted_once_in_any_order_of_observation() -> None:
    simulated, _, _ = objects(chainerjob(backoffLimit=3))
    simulated.run()
    simulated.settle()
    simulated.get("Job", "example-master")["status"] = {"active": 1, "failed": 1}
    assert simulated.settle()["failed"] == 1, "the Job counts what has gone"
    simulated.end("example-master", 3)
    assert simulated.settle()["failed"] == 1, "the same pod"
    simulated.drop(uid_of(simulated.get("Pod", simulated.pods("example-master")[0])))
    simulated.get("Job", "example-master")["status"] = {"active": 1, "failed": 2}
    assert simulated.settle()["failed"] == 2


def test_the_config_map_stays_without_worker_sets_because_the_master_mounts_it() -> None:
    """Its Job tries again by itself, and a pod does not start without what it mounts."""
    simulated, _, _ = objects(chainerjob())
    simulated.run()
    simulated.settle()
    simulated.edit(workerSets={})
    simulated.settle()
    assert simulated.names("StatefulSet") == [] and simulated.get("Role", "example-launcher-role")["rules"] == []
    assert simulated.get("ConfigMap", "example-assets")["data"]["statefulsets_and_slots"] == ""
