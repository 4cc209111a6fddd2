"""Fields without an effect on one machine: each is noted once per job, with the roles that have it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import replicas, template, tfjob
from tests.support.samples import chainerjob, elasticjob, mx_set, mxjob, pods, worker_set
from trainyard import kinds
from trainyard.objects import Json


def noted(job: Json) -> list[str]:
    kind = kinds.kind_of(job)
    assert kind is not None
    return [str(note) for note in kinds.notes(kind, job)]


def test_a_field_of_two_roles_is_one_note_at_its_first_place() -> None:
    pod = template(nodeSelector={"gpu": "a100"})
    job = tfjob(replicas("MASTER"), replicas("WORKER", 8, template=pod), replicas("PS", template=pod))
    assert noted(job) == [
        "spec.replicaSpecs[1].template.spec.nodeSelector: no effect on one machine (WORKER, PS): "
        "this machine is the only node"
    ]


def test_the_same_field_of_two_containers_is_one_note() -> None:
    listed = [{"name": name, "image": "i", "tty": True} for name in ("tensorflow", "log")]
    (note,) = noted(tfjob(replicas("MASTER", template=template(containers=listed))))
    assert note.startswith("spec.replicaSpecs[0].template.spec.containers[0].tty: no effect on one machine (MASTER)")


SELECTOR: dict[str, Any] = {"nodeSelector": {"a": "b"}}


@pytest.mark.parametrize(
    ("job", "roles"),
    [
        (tfjob(replicas("MASTER", template=template(**SELECTOR))), "MASTER"),
        (mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER", template=pods("mxnet", **SELECTOR))), "WORKER"),
        (chainerjob({"ws0": worker_set(2, template=pods("chainer", **SELECTOR))}), "ws0"),
        (elasticjob(2, worker={"template": pods("elasticjob-worker", **SELECTOR)}), "Worker"),
    ],
    ids=["TfJob", "MxJob", "ChainerJob", "ElasticJob"],
)
def test_every_kind_names_its_roles(job: Json, roles: str) -> None:
    (note,) = noted(job)
    assert f"no effect on one machine ({roles}): this machine is the only node" in note


@pytest.mark.parametrize("job", [tfjob(), mxjob(), chainerjob(), elasticjob()], ids=lambda job: str(job["kind"]))
def test_a_plain_job_has_no_notes(job: Json) -> None:
    assert noted(job) == []
