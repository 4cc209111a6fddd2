"""What an MxJob is made of: the DMLC environment, names, labels, Jobs and the one Service (docs/rules.md, MxJob)."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import mx_set, mxjob, pods
from trainyard import kinds
from trainyard.objects import Json, labels

README = mxjob(mx_set("SCHEDULER", PsRootPort=9091), mx_set("SERVER", 2), mx_set("WORKER", 3), name="example-dist-job")
WORKED_EXAMPLE = [
    ("DMLC_PS_ROOT_PORT", "9091"),
    ("DMLC_PS_ROOT_URI", "example-dist-job-scheduler-1kkf-0"),
    ("DMLC_NUM_SERVER", "2"),
    ("DMLC_NUM_WORKER", "3"),
    ("DMLC_ROLE", "worker"),
]
"""Contract II.6, worker 2 of the README's job."""


def env(simulated: SimulatedJob, job: str, container: str = "mxnet") -> list[tuple[str, str]]:
    listed = simulated.get("Job", job)["spec"]["template"]["spec"]["containers"]
    (expected,) = [candidate for candidate in listed if candidate["name"] == container]
    return [(variable["name"], variable.get("value", "")) for variable in expected.get("env", [])]


def with_env(*variables: Json) -> Json:
    worker = mx_set("WORKER")
    worker["template"]["spec"]["containers"][0]["env"] = list(variables)
    return mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), worker)


def test_child_names_are_those_of_the_readme() -> None:
    simulated = simulate(kinds.MXJOB, README)
    assert simulated.names("Job") == [
        "example-dist-job-scheduler-1kkf-0",
        "example-dist-job-server-1kkf-0",
        "example-dist-job-server-1kkf-1",
        "example-dist-job-worker-1kkf-0",
        "example-dist-job-worker-1kkf-1",
        "example-dist-job-worker-1kkf-2",
    ]


def test_the_environment_is_the_worked_example() -> None:
    simulated = simulate(kinds.MXJOB, README)
    assert env(simulated, "example-dist-job-worker-1kkf-2") == [*WORKED_EXAMPLE, ("DMLC_USE_KUBERNETES", "1")]
    assert env(simulated, "example-dist-job-server-1kkf-1")[4] == ("DMLC_ROLE", "server")
    assert env(simulated, "example-dist-job-scheduler-1kkf-0")[4] == ("DMLC_ROLE", "scheduler")


@pytest.mark.parametrize("many", range(7))
def test_the_users_variables_stay_and_come_first(many: int) -> None:
    """With one to four the old operator died, with five and more it wrote over them (docs/rules.md II.6)."""
    own = [{"name": f"MINE_{index}", "value": str(index)} for index in range(many)]
    variables = env(simulate(kinds.MXJOB, with_env(*own)), "example-worker-1kkf-0")
    assert variables[:many] == [(variable["name"], variable["value"]) for variable in own]
    assert [name for name, _ in variables[many:]] == [*(name for name, _ in WORKED_EXAMPLE), "DMLC_USE_KUBERNETES"]


def test_dmlc_use_kubernetes_is_the_users_when_given() -> None:
    variables = env(
        simulate(kinds.MXJOB, with_env({"name": "DMLC_USE_KUBERNETES", "value": "0"})), "example-worker-1kkf-0"
    )
    assert [pair for pair in variables if pair[0] == "DMLC_USE_KUBERNETES"] == [("DMLC_USE_KUBERNETES", "0")]


def test_a_sidecar_gets_no_variables() -> None:
    worker = mx_set("WORKER")
    worker["template"]["spec"]["containers"].append({"name": "sidecar", "image": "x"})
    simulated = simulate(kinds.MXJOB, mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), worker))
    assert env(simulated, "example-worker-1kkf-0", "sidecar") == []


def test_a_job_is_one_attempt_and_carries_the_labels_of_the_old_operator() -> None:
    job = simulate(kinds.MXJOB, README).get("Job", "example-dist-job-worker-1kkf-2")
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 0)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    wanted = {"mxnet.mlkube.io": "", "job_type": "WORKER", "runtime_id": "1kkf", "task_index": "2"}
    for meta in (job["metadata"], spec["template"]["metadata"]):
        assert labels.matches_labels({**wanted, "mx_job_name": "example-dist-job"}, meta["labels"])


def test_one_headless_service_names_every_pod() -> None:
    simulated = simulate(kinds.MXJOB, README)
    service = simulated.get("Service", "mxjob-1kkf")["spec"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    assert service["ports"] == [{"name": "ps-root-port-9091", "port": 9091}]
    simulated.run()
    for name in simulated.names("Pod"):
        pod = simulated.get("Pod", name)
        assert labels.matches_labels(service["selector"], pod["metadata"]["labels"])
        assert pod["spec"]["subdomain"] == "mxjob-1kkf" and pod["spec"]["hostname"] == name.rpartition("-")[0]
        assert pod["spec"]["dnsConfig"]["searches"] == ["mxjob-1kkf.default.svc.cluster.local"]


@pytest.mark.parametrize("count", [0, 1])
def test_local_mode_creates_one_batch_job_only(count: int) -> None:
    simulated = simulate(kinds.MXJOB, mxjob(mx_set("WORKER", count), jobMode="local"))
    assert simulated.names() == ["example-worker-1kkf-0"]
    assert env(simulated, "example-worker-1kkf-0") == []
    assert "subdomain" not in simulated.get("Job", "example-worker-1kkf-0")["spec"]["template"]["spec"]


@pytest.mark.parametrize(("port", "expected"), [(None, "9091"), (9091, "9091"), (7000, "7000")])
def test_the_port_is_the_schedulers(port: int | None, expected: str) -> None:
    scheduler = mx_set("SCHEDULER", **({} if port is None else {"PsRootPort": port}))
    job = mxjob(scheduler, mx_set("SERVER", PsRootPort=1), mx_set("WORKER"))
    assert env(simulate(kinds.MXJOB, job), "example-worker-1kkf-0")[0] == ("DMLC_PS_ROOT_PORT", expected)


def test_the_users_object_is_not_touched() -> None:
    job = mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER", template=pods("mxnet")))
    simulated = simulate(kinds.MXJOB, job)
    assert all(
        item["template"] in (pods("mxnet"), mx_set("X")["template"]) for item in simulated.job["spec"]["replicaSpecs"]
    )
