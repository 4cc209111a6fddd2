"""A misspelt name of a field is refused with the name that was meant; what resembles nothing is only warned about."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import replicas, template, tfjob
from tests.support.samples import KINDS_WITH_TEMPLATES, chainerjob, elasticjob, mxjob, sample
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds.definitions.crds import schema
from trainyard.kinds.definitions.misspellings import most_similar_name
from trainyard.kinds.pods.pod_templates import fields_of_types
from trainyard.objects import Json
from trainyard.objects.manifest import read

ROOT = Path(__file__).parents[2]


def renamed(job: Json, path: str, name: str) -> Json:
    """The job with the field at the path under another name."""
    fresh = copy.deepcopy(job)
    at: Any = fresh
    *parents, last = path.split(".")
    for part in parents:
        at = at[int(part)] if part.isdecimal() else at[part]
    at[name] = at.pop(last, None)
    return fresh


POD = "spec.replicaSpecs.0.template.spec"
TF = tfjob(replicas("MASTER", template=template(volumes=[])))
TF["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0] |= {"workingDir": "/", "command": [], "env": []}
SLIPS = [
    (TF, "spec.replicaSpecs.0.tfReplicaType", "tfReplicaTyp"),
    (TF, "spec.replicaSpecs.0.tfReplicaType", "tfreplicatype"),
    (TF, "spec.replicaSpecs.0.tfReplicaType", "tf_replica_type"),
    (TF, "spec.replicaSpecs.0.template", "templat"),
    (TF, "spec.replicaSpecs.0.replicas", "repilcas"),
    (TF, "spec.replicaSpecs", "replicaSpec"),
    (TF, "spec.backoffLimit", "backofLimit"),
    (TF, "metadata.namespace", "namspace"),
    (TF, "metadata.labels", "label"),
    (TF, "spec", "sepc"),
    (TF, f"{POD}.restartPolicy", "restartPolcy"),
    (TF, f"{POD}.containers", "container"),
    (TF, f"{POD}.volumes", "volume"),
    (TF, f"{POD}.containers.0.command", "comand"),
    (TF, f"{POD}.containers.0.workingDir", "workingdir"),
    (TF, f"{POD}.containers.0.volumeMounts", "volumeMount"),
    (TF, f"{POD}.containers.0.args", "arg"),
    (TF, f"{POD}.containers.0.env", "envs"),
    (mxjob(), "spec.jobMode", "jobmode"),
    (chainerjob(), "spec.backend", "bakend"),
    (chainerjob(), "spec.workerSets.ws0.template", "tempalte"),
    (elasticjob(), "spec.minReplicas", "minReplica"),
    (elasticjob(), "spec.replicaSpecs.Worker.restartPolicy", "restartpolicy"),
]


@pytest.mark.parametrize(("job", "path", "slip"), SLIPS, ids=[slip for _, _, slip in SLIPS])
def test_a_misspelling_is_reported_with_the_similar_field(job: Json, path: str, slip: str) -> None:
    kind = kinds.kind_of(job)
    assert kind is not None
    meant = path.rpartition(".")[2]
    job = renamed(job, path, meant)  # it has the field
    slipped = renamed(job, path, slip)
    kept = copy.deepcopy(slipped)
    (problem,), corrected = kinds.misspelling_problems(kind, slipped)
    assert problem.path.endswith(slip) and f"did you mean {meant}?" in problem.text
    assert slipped == kept and corrected == renamed(job, path, meant)
    assert kinds.misspelling_problems(kind, job) == ([], job)


def test_misspellings_in_a_status_are_not_reported() -> None:
    job = {**TF, "status": {"role": {}, "conditons": []}}
    assert kinds.misspelling_problems(kinds.TFJOB, job) == ([], job)


def test_slips_below_a_slip_are_found_as_well() -> None:
    job = renamed(renamed(TF, "spec.replicaSpecs.0.template", "templat"), "spec.replicaSpecs", "replicaSpec")
    problems, corrected = kinds.misspelling_problems(kinds.TFJOB, job)
    assert [problem.path for problem in problems] == ["spec.replicaSpec", "spec.replicaSpecs[0].templat"]
    assert corrected == TF


@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
@pytest.mark.parametrize("name", ["shardCount", "evictionThreshold", "x", "owner"])
def test_an_unknown_field_that_resembles_none_is_only_a_warning(kind: Kind, name: str) -> None:
    job = copy.deepcopy(sample(kind.gvk.kind))
    job["spec"][name] = 1
    assert not kinds.misspelling_problems(kind, job)[0]
    assert [warning.path for warning in kinds.warnings(kind, job)] == [f"spec.{name}"]


@pytest.mark.parametrize("name", sorted(fields_of_types()))
def test_no_kubernetes_field_counts_as_a_misspelling_of_another_of_its_type(name: str) -> None:
    """As if it were new: a newer Kubernetes adds a field beside those that are known here."""
    fields = [field.removesuffix("!") for field in fields_of_types()[name]]
    taken = {field: most_similar_name(field, [other for other in fields if other != field]) for field in fields}
    assert not {field: other for field, other in taken.items() if other}


@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
def test_every_field_of_a_kind_is_known(kind: Kind) -> None:
    def whole(node: Json) -> Any:
        """A value that has every field of the schema."""
        if node.get("properties"):
            return {name: whole(part) for name, part in node["properties"].items()}
        for misspelling, suggested in (
            ("items", lambda part: [whole(part)]),
            ("additionalProperties", lambda part: {"k": whole(part)}),
        ):
            if isinstance(node.get(misspelling), dict):
                return suggested(node[misspelling])
        return None

    assert not kinds.misspelling_problems(kind, whole(schema(kind)))[0]


FILES = sorted(
    [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("testdata/*/*.input.yaml"), *ROOT.glob("testdata/readmes/**/*.yaml")]
)
FILES = [path for path in FILES if "apiVersion:" in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_manifest_that_we_ship_has_a_slip(path: Path) -> None:
    for document in read(path.read_text(), path.name):
        if kind := kinds.kind_of(document.obj):
            assert not kinds.misspelling_problems(kind, document.obj)[0]
