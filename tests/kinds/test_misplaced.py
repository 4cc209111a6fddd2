"""A known field in the wrong place: the warning names the right one, for every kind."""

from __future__ import annotations

import copy

import pytest

from tests.support.samples import ALL_WITH_TEMPLATES, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json

POLICIES = {"suspend": True, "backoffLimit": 1, "activeDeadlineSeconds": 9, "ttlSecondsAfterFinished": 9}
of_every_kind = pytest.mark.parametrize(
    "kind", ALL_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}"
)


def warnings_with(kind: Kind, **fields: object) -> dict[str, str]:
    job = copy.deepcopy(sample(kind.gvk.kind))
    job["spec"] |= fields
    return {warning.path: warning.text for warning in kinds.warnings(kind, job)}


@of_every_kind
def test_a_policy_in_the_place_of_another_kind_gets_its_own(kind: Kind) -> None:
    if kind.api.policy_field:
        place = f"spec.{kind.api.policy_field}"
        assert warnings_with(kind, **POLICIES) == {
            f"spec.{name}": f"is unknown here and ignored; write {place}.{name}" for name in POLICIES
        }
    elif kind.gvk.kind != "ElasticJob":  # it has both
        places = ", ".join(f"spec.{name}" for name in POLICIES)
        assert warnings_with(kind, runPolicy=POLICIES) == {
            "spec.runPolicy": f"is unknown and ignored, with all below it; write {places}"
        }


def pytorch_job(**role: object) -> Json:
    job = copy.deepcopy(sample("PyTorchJob"))
    job["spec"]["pytorchReplicaSpecs"]["Worker"] |= role
    return job


ROLES = "spec.pytorchReplicaSpecs"
MISPLACED: dict[str, tuple[Json, str, str]] = {
    "a policy in a role": (
        pytorch_job(suspend=True),
        f"{ROLES}.Worker.suspend",
        "is unknown here and ignored; write spec.runPolicy.suspend",
    ),
    "a field of the pod in a role": (
        pytorch_job(nodeSelector={"a": "b"}),
        f"{ROLES}.Worker.nodeSelector",
        f"is unknown here and ignored; write {ROLES}.Worker.template.spec.nodeSelector",
    ),
    "a field of a role in the spec": (
        {**pytorch_job(), "spec": {**pytorch_job()["spec"], "restartPolicy": "Never"}},
        "spec.restartPolicy",
        f"is unknown here and ignored; write {ROLES}.ROLE.restartPolicy",
    ),
    "a field that is nowhere": (
        {**pytorch_job(), "spec": {**pytorch_job()["spec"], "frobnicate": {"x": 1}}},
        "spec.frobnicate",
        "is unknown and ignored; check its spelling",
    ),
}


@pytest.mark.parametrize(("job", "path", "text"), MISPLACED.values(), ids=MISPLACED)
def test_the_warning_names_the_right_place(job: Json, path: str, text: str) -> None:
    assert {warning.path: warning.text for warning in kinds.warnings(kinds.PYTORCHJOB, job)} == {path: text}
