"""Every cross-field rule twice: the CEL text for the cluster and the Python check, on the same generated jobs.

The API server fills in defaults, then asks its rules; only jobs whose types the schema accepts come that far, and a
null that is left counts there as a field that is absent. The operator and lint ask the Python checks, with and without
the defaults. All must say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cel_expr_python import cel
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.kinds.broken_jobs import BROKEN, OF_V2BETA1
from tests.support.builders import IMAGE
from tests.support.samples import KINDS_WITH_TEMPLATES, KUBEFLOW_ROLES, pods, sample
from trainyard import kinds
from trainyard.core import Kind, Rule, violations, with_aliases
from trainyard.core.rules import _holds, _values
from trainyard.kinds.definitions.crds import schema
from trainyard.kinds.definitions.immutability import rules_of
from trainyard.kinds.replica_list import items_of
from trainyard.objects import Json
from trainyard.schema import Schema

ENV = cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})
PROGRAMS: dict[str, Any] = {}
VERSIONS = [version for kind in KINDS_WITH_TEMPLATES for version in kind.versions]
CASES = [(kind, rule) for kind in VERSIONS for rule in with_aliases(rules_of(kind), kind.api.field_aliases)]
SCHEMAS = {kind.gvk: Schema(schema(kind)) for kind in VERSIONS}


def in_cluster(rule: Rule, value: Any, before: Any) -> bool:
    """The verdict of an API server; an error of the evaluation counts as a refusal."""
    program = PROGRAMS.setdefault(rule.cel, ENV.compile(rule.cel))
    texts = set()
    # An edit that writes null for nothing is an edit of what is compared as it stands: it is refused, and no harm done.
    for shape in (as_it_is,) if rule.transition else (as_it_is, no_nulls):
        given_values = {"self": shape(value), **({"oldSelf": shape(before)} if rule.transition else {})}
        texts.add(program.eval(data=given_values).plain_value() is True)
    assert len(texts) == 1, f"says another thing of null than of nothing: {rule.cel}"
    return texts.pop()


def as_it_is(value: Any) -> Any:
    return value


def no_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: no_nulls(part) for name, part in value.items() if part is not None}
    return [part if part is None else no_nulls(part) for part in value] if isinstance(value, list) else value


def places(rule: Rule, new: Json, old: Json | None) -> Iterator[tuple[str, Any, Any]]:
    """The values that an API server checks by the rule, with their paths and the stored ones."""
    for path, value, before in _values(rule.path.split(".") if rule.path else [], "", new, old):
        if before is not None or not rule.transition:
            yield path, value, before


def listed(**fields: Any) -> st.SearchStrategy[Json]:
    """An object that has some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def templates(*names: str) -> st.SearchStrategy[Any]:
    """Templates of all sorts, mostly good ones. The first name is the one that matters."""
    containers = st.lists(
        st.fixed_dictionaries({"name": st.sampled_from([*names, "sidecar"])}),
        max_size=2,
        unique_by=lambda item: item["name"],
    )
    any_of_them = listed(spec=listed(containers=containers), metadata=st.just({}))
    return st.just(pods(names[0])) | any_of_them | st.none()


def sets(field: str, types: list[str], port: str, names: tuple[str, ...], **more: Any) -> st.SearchStrategy[Any]:
    item = listed(
        **{field: st.sampled_from([*types, types[-1], types[-1].lower(), ""]), port: st.sampled_from([2222, 3333])},
        replicas=st.integers(0, 2),
        template=templates(*names),
        **more,
    )
    return st.lists(item, max_size=3) | st.lists(item | st.none(), max_size=3)


TF_LISTS = sets(
    "tfReplicaType", ["MASTER", "PS", "WORKER"], "tfPort", ("tensorflow", "Tensorflow"), IsDefaultPS=st.booleans()
)
MX_LISTS = sets("mxReplicaType", ["SCHEDULER", "SERVER", "WORKER"], "PsRootPort", ("mxnet", "MXNet"))
BOARDS = listed(logDir=st.sampled_from(["", "/logs"])) | st.none()
COMMON: dict[str, Any] = {"RuntimeId": st.sampled_from(["", "76no", "zzzz", "a" * 16]), "suspend": st.booleans()}
TF_MORE: dict[str, Any] = {
    "tensorboard": BOARDS,
    "tensorBoard": BOARDS,
    "tfImage": st.sampled_from([IMAGE, "mine:1"]),
    "masterTaskType": st.sampled_from(["master", "chief"]),
}
MODES = {"jobMode": st.sampled_from(["local", "dist", "dist", "", "Dist"])}
NAMELESS = st.sampled_from([{"image": "x"}, {"name": ""}, {"name": None}])
CHAINER_TEMPLATES = templates("chainer", "Chainer") | st.lists(NAMELESS, max_size=2).map(
    lambda some: {"spec": {"containers": some}}
)
PARTS = listed(template=CHAINER_TEMPLATES, mpiConfig=listed(slots=st.integers(1, 3)) | st.none())
WORKER_SETS = st.dictionaries(
    st.sampled_from(["ws0", "ws1", "master", "UPPER", "-", "x" * 30, "a.b"]),
    listed(template=CHAINER_TEMPLATES, replicas=st.integers(1, 3)),
    max_size=2,
)
COUNTS = st.integers(1, 3)
ENDPOINTS = st.sampled_from(
    [
        "",
        "etcd:2379",
        "10.0.0.1:2379",
        "etcd",
        "[::1]:80",
        "http://etcd:1",
        "a b",
        "etcd:",
        "etcd:123456",
        "e\n",
        "-e:1",
    ]
)
WORKERS = listed(template=templates("elasticjob-worker", "main"), replicas=COUNTS)
SPECS: dict[str, st.SearchStrategy[Json]] = {
    "TfJob": listed(replicaSpecs=TF_LISTS, replica_specs=TF_LISTS, **COMMON, **TF_MORE)
    | st.fixed_dictionaries({"replicaSpecs": TF_LISTS}, optional=COMMON),
    "MxJob": listed(replicaSpecs=MX_LISTS, replica_specs=MX_LISTS, **COMMON, **MODES)
    | st.fixed_dictionaries({"replicaSpecs": MX_LISTS, **MODES}, optional=COMMON),
    "ChainerJob": listed(
        backend=st.sampled_from(["mpi", "nccl", "", None]),
        master=PARTS | st.none(),
        workerSets=WORKER_SETS,
        suspend=st.booleans(),
    ),
    "ElasticJob": listed(
        rdzvEndpoint=ENDPOINTS | st.none(),
        rdzvBackend=st.sampled_from(["etcd", "c10d", "none", None]),
        minReplicas=COUNTS,
        maxReplicas=COUNTS,
        replicaSpecs=st.dictionaries(st.sampled_from(["Worker", "worker"]), WORKERS, max_size=2),
    ),
}
RUN_POLICIES = listed(
    suspend=st.booleans(),
    managedBy=st.sampled_from(["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue", "me", ""]),
    schedulingPolicy=listed(queue=st.sampled_from(["", "a", "b"])) | st.none(),
)


def kubeflow_specs(kind: str, **fields: Any) -> st.SearchStrategy[Json]:
    replicas_field, container, _ = KUBEFLOW_ROLES[kind]
    replica_sets = st.dictionaries(
        st.sampled_from(["Master", "master", "Worker", "Chief", "PS", "Servant"]),
        listed(template=templates(container, "main"), replicas=st.integers(0, 12)),
        max_size=2,
    )
    return st.fixed_dictionaries({replicas_field: replica_sets}, optional={"runPolicy": RUN_POLICIES, **fields})


SPECS |= {kind: kubeflow_specs(kind) for kind in KUBEFLOW_ROLES}
SPECS["PyTorchJob"] = kubeflow_specs(
    "PyTorchJob",
    elasticPolicy=listed(nProcPerNode=st.integers(1, 2), minReplicas=COUNTS) | st.none(),
    nprocPerNode=st.sampled_from(["auto", "2"]),
)
NAMES = st.sampled_from(["a", "b" * 30, "b" * 41, "b" * 46, "b" * 47, "b" * 63, "c" * 64, "1a", "A", "a.b", "a-"])
STATUSES: st.SearchStrategy[Json | None] = st.sampled_from([None, {}, {"phase": "Running"}, {"roles": {"MASTER": {}}}])
TYPE_FIELDS = {"TfJob": ("tfReplicaType", "MASTER"), "MxJob": ("mxReplicaType", "WORKER")}


def has_started(kind: Kind, spec: Json) -> bool:
    """What the transition rules compare with is a job that could be started: one list of replicas, each type once."""
    if kind.gvk.kind not in TYPE_FIELDS:
        return True
    field, default = TYPE_FIELDS[kind.gvk.kind]
    if any(None in (spec.get(name) or ()) for name in ("replicaSpecs", "replica_specs")):
        return False
    types = [item.get(field, default) for item in items_of(spec)]
    both = all(spec.get(name) is not None for name in ("replicaSpecs", "replica_specs"))
    return bool(types) and len(set(types)) == len(types) and not both


def compare(kind: Kind, new: Json, old: Json | None) -> None:
    compiled = SCHEMAS[kind.gvk]
    full, full_old = compiled.default(new), old and compiled.default(old)
    assume(not compiled.validate(full) and (old is None or not compiled.validate(full_old)))
    assume(old is None or has_started(kind, old["spec"]))
    for rule in with_aliases(rules_of(kind), kind.api.field_aliases):
        if rule.transition and (old is None or not has_started(kind, new["spec"])):
            continue  # what lists a type twice is refused by a rule of its own
        results = [(path, in_cluster(rule, value, before)) for path, value, before in places(rule, full, full_old)]
        checked = [(path, _holds(rule, value, before)) for path, value, before in places(rule, full, full_old)]
        assert results == checked, rule.cel
        if not rule.transition:
            bare = [(path, _holds(rule, value, before)) for path, value, before in places(rule, new, old)]
            assert bare == checked, f"without defaults: {rule.cel}"


few_or_many = pytest.mark.parametrize("examples", [30, pytest.param(250, marks=pytest.mark.slow)])
every_kind = pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)


@few_or_many
@every_kind
def test_cel_python_and_server_agree_on_new_jobs(kind: Kind, examples: int) -> None:
    job = sample(kind.gvk.kind)

    @settings(max_examples=examples, deadline=None)
    @given(spec=SPECS[kind.gvk.kind], name=NAMES)
    def agree(spec: Json, name: str) -> None:
        compare(kind, {**job, "metadata": {"name": name}, "spec": spec}, None)

    agree()


@few_or_many
@every_kind
def test_cel_python_and_server_agree_on_edits(kind: Kind, examples: int) -> None:
    job, specs = sample(kind.gvk.kind), SPECS[kind.gvk.kind]

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
    @given(spec=specs, old=specs, status=STATUSES, same=st.booleans())
    def agree(spec: Json, old: Json, status: Json | None, same: bool) -> None:
        kept: Json = {key: spec[key] for key in ("suspend", "RuntimeId") if key in spec}
        new = {**old, **kept} if same else spec
        stored = job if status is None else {**job, "status": status}
        compare(kind, {**stored, "spec": new}, {**stored, "spec": old})

    agree()


def test_the_good_job_of_each_kind_breaks_no_rule() -> None:
    for kind in KINDS_WITH_TEMPLATES:
        job = sample(kind.gvk.kind)
        full = SCHEMAS[kind.gvk].default(job)
        assert kinds.admit(kind, job)[1] == []
        for rule in with_aliases(rules_of(kind), kind.api.field_aliases):
            for _, value, before in places(rule, full, full):
                assert in_cluster(rule, value, before), rule.cel


@pytest.mark.parametrize(
    ("kind", "rule"),
    [pytest.param(kind, rule, id=f"{kind.gvk.version} {kind.gvk.kind} {rule.cel[:60]}") for kind, rule in CASES],
)
def test_every_rule_compiles_and_can_be_broken(kind: Kind, rule: Rule) -> None:
    """A rule that nothing breaks tests nothing: each has a job in BROKEN that it refuses, in CEL and in Python."""
    compiled = SCHEMAS[kind.gvk]
    for given_new, given_old in [*BROKEN[kind.gvk.kind], *(OF_V2BETA1 if kind.gvk.version == "v2beta1" else ())]:
        new, old = compiled.default(given_new), given_old and compiled.default(given_old)
        for _, value, before in places(rule, new, old):
            if (old is not None or not rule.transition) and not _holds(rule, value, before):
                assert not in_cluster(rule, value, before)
                assert all(problem.text for problem in violations((rule,), new, old))
                return
    pytest.fail(f"no job breaks {rule.path}: {rule.cel}")
