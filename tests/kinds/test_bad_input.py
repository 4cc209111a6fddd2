"""What a person may write for MxJob, ChainerJob and ElasticJob, and may not: each with its path and its fix.

The same rows go through admission, through `trainyard lint`, through an operator that meets them stored, and as an edit
of a job that runs (docs/rules.md S1).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import chainerjob, elasticjob, mx_set, mxjob, pods, sample, worker_set
from trainyard import kinds
from trainyard.cli.lint import lint
from trainyard.core import Kind
from trainyard.objects import Json

SCHEDULER, SERVER, WORKER = mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER")
LIST, SET, ELASTIC = "spec.replicaSpecs", "spec.workerSets.ws0", "spec.replicaSpecs.Worker"


def without(job: Json, *names: str) -> Json:
    return {**job, "spec": {key: value for key, value in job["spec"].items() if key not in names}}


def named(job: Json, name: str) -> Json:
    return {**job, "metadata": {**job["metadata"], "name": name}}


def mx_worker(**fields: Any) -> Json:
    return mxjob(SCHEDULER, SERVER, {**WORKER, **fields})


def chainer_set(**fields: Any) -> Json:
    return chainerjob({"ws0": worker_set(**fields)})


def worker(**fields: Any) -> Json:
    return elasticjob(worker=fields)


MX: list[tuple[str, Json, str, str]] = [
    (
        "no scheduler",
        mxjob(SERVER, WORKER),
        LIST,
        "invalid job spec: dist job mode without replica type SCHEDULER; add",
    ),
    ("no server", mxjob(SCHEDULER, WORKER), LIST, "dist job mode without replica type SERVER"),
    (
        "two schedulers",
        mxjob(mx_set("SCHEDULER", 2), SERVER, WORKER),
        f"{LIST}[0].replicas",
        "must have Replicas = 1; w",
    ),
    ("a scheduler of none", mxjob(mx_set("SCHEDULER", 0), SERVER, WORKER), f"{LIST}[0].replicas", "Replicas = 1"),
    ("a scheduler twice", mxjob(SCHEDULER, SCHEDULER, WORKER), LIST, "a type may be listed only once"),
    (
        "no jobMode",
        without(mxjob(), "jobMode"),
        "spec.jobMode",
        "unkonw job mode ; write jobMode: local or jobMode: dist",
    ),
    ("a jobMode in capitals", mxjob(jobMode="Dist"), "spec.jobMode", "unkonw job mode Dist; write"),
    ("local with a scheduler", mxjob(SCHEDULER, jobMode="local"), "spec.jobMode", "type other than worker; write"),
    (
        "local with two workers",
        mxjob(mx_set("WORKER", 2), jobMode="local"),
        "spec.jobMode",
        "more than 1 worker; write",
    ),
    ("an unknown type", mx_worker(mxReplicaType="Worker"), f"{LIST}[2].mxReplicaType", "is Worker but must be one of"),
    (
        "no container mxnet",
        mx_worker(template=pods("main")),
        f"{LIST}[2].template.spec.containers",
        "WORKER is missing",
    ),
    ("no template", mx_worker(template=None), f"{LIST}[2].template", "Replica is missing Template; {"),
    ("negative replicas", mx_worker(replicas=-1), f"{LIST}[2].replicas", "must be greater than or equal to 0"),
    ("huge replicas", mx_worker(replicas=100_000), f"{LIST}[2].replicas", "must be less than or equal to 10000"),
    ("replicas as text", mx_worker(replicas="3"), f"{LIST}[2].replicas", "must be an integer"),
    ("port 0", mx_worker(PsRootPort=0), f"{LIST}[2].PsRootPort", "must be greater than or equal to 1"),
    ("a port as text", mx_worker(PsRootPort="9091"), f"{LIST}[2].PsRootPort", "must be an integer"),
    ("no replicas at all", mxjob(replicaSpecs=[]), LIST, "a job has replicas: write replicaSpecs"),
    (
        "an item that is null",
        mxjob(replicaSpecs=[None]),
        LIST,
        "there was a problem setting defaults for job spec: ReplicaSpecs contain nil; item 0 is empty: write the set",
    ),
    ("a null beside others", mxjob(SCHEDULER, SERVER, WORKER, replicaSpecs=[SCHEDULER, None]), LIST, "nil; item 1 is"),
    (
        "restartPolicy: Sometimes",
        mx_worker(template=pods("mxnet", restartPolicy="Sometimes")),
        f"{LIST}[2].template.spec.restartPolicy",
        "Sometimes is no restartPolicy of a pod: write Always, OnFailure or Never, or leave it out",
    ),
    ("both spellings", mxjob(replica_specs=[SCHEDULER]), "spec.replica_specs", "write one of the two"),
    ("a name too long", named(mxjob(), "x" * 47), "metadata.name", "at most 46 lower-case letters"),
    ("a name in capitals", named(mxjob(), "Job"), "metadata.name", "lower-case letters"),
    ("a RuntimeId in capitals", mxjob(RuntimeId="1KKF"), "spec.RuntimeId", "must match"),
    ("a name too long for its RuntimeId", named(mxjob(RuntimeId="a" * 16), "x" * 35), "metadata.name", "fewer with a"),
    ("a negative backoffLimit", mxjob(backoffLimit=-1), "spec.backoffLimit", "must be greater than or equal to 0"),
]
CHAINER: list[tuple[str, Json, str, str]] = [
    ("no master", without(chainerjob(), "master"), "spec.master", "a ChainerJob has one master: write master"),
    ("a master that is null", chainerjob(master=None) | {"spec": {"master": None}}, "spec.master", "one master"),
    ("no template", chainerjob(master={"mpiConfig": None}), "spec.master.template.spec.containers", "named chainer"),
    (
        "no container chainer",
        chainerjob(master={"template": pods("main")}),
        "spec.master.template.spec.containers",
        "ame",
    ),
    ("no container chainer in a set", chainer_set(template=pods("x")), f"{SET}.template.spec.containers", "worker set"),
    ("a set of none", chainer_set(replicas=0), f"{SET}.replicas", "0: must be greater than or equal to 1"),
    ("a set that is null", chainerjob({"ws0": None}), SET, "must be an object"),
    ("a hundred thousand workers", chainer_set(replicas=100_000), f"{SET}.replicas", "less than or equal to 10000"),
    ("replicas as text", chainer_set(replicas="2"), f"{SET}.replicas", "must be an integer"),
    (
        "slots that do not parse",
        chainer_set(mpiConfig={"slots": "two"}),
        f"{SET}.mpiConfig.slots",
        "must be an integer",
    ),
    ("no slots", chainer_set(mpiConfig={"slots": 0}), f"{SET}.mpiConfig.slots", "must be greater than or equal to 1"),
    ("half a slot", chainer_set(mpiConfig={"slots": 1.5}), f"{SET}.mpiConfig.slots", "must be an integer"),
    ("mpiConfig as text", chainer_set(mpiConfig="slots=2"), f"{SET}.mpiConfig", "must be an object"),
    (
        "an unknown backend",
        chainerjob(backend="nccl"),
        "spec.backend",
        'backend:"nccl" not supported; write backend: mpi',
    ),
    ("a backend in capitals", chainerjob(backend="MPI"), "spec.backend", 'backend:"MPI" not supported'),
    ("workerSets as a list", chainerjob(workerSets=[worker_set()]), "spec.workerSets", "must be an object"),
    ("a set named master", chainerjob({"master": worker_set()}), "spec.workerSets", "not 'master'"),
    ("a set name in capitals", chainerjob({"WS0": worker_set()}), "spec.workerSets", "lower-case letters"),
    ("a set name with a dot", chainerjob({"a.b": worker_set()}), "spec.workerSets", "lower-case letters"),
    ("a name too long", named(chainerjob(), "x" * 39), "metadata.name", "at most 41 characters together"),
    (
        "restartPolicy: never",
        chainerjob(master={"template": pods("chainer", restartPolicy="never")}),
        "spec.master.template.spec.restartPolicy",
        "never is no restartPolicy of a pod: write Always, OnFailure or Never",
    ),
    (
        "restartPolicy: Sometimes in a set",
        chainer_set(template=pods("chainer", restartPolicy="Sometimes")),
        f"{SET}.template.spec.restartPolicy",
        "Sometimes is no restartPolicy of a pod",
    ),
    ("a negative deadline", chainerjob(master={"activeDeadlineSeconds": -1}), "spec.master.activeDeadlineSeconds", "0"),
    ("a deadline as text", chainerjob(activeDeadlineSeconds="1h"), "spec.activeDeadlineSeconds", "must be an integer"),
]
ELASTICS: list[tuple[str, Json, str, str]] = [
    ("no endpoint", without(elasticjob(), "rdzvEndpoint"), "spec.rdzvEndpoint", "rendezvous: write rdzvEndpoint"),
    ("an endpoint that is null", elasticjob(rdzvEndpoint=None), "spec.rdzvEndpoint", "need a rendezvous"),
    ("an empty endpoint", elasticjob(rdzvEndpoint=""), "spec.rdzvEndpoint", "need a rendezvous"),
    (
        "the sample's placeholder",
        elasticjob(rdzvEndpoint="<your_etcd_endpoint>:2379"),
        "spec.rdzvEndpoint",
        "host:port",
    ),
    ("a URL", elasticjob(rdzvEndpoint="http://etcd:2379"), "spec.rdzvEndpoint", "for example etcd-service:2379"),
    ("a port without digits", elasticjob(rdzvEndpoint="etcd:port"), "spec.rdzvEndpoint", "write host:port"),
    ("an endpoint with a line end", elasticjob(rdzvEndpoint="etcd:2379\n"), "spec.rdzvEndpoint", "write host:port"),
    ("an endpoint that is a number", elasticjob(rdzvEndpoint=2379), "spec.rdzvEndpoint", "must be a string"),
    ("a backend that nobody knows", elasticjob(rdzvBackend="zookeeper"), "spec.rdzvBackend", "c10d"),
    ("etcd without an endpoint", elasticjob(rdzvBackend="etcd", rdzvEndpoint=None), "spec.rdzvEndpoint", "c10d"),
    ("min above max", elasticjob(minReplicas=3, maxReplicas=2), "spec.minReplicas", "raise maxReplicas or lower min"),
    ("replicas below min", elasticjob(2, minReplicas=3), f"{ELASTIC}.replicas", "raise replicas or lower minReplicas"),
    ("replicas above max", elasticjob(2, maxReplicas=1), f"{ELASTIC}.replicas", "lower replicas or raise maxReplicas"),
    (
        "one replica by default, two at least",
        elasticjob(None, minReplicas=2),
        f"{ELASTIC}.replicas",
        "below minReplicas",
    ),
    ("no replicas", elasticjob(0), f"{ELASTIC}.replicas", "0: must be greater than or equal to 1"),
    ("a hundred thousand", elasticjob(100_000), f"{ELASTIC}.replicas", "must be less than or equal to 10000"),
    ("min 0", elasticjob(minReplicas=0), "spec.minReplicas", "must be greater than or equal to 1"),
    ("min as text", elasticjob(minReplicas="1"), "spec.minReplicas", "must be an integer"),
    (
        "worker in small letters",
        elasticjob(replicaSpecs={"worker": {"template": pods("x")}}),
        LIST,
        "not worker; write W",
    ),
    (
        "an Etcd set beside",
        elasticjob(replicaSpecs={**elasticjob()["spec"]["replicaSpecs"], "Etcd": {}}),
        LIST,
        "not Etcd",
    ),
    ("no sets", elasticjob(replicaSpecs={}), LIST, "write replicaSpecs.Worker"),
    ("replicaSpecs as a list", elasticjob(replicaSpecs=[{}]), LIST, "must be an object"),
    ("a set that is null", elasticjob(replicaSpecs={"Worker": None}), ELASTIC, "must be an object"),
    (
        "no template",
        worker(template=None),
        f"{ELASTIC}.template",
        "write a template with a container named elasticjob-w",
    ),
    ("no containers", worker(template={"spec": {"containers": []}}), f"{ELASTIC}.template", "have no containers"),
    ("an unknown restartPolicy", worker(restartPolicy="Sometimes"), f"{ELASTIC}.restartPolicy", "supported values:"),
    (
        "restartPolicy: always in the template",
        worker(template=pods("elasticjob-worker", restartPolicy="always")),
        f"{ELASTIC}.template.spec.restartPolicy",
        "always is no restartPolicy of a pod",
    ),
    ("a name too long", named(elasticjob(), "x" * 52), "metadata.name", "at most 51 characters"),
    ("a name that begins with a digit", named(elasticjob(), "1job"), "metadata.name", "write a letter, then"),
    (
        "an unknown cleanPodPolicy",
        elasticjob(runPolicy={"cleanPodPolicy": "all"}),
        "spec.runPolicy.cleanPodPolicy",
        '"All"',
    ),
]
KIND = {"MxJob": kinds.MXJOB, "ChainerJob": kinds.CHAINERJOB, "ElasticJob": kinds.ELASTICJOB}
ROWS = [
    pytest.param(KIND[name], *row[1:], id=f"{name}, {row[0]}")
    for name, rows in (("MxJob", MX), ("ChainerJob", CHAINER), ("ElasticJob", ELASTICS))
    for row in rows
]
EDITS = [row for row in ROWS if row.values[2] != "metadata.name"]  # a name cannot be edited
every_row = pytest.mark.parametrize(("kind", "job", "path", "text"), ROWS)


@every_row
def test_invalid_input_is_reported_with_its_path_and_its_fix(kind: Kind, job: Json, path: str, text: str) -> None:
    reported = kinds.admit(kind, job)[1]
    assert any(problem.path == path and text in problem.text for problem in reported), [
        str(problem) for problem in reported
    ]


@every_row
def test_lint_reports_the_same_problem_and_ends_with_2(
    kind: Kind, job: Json, path: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    meta = {key: value for key, value in job["metadata"].items() if key == "name"}
    file.write_text(yaml.safe_dump({**job, "metadata": meta}))
    result = CliRunner().invoke(lint, [str(file)])
    assert result.exit_code == 2 and path in result.stderr and text in result.stderr, result.stderr


@every_row
def test_a_stored_invalid_job_fails_before_children_are_created(kind: Kind, job: Json, path: str, text: str) -> None:
    planned = SimulatedJob(kind, job).look()
    (failed,) = [condition for condition in planned.status["conditions"] if condition["type"] == "Failed"]
    assert failed["status"] == "True" and failed["reason"] == "InvalidSpec"
    assert planned.status["state"] == "Failed" and not planned.creates and planned.spec_patch is None
    assert text in failed["message"] or "must be" in failed["message"] or len(kinds.admit(kind, job)[1]) > 1


@pytest.mark.parametrize(("kind", "job", "path", "text"), EDITS)
@pytest.mark.parametrize("suspended", [False, True])
def test_an_invalid_edit_of_a_running_job_is_reported_and_stops_nothing(
    kind: Kind, job: Json, path: str, text: str, suspended: bool
) -> None:
    simulated = simulate(kind, sample(kind.gvk.kind))
    simulated.run()
    simulated.settle()
    if suspended:
        simulated.edit(suspend=True)
        simulated.settle()
    simulated.job = {**simulated.job, "spec": job["spec"]}
    planned = simulated.look()
    assert not planned.deletes and not planned.patches and not planned.creates
    assert planned.status["state" if kind.gvk.kind != "MxJob" else "phase"] not in ("Failed", "Done")
    condition_types = {condition["type"] for condition in planned.status["conditions"] if condition["status"] == "True"}
    assert "SpecChangeIgnored" in condition_types


GOOD = [
    pytest.param(kinds.MXJOB, mxjob(mx_set("WORKER"), jobMode="local"), id="MxJob, local"),
    pytest.param(kinds.MXJOB, mxjob(SCHEDULER, mx_set("SERVER", 0), WORKER), id="MxJob, a set of none"),
    pytest.param(kinds.MXJOB, mxjob(SCHEDULER, SERVER, {"template": pods("mxnet")}), id="MxJob, a type left out"),
    pytest.param(kinds.MXJOB, mx_worker(replicas=None, PsRootPort=None), id="MxJob, nulls where Go has nil"),
    *(
        pytest.param(
            kinds.MXJOB, mx_worker(template=pods("mxnet", restartPolicy=policy)), id=f"MxJob, restartPolicy {policy!r}"
        )
        for policy in (None, "", "Always", "OnFailure", "Never")
    ),
    pytest.param(kinds.MXJOB, named(mxjob(), "x" * 46), id="MxJob, the longest name"),
    pytest.param(kinds.CHAINERJOB, chainerjob({}), id="ChainerJob, no sets"),
    pytest.param(kinds.CHAINERJOB, chainerjob({"ws0": worker_set(None)}), id="ChainerJob, one worker by default"),
    pytest.param(kinds.CHAINERJOB, chainer_set(replicas=None, mpiConfig=None), id="ChainerJob, nulls where Go has nil"),
    pytest.param(kinds.CHAINERJOB, chainerjob(backend=None), id="ChainerJob, no backend"),
    pytest.param(
        kinds.CHAINERJOB,
        chainerjob({}, master={"template": {"spec": {"containers": [{"image": "x"}]}}}),
        id="ChainerJob, one container without a name",
    ),
    pytest.param(kinds.CHAINERJOB, named(chainerjob(), "x" * 38), id="ChainerJob, the longest name"),
    pytest.param(kinds.ELASTICJOB, elasticjob(None), id="ElasticJob, one worker by default"),
    pytest.param(kinds.ELASTICJOB, elasticjob(2, minReplicas=2, maxReplicas=2), id="ElasticJob, not elastic"),
    pytest.param(kinds.ELASTICJOB, elasticjob(rdzvEndpoint="[fd00::1]:2379"), id="ElasticJob, an IPv6 address"),
    pytest.param(kinds.ELASTICJOB, elasticjob(rdzvEndpoint="etcd"), id="ElasticJob, a host alone"),
    pytest.param(kinds.ELASTICJOB, elasticjob(RunPolicy={"cleanPodPolicy": None}), id="ElasticJob, an old RunPolicy"),
    pytest.param(kinds.ELASTICJOB, named(elasticjob(), "x" * 51), id="ElasticJob, the longest name"),
]


@pytest.mark.parametrize(("kind", "job"), GOOD)
def test_valid_input_is_admitted_by_the_server_and_the_operator(kind: Kind, job: Json) -> None:
    full, problems = kinds.admit(kind, job)
    assert problems == []
    for submitted in (full, job):  # an older definition stores what it was given
        simulated = SimulatedJob(kind, copy.deepcopy(submitted))
        simulated.settle()
        assert simulated.objects and all(len(name) <= 63 for name in simulated.names())


LARGEST = [
    pytest.param(kinds.ELASTICJOB, elasticjob(10000, name="x" * 51), id="ElasticJob"),
    pytest.param(kinds.MXJOB, mxjob(SCHEDULER, SERVER, mx_set("WORKER", 10000), name="x" * 46), id="MxJob"),
]


@pytest.mark.parametrize(("kind", "job"), LARGEST)
def test_names_of_the_largest_job_are_legal(kind: Kind, job: Json) -> None:
    assert kinds.admit(kind, job)[1] == []
    creates = SimulatedJob(kind, job).look().creates
    assert len(creates) > 10000 and all(len(create.name) <= 63 for create in creates)


WARNED = [
    pytest.param(
        kinds.MXJOB, mxjob(mx_set("WORKER", 0), jobMode="local"), "in local mode there is one WORKER", id="local"
    ),
    pytest.param(kinds.MXJOB, mx_worker(template=pods("mxnet")), "of WORKER is not set", id="a batch Job"),
    pytest.param(
        kinds.CHAINERJOB, chainer_set(template=pods("chainer", restartPolicy="Never")), "Always is used", id="a worker"
    ),
    pytest.param(
        kinds.CHAINERJOB,
        chainerjob(master={"template": pods("chainer", restartPolicy="Always")}),
        "OnFailure is used",
        id="a master",
    ),
    pytest.param(
        kinds.CHAINERJOB,
        chainerjob(master={"template": pods("chainer", serviceAccountName="mine")}),
        "is replaced by example-launcher",
        id="an account",
    ),
    pytest.param(
        kinds.ELASTICJOB,
        worker(template=pods("elasticjob-worker", restartPolicy="Always")),
        "is ignored; write spec.replicaSpecs.Worker.restartPolicy",
        id="a template's policy",
    ),
    pytest.param(kinds.ELASTICJOB, worker(restartPolicy="Always"), "the job never ends", id="Always"),
    pytest.param(kinds.ELASTICJOB, elasticjob(schedulingPolicy={"minAvailable": 2}), "has no effect", id="a gang"),
    pytest.param(kinds.ELASTICJOB, elasticjob(rdzvendpoint="x"), "spec.rdzvendpoint", id="a typing mistake"),
]


@pytest.mark.parametrize(("kind", "job", "text"), WARNED)
def test_probable_mistakes_are_warnings(kind: Kind, job: Json, text: str) -> None:
    assert kinds.admit(kind, job)[1] == []
    assert any(text in str(warning) for warning in kinds.warnings(kind, job))
