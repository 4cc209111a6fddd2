"""The working directory that a job's annotation names goes to every pod template of the job, and to nothing else."""

from __future__ import annotations

import copy

import pytest

from tests.support.samples import ALL_WITH_TEMPLATES, sample
from trainyard.core import Config, Kind, Observed, plan, render_object
from trainyard.objects import Json
from trainyard.objects.labels import WORKING_DIRECTORY

BY_NAME = {kind.gvk.kind: kind for kind in ALL_WITH_TEMPLATES}


def children(kind: Kind, job: Json) -> list[Json]:
    """What the first pass makes."""
    first = plan(kind, job, Observed(), 0.0)
    stored = {**job, "spec": {**job["spec"], **(first.spec_patch or {})}, "status": first.status}
    return [render_object(kind, stored, create, Config()) for create in first.creates]


def annotated(job: Json, value: object) -> Json:
    return {**job, "metadata": {**job["metadata"], "annotations": value}}


def template_of(child: Json) -> Json | None:
    if child["kind"] == "Pod":
        return child
    template = (child.get("spec") or {}).get("template")
    return template if isinstance(template, dict) else None


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_working_directory_is_added_to_every_pod_template_and_nothing_else_changes(name: str) -> None:
    kind = BY_NAME[name]
    plain = children(kind, sample(kind.gvk.kind))
    with_folder = children(kind, annotated(sample(kind.gvk.kind), {WORKING_DIRECTORY: "/home/me/project"}))
    templates = 0
    for before, after in zip(plain, with_folder, strict=True):
        if template := template_of(after):
            templates += 1
            annotations = template["metadata"]["annotations"]
            assert annotations.pop(WORKING_DIRECTORY) == "/home/me/project"
            if not annotations:
                del template["metadata"]["annotations"]
        assert before == after
    assert templates, "a kind without pods"


@pytest.mark.parametrize("name", sorted(BY_NAME))
@pytest.mark.parametrize(
    "value", [None, {}, {"another": "x"}, {WORKING_DIRECTORY: ""}, {WORKING_DIRECTORY: 3}, "text", [1]]
)
def test_a_job_without_the_annotation_has_unchanged_children(name: str, value: object) -> None:
    kind = BY_NAME[name]
    assert children(kind, annotated(sample(kind.gvk.kind), value)) == children(kind, sample(kind.gvk.kind))


def test_a_template_keeps_its_own_working_directory() -> None:
    kind = BY_NAME["TfJob"]
    job = annotated(copy.deepcopy(sample(kind.gvk.kind)), {WORKING_DIRECTORY: "/home/me/project"})
    own = job["spec"]["replicaSpecs"][0]["template"].setdefault("metadata", {})
    own["annotations"] = {WORKING_DIRECTORY: "/mine"}
    annotations = {
        template["metadata"]["annotations"][WORKING_DIRECTORY]
        for child in children(kind, job)
        if (template := template_of(child))
    }
    assert "/mine" in annotations and annotations <= {"/mine", "/home/me/project"}
