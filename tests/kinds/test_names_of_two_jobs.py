"""The pods to which a ChainerJob has rights are named so that no other job can have a pod of that name."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.samples import chainerjob, elasticjob, worker_set
from trainyard.core import Kind
from trainyard.kinds import CHAINERJOB, ELASTICJOB
from trainyard.kinds.chainerjob.spec import is_unambiguous_set_name, stateful_set_name
from trainyard.kinds.definitions.crds import admit
from trainyard.objects import Json

WORDS = ("a", "", "workerset", "worker", "master", "0")


def names(most: int) -> list[str]:
    """All names of so many parts, joined by '-', that begin and end with a letter or a digit."""
    parts = (parts_of_name for count in range(1, most + 1) for parts_of_name in product(WORDS, repeat=count))
    return ["-".join(parts_of_name) for parts_of_name in parts if parts_of_name[0] and parts_of_name[-1]]


def test_no_two_chainer_jobs_have_a_set_of_one_name() -> None:
    owners: dict[str, tuple[str, str]] = {}
    for pair in product(names(3), filter(is_unambiguous_set_name, names(3))):
        assert owners.setdefault(stateful_set_name(*pair), pair) == pair
    assert len(owners) > 10_000


def test_without_the_rule_two_would() -> None:
    assert stateful_set_name("a-workerset-b", "c") == stateful_set_name(
        "a", "b-workerset-c"
    ) and not is_unambiguous_set_name("b-workerset-c")
    assert stateful_set_name("a-workerset", "x") == stateful_set_name(
        "a", "workerset-x"
    ) and not is_unambiguous_set_name("workerset-x")


def test_no_elastic_job_may_have_the_name_of_a_worker_sets_pods() -> None:
    sets = {f"{stateful_set_name(*pair)}-0" for pair in product(names(2), filter(is_unambiguous_set_name, names(2)))}
    pods = {f"{name}-worker-0": name for name in names(5) if name[0].isalpha()}
    meet = {name for pod, name in pods.items() if pod in sets}
    assert meet  # so the rule is needed
    for name in meet:
        assert refused(ELASTICJOB, {**elasticjob(), "metadata": {"name": name}}), name


@pytest.mark.parametrize("name", ["workerset", "a-workerset", "workerset-a", "a-workerset-b"])
def test_a_worker_set_named_with_the_separator_is_refused_with_a_fix(name: str) -> None:
    (text,) = refused(CHAINERJOB, chainerjob({name: worker_set(1)}))
    assert "workerset" in text and "name the set without it" in text


@pytest.mark.parametrize("name", ["ws0", "workersets", "my-worker", "worker"])
def test_other_names_are_admitted(name: str) -> None:
    assert not refused(CHAINERJOB, chainerjob({name: worker_set(1)}))


def refused(kind: Kind, job: Json) -> list[str]:
    return [str(problem) for problem in admit(kind, job)[1]]
