"""Whatever is stored as spec or status of any kind: `plan` answers, its children can be made, and it comes to rest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_hostile_values import ANY, SCALARS, STATUSES
from tests.model.simulated_job import NOW, simulate
from tests.support.samples import KINDS_WITH_TEMPLATES, KUBEFLOW_ROLES, pods, sample
from trainyard import kinds
from trainyard.core import Child, Kind, Observed, decode_child, plan, render_child, render_object
from trainyard.core.decide import decide
from trainyard.core.model import Config
from trainyard.core.read import parse_job_with
from trainyard.objects import Json, decode, encode
from trainyard.objects.structs import replace

pytestmark = pytest.mark.slow

POLICIES = dict.fromkeys(
    ("backoffLimit", "suspend", "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds"), SCALARS
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"name": SCALARS, "args": ANY, "env": ANY, "resources": ANY, "volumeMounts": ANY, "image": ANY}
    )
    | ANY,
    max_size=3,
)


def templates(container: str) -> st.SearchStrategy[Any]:
    inside = {"containers": CONTAINERS | ANY, "initContainers": ANY, "volumes": ANY, "restartPolicy": SCALARS}
    odd = st.fixed_dictionaries(
        {}, optional={"metadata": ANY, "spec": st.fixed_dictionaries({}, optional=inside) | ANY}
    )
    good = st.just(pods(container, initContainers=[{"name": "a", "image": "b"}]))
    return good | odd | ANY


def replica_list(field: str, port: str, container: str) -> st.SearchStrategy[Any]:
    item = {field: SCALARS, port: SCALARS, "replicas": st.integers(-3, 5) | SCALARS, "template": templates(container)}
    return st.lists(st.fixed_dictionaries({}, optional=item) | ANY, max_size=4)


PART = st.fixed_dictionaries(
    {},
    optional={
        "template": templates("chainer"),
        "replicas": st.integers(-3, 5) | SCALARS,
        "mpiConfig": st.fixed_dictionaries({}, optional={"slots": SCALARS}) | ANY,
        "backoffLimit": SCALARS,
    },
)
WORKER = st.fixed_dictionaries(
    {},
    optional={
        "template": templates("elasticjob-worker"),
        "replicas": st.integers(-3, 5) | SCALARS,
        "restartPolicy": SCALARS,
    },
)
NAMES = st.sampled_from(["ws0", "master", "A", ""]) | st.text(max_size=3)
SPECS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "TfJob": {"replicaSpecs": replica_list("tfReplicaType", "tfPort", "tensorflow"), "tensorboard": ANY},
    "MxJob": {
        "replicaSpecs": replica_list("mxReplicaType", "PsRootPort", "mxnet"),
        "jobMode": st.sampled_from(["local", "dist"]) | SCALARS,
        "RuntimeId": SCALARS,
    },
    "ChainerJob": {
        "master": PART | ANY,
        "workerSets": st.dictionaries(NAMES, PART | ANY, max_size=3) | ANY,
        "backend": SCALARS,
    },
    "ElasticJob": {
        "replicaSpecs": st.fixed_dictionaries({"Worker": WORKER}) | st.dictionaries(NAMES, WORKER | ANY) | ANY,
        "rdzvEndpoint": st.just("etcd:2379") | SCALARS,
        "minReplicas": SCALARS,
        "maxReplicas": SCALARS,
        "runPolicy": st.fixed_dictionaries({}, optional=POLICIES) | ANY,
        "RunPolicy": ANY,
    },
}
KUBEFLOW_SET = st.fixed_dictionaries(
    {},
    optional={
        "template": st.one_of(*(templates(container) for _, container, _ in KUBEFLOW_ROLES.values())),
        "replicas": st.integers(-3, 5) | SCALARS,
        "restartPolicy": SCALARS,
    },
)
for _kind, (_field, _, _roles) in KUBEFLOW_ROLES.items():
    SPECS[_kind] = {
        _field: st.dictionaries(st.sampled_from([*_roles, "worker", "x", ""]), KUBEFLOW_SET | ANY, max_size=3) | ANY,
        "runPolicy": st.fixed_dictionaries({}, optional={**POLICIES, "schedulingPolicy": ANY}) | ANY,
        "elasticPolicy": st.dictionaries(st.sampled_from(["minReplicas", "rdzvPort", "rdzvConf"]), ANY) | ANY,
        "nprocPerNode": SCALARS,
        "successPolicy": SCALARS,
        "enableDynamicWorker": SCALARS,
    }
every_kind = pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)


def specs(kind: Kind) -> st.SearchStrategy[Any]:
    """Odd everywhere; or the good job of the kind with one odd field."""
    fields = SPECS[kind.gvk.kind]
    good = sample(kind.gvk.kind)["spec"]
    one_odd = st.one_of(
        *(st.fixed_dictionaries({name: value}).map(lambda odd: {**good, **odd}) for name, value in fields.items())
    )
    return st.fixed_dictionaries({}, optional={**fields, **POLICIES}) | one_odd | ANY


def children(kind: Kind) -> tuple[Child, ...]:
    simulated = simulate(kind, copy.deepcopy(sample(kind.gvk.kind)))
    simulated.run()
    return tuple(decode_child(obj) for obj in simulated.objects.values())


def settled(kind: Kind, job: Json, observed: Observed) -> None:
    first = plan(kind, job, observed, NOW)
    for create in first.creates:
        encode(render_object(kind, {**job, "status": first.status}, create, Config()))
    encode(first.status)
    again = plan(kind, {**job, "status": first.status}, observed, NOW)
    if not first.spec_patch and not again.urgent:
        assert not plan(kind, {**job, "status": again.status}, observed, NOW).status_changed


@every_kind
def test_any_json_as_spec_and_status_gives_a_plan_that_comes_to_rest(kind: Kind) -> None:
    job, job_children = sample(kind.gvk.kind), children(kind)

    @settings(max_examples=50, deadline=None)
    @given(spec=specs(kind), status=st.none() | STATUSES | ANY, known=st.booleans())
    def rests(spec: Any, status: Any, known: bool) -> None:
        settled(kind, {**job, "spec": spec, "status": status}, Observed(job_children if known else ()))

    rests()


@every_kind
@pytest.mark.parametrize("type_", ["Failed", "Running", "Suspended", "Blocked"])
def test_a_stored_condition_without_status_and_reason_is_read(kind: Kind, type_: str) -> None:
    conditions: list[Json] = [{"type": type_}, {"type": type_, "status": None}, {"type": type_, "status": "True"}]
    for condition in conditions:
        specs_to_read: list[Json] = [{}, sample(kind.gvk.kind)["spec"]]
        for spec in specs_to_read:
            settled(kind, {**sample(kind.gvk.kind), "spec": spec, "status": {"conditions": [condition]}}, Observed(()))


@every_kind
def test_any_json_as_an_edit_of_a_job_that_runs_gives_a_plan_that_comes_to_rest(kind: Kind) -> None:
    simulated = simulate(kind, copy.deepcopy(sample(kind.gvk.kind)))
    simulated.run()
    simulated.settle()
    observed = simulated.observed()

    @settings(max_examples=50, deadline=None)
    @given(spec=specs(kind))
    def rests(spec: Any) -> None:
        settled(kind, {**simulated.job, "spec": spec}, observed)

    rests()


@every_kind
def test_any_json_as_spec_is_admitted_or_refused_with_texts_and_compared(kind: Kind) -> None:
    job = sample(kind.gvk.kind)

    @settings(max_examples=50, deadline=None)
    @given(spec=specs(kind), status=STATUSES)
    def answers(spec: Any, status: Any) -> None:
        _, problems = kinds.admit(kind, {**job, "spec": spec})
        assert all(problem.text for problem in problems)
        if isinstance(spec, dict):
            kinds.warnings(kind, {**job, "spec": spec})
            kinds.rules_check(kind)({**job, "spec": spec}, {**job, "status": status})
            kinds.rules_check(kind)(job, {**job, "spec": spec, "status": status})

    answers()


@every_kind
def test_the_operator_can_create_the_children_of_every_admitted_job(kind: Kind) -> None:
    job = sample(kind.gvk.kind)

    @settings(max_examples=50, deadline=None)
    @given(spec=specs(kind))
    def reads(spec: Any) -> None:
        full, problems = kinds.admit(kind, {**job, "spec": spec})
        if not problems:
            assert not kind.api.read(full["spec"], "example").problems

    reads()


INSIDE = ("env", "args", "volumeMounts", "resources")
ODD: list[Any] = [5, "x", {"a": 1}, True, [1], [None]]


@every_kind
@pytest.mark.parametrize("field", [*INSIDE, "volumes", "initContainers", "dnsConfig"])
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_malformed_pod_template_is_refused_or_passed_on_and_never_raises(kind: Kind, field: str, odd: Any) -> None:
    """A job that was started under an older schema continues, whatever its template is."""
    text = encode(sample(kind.gvk.kind)["spec"]).decode()
    before, value = '"containers":[', f'"{field}":{encode(odd).decode()},'
    before, after = (f"{before}{{", f"{before}{{{value}") if field in INSIDE else (before, f"{value}{before}")
    job = {**sample(kind.gvk.kind), "spec": decode(text.replace(before, after).encode())}
    wanted = kind.api.read(job["spec"], "example")
    assert all(problem.path and problem.text for problem in wanted.problems)
    taken = replace(wanted, problems=())
    decided = decide(parse_job_with(kind, job, taken, Config()), Observed(), NOW)
    assert decided.creates
    for create in decided.creates:
        render_child(parse_job_with(kind, {**job, "status": decided.status}, taken, Config()), create)
