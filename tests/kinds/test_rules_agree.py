"""Every cross-field rule twice: the CEL text for the cluster and the Python check, on the same generated jobs.

The API server fills in defaults, then asks its rules; only jobs whose types the schema accepts come that far. The
operator and lint ask the Python checks, with and without the defaults. All three must say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cel_expr_python import cel
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trainyard import kinds
from trainyard.core import Kind, Rule, broken, spelled
from trainyard.core.rules import _holds, _values
from trainyard.kinds.crds import schema
from trainyard.kinds.replica_list import items_of
from trainyard.objects import Json
from trainyard.schema import Schema
from trainyard.testing.builders import IMAGE, tfjob

ENV = cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})
PROGRAMS: dict[str, Any] = {}
CASES = [(kind, rule) for kind in kinds.ALL for rule in spelled(kind.rules, kind.spellings)]
SCHEMAS = {kind.gvk.kind: Schema(schema(kind)) for kind in kinds.ALL}


def in_cluster(rule: Rule, value: Any, before: Any) -> bool:
    """What an API server says; an error of the evaluation is a refusal."""
    program = PROGRAMS.setdefault(rule.cel, ENV.compile(rule.cel))
    given_values = {"self": value, **({"oldSelf": before} if rule.transition else {})}
    found = program.eval(data=given_values).plain_value()
    return found is True


def places(rule: Rule, new: Json, old: Json | None) -> Iterator[tuple[str, Any, Any]]:
    return _values(rule.path.split(".") if rule.path else [], "", new, old)


CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["tensorflow", "sidecar", "Tensorflow"])}),
    max_size=2,
    unique_by=lambda one: one["name"],
)
TEMPLATES = st.fixed_dictionaries(
    {}, optional={"spec": st.fixed_dictionaries({}, optional={"containers": CONTAINERS}), "metadata": st.just({})}
)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "tfReplicaType": st.sampled_from(["MASTER", "WORKER", "PS", "WORKER", "worker", ""]),
        "replicas": st.integers(0, 2),
        "tfPort": st.sampled_from([2222, 3333]),
        "template": st.just({"spec": {"containers": [{"name": "tensorflow"}]}}) | TEMPLATES | st.none(),
        "IsDefaultPS": st.booleans(),
    },
)
LISTS = st.lists(ITEMS, max_size=3)
BOARDS = st.fixed_dictionaries({}, optional={"logDir": st.sampled_from(["", "/logs"])}) | st.none()
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicaSpecs": LISTS,
        "replica_specs": LISTS,
        "tensorboard": BOARDS,
        "tensorBoard": BOARDS,
        "RuntimeId": st.sampled_from(["", "76no", "zzzz"]),
        "suspend": st.booleans(),
        "tfImage": st.sampled_from([IMAGE, "mine:1"]),
    },
)
LIKELY = st.fixed_dictionaries(
    {"replicaSpecs": LISTS}, optional={"suspend": st.booleans(), "RuntimeId": st.sampled_from(["", "76no", "zzzz"])}
)
STATUSES = st.sampled_from([None, {}, {"phase": "Running"}, {"roles": {"MASTER": {}}}])


def has_started(spec: Json) -> bool:
    """What the transition rules compare with is a job that could be started: replicas, each type once."""
    types = [item.get("tfReplicaType", "MASTER") for item in items_of(spec)]
    return bool(types) and len(set(types)) == len(types)


def compare(kind: Kind, new: Json, old: Json | None) -> None:
    compiled = SCHEMAS[kind.gvk.kind]
    assume(not compiled.validate(new) and (old is None or not compiled.validate(old)))
    assume(old is None or has_started(old["spec"]))
    full, full_old = compiled.default(new), old and compiled.default(old)
    for rule in spelled(kind.rules, kind.spellings):
        if rule.transition and (old is None or not has_started(new["spec"])):
            continue  # what lists a type twice is refused by a rule of its own
        told = [(path, in_cluster(rule, value, before)) for path, value, before in places(rule, full, full_old)]
        checked = [(path, _holds(rule, value, before)) for path, value, before in places(rule, full, full_old)]
        assert told == checked, rule.cel
        if not rule.transition:
            bare = [(path, _holds(rule, value, before)) for path, value, before in places(rule, new, old)]
            assert bare == checked, f"without defaults: {rule.cel}"


@settings(max_examples=250, deadline=None)
@given(spec=SPECS | LIKELY, name=st.sampled_from(["a", "b" * 63, "c" * 64]))
def test_a_rule_says_the_same_of_a_new_job_everywhere(spec: Json, name: str) -> None:
    job = tfjob()
    compare(kinds.TFJOB, {**job, "metadata": {"name": name}, "spec": spec}, None)


@settings(max_examples=250, deadline=None)
@given(spec=LIKELY | SPECS, old=LIKELY | SPECS, status=STATUSES, same=st.booleans())
def test_a_rule_says_the_same_of_an_edit_everywhere(spec: Json, old: Json, status: Json | None, same: bool) -> None:
    new = {**old, **{key: spec[key] for key in ("suspend", "RuntimeId") if key in spec}} if same else spec
    stored = tfjob() if status is None else tfjob(status=status)
    compare(kinds.TFJOB, {**stored, "spec": new}, {**stored, "spec": old})


@pytest.mark.parametrize(("kind", "rule"), CASES, ids=lambda one: getattr(one, "cel", "")[:60])
def test_every_rule_compiles_and_can_be_broken(kind: Kind, rule: Rule) -> None:
    """A rule that nothing breaks tests nothing: each has a job in BREAKS that it refuses, in CEL and in Python."""
    for new, old in BREAKS:
        for _, value, before in places(rule, new, old):
            if (old is not None or not rule.transition) and not _holds(rule, value, before):
                assert not in_cluster(rule, value, before)
                assert any(problem.text for problem in broken((rule,), new, old))
                return
    pytest.fail(f"no job breaks {rule.path}: {rule.cel}")


def spelled_breaks() -> Iterator[tuple[Json, Json | None]]:
    template = {"spec": {"containers": [{"name": "tensorflow"}]}}
    good = {"tfReplicaType": "MASTER", "replicas": 1, "tfPort": 2222, "template": template}
    worker = {**good, "tfReplicaType": "WORKER"}
    for name in ("replicaSpecs", "replica_specs"):
        for items in (
            [],
            [{**good, "template": None}],
            [{key: value for key, value in good.items() if key != "template"}],
            [{**good, "replicas": 2}],
            [{**good, "tfReplicaType": "Chief"}],
            [{**good, "template": {"spec": {"containers": [{"name": "other"}]}}}],
            [good, good],
            [good, worker, worker],
        ):
            yield {"metadata": {"name": "x"}, "spec": {name: items, "tfImage": IMAGE}}, None
    for board in ("tensorboard", "tensorBoard"):
        yield {"metadata": {"name": "x"}, "spec": {"replicaSpecs": [good], board: {"logDir": ""}}}, None
    both: Json = {"replicaSpecs": [good], "replica_specs": [good], "tensorboard": {}, "tensorBoard": {}}
    yield {"metadata": {"name": "x" * 64}, "spec": both}, None
    old = {"metadata": {"name": "x"}, "spec": {"replicaSpecs": [good], "tfImage": IMAGE, "RuntimeId": "76no"}}
    old["status"] = {"roles": {"MASTER": {}}}
    new = {"replicaSpecs": [{**good, "tfPort": 3333}], "tfImage": IMAGE, "RuntimeId": "zzzz"}
    yield {**old, "spec": new}, old


BREAKS = list(spelled_breaks())
