"""What the real API server says of our definitions and of jobs is what we say without one.

Rules:
- A refused job is refused there with every path that we name, and in our words; what the server adds is its own affair.
- A job that is taken is stored with our defaults.
- What the server has answered is kept (tests/support/kept_answers.py), what we say is computed in each run.
"""

from __future__ import annotations

import copy
import json
import re

import pytest

from tests.kinds import test_admission, test_bad_input
from tests.kinds.broken_jobs import BROKEN
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import install
from tests.support.kept_answers import ApiServer, KeptServer
from tests.support.samples import KINDS_WITH_TEMPLATES, chainerjob, sample, worker_set
from trainyard import kinds
from trainyard.core import Kind, violations, with_aliases
from trainyard.kinds.definitions.crds import schema
from trainyard.kinds.definitions.immutability import rules_of
from trainyard.objects import Json, Problem
from trainyard.schema import Schema

pytestmark = pytest.mark.cluster

every_kind = pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")


def wire(kind: Kind, job: Json) -> Json:
    """The job as a person sends it."""
    meta = {key: value for key, value in job.get("metadata", {}).items() if key in ("name", "labels", "annotations")}
    return {**copy.deepcopy(job), "apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": meta}


def post(plane: ApiServer, namespace: str, kind: Kind, job: Json) -> tuple[int, Json]:
    return plane.ask("POST", f"/apis/{kind.gvk.api_version}/namespaces/{namespace}/{kind.gvk.plural}", job)


def test_every_crd_is_accepted_without_a_warning_and_established(installed: ControlPlane) -> None:
    lines = install(installed).splitlines()
    assert len(lines) == len(kinds.ALL) and all(line.startswith("customresourcedefinition") for line in lines), lines
    crds = json.loads(installed.kubectl("get", "crds", "-o", "json"))["items"]
    for kind in kinds.ALL:
        (crd,) = [crd for crd in crds if crd["metadata"]["name"] == f"{kind.gvk.plural}.{kind.gvk.group}"]
        conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert crd["status"]["acceptedNames"] == crd["spec"]["names"]


@every_kind
def test_a_sample_is_stored_with_our_defaults_and_shown_in_columns(
    installed: ControlPlane, namespace: str, kind: Kind
) -> None:
    job = wire(kind, sample(kind.gvk.kind))
    code, stored = post(installed, namespace, kind, job)
    assert code == 201, stored
    full, problems = kinds.admit(kind, job)
    assert not problems and stored["spec"] == full["spec"]
    name = f"{kind.gvk.plural}.{kind.gvk.group}"
    head, row = installed.kubectl("get", name, "-n", namespace).splitlines()
    wanted = ["NAME", *(str(column["name"]).upper() for column in kind.api.columns if not column.get("priority"))]
    assert head.split() == " ".join(wanted).split() and row.startswith(job["metadata"]["name"])


GOOD = [
    *test_bad_input.GOOD,
    *(pytest.param(kinds.TFJOB, test_admission.job(spec), id=f"TfJob, {title}") for title, spec in test_admission.GOOD),
]


@pytest.mark.parametrize(("kind", "job"), GOOD)
def test_good_input_is_stored_with_our_defaults(server: KeptServer, kind: Kind, job: Json) -> None:
    code, stored = post(server, server.namespace, kind, wire(kind, job))
    assert code == 201, stored
    assert stored["spec"] == kinds.admit(kind, wire(kind, job))[0]["spec"]


OTHERWISE = ("TfJob, nested too deep", "ChainerJob, a set that is null", "ElasticJob, a set that is null")
"""What the server sees otherwise: it has no such limit, and it drops a null in a map before it looks."""

BAD = [
    *(pytest.param(*row.values[:2], id=row.id) for row in test_bad_input.ROWS if row.id not in OTHERWISE),
    *(
        pytest.param(kinds.TFJOB, test_admission.job(row[1]), id=f"TfJob, {row[0]}")
        for row in test_admission.BAD
        if f"TfJob, {row[0]}" not in OTHERWISE
    ),
]


@pytest.mark.parametrize(("kind", "job"), BAD)
def test_invalid_input_is_refused_with_our_paths_and_messages(server: KeptServer, kind: Kind, job: Json) -> None:
    assert_refused(kind, post(server, "default", kind, wire(kind, job)), wire(kind, job))


def test_the_server_drops_a_null_in_a_map(installed: ControlPlane, namespace: str) -> None:
    job = wire(kinds.CHAINERJOB, chainerjob({"ws0": None, "ws1": worker_set()}))
    code, stored = post(installed, namespace, kinds.CHAINERJOB, job)
    assert code == 201 and list(stored["spec"]["workerSets"]) == ["ws1"], stored


def test_a_job_of_v1_can_be_updated_in_v2beta1(installed: ControlPlane, namespace: str) -> None:
    """Kueue starts it so. `restartPolicy: ExitCode` is no policy of v2beta1; the update leaves it as it is."""
    code, job = post(installed, namespace, kinds.MPIJOB, wire(kinds.MPIJOB, sample("MPIJob")))
    assert code == 201 and "ExitCode" in str(job), job
    (v2beta1,) = kinds.MPIJOB.further_versions
    path = f"/apis/{v2beta1.gvk.api_version}/namespaces/{namespace}/mpijobs/{job['metadata']['name']}"
    template = {"spec": {"nodeSelector": {"rack": "r1"}}}
    started = {"mpiReplicaSpecs": {"Worker": {"template": template}}, "runPolicy": {"suspend": False}}
    code, answer = installed.ask("PATCH", path, {"spec": started})
    assert code == 200, answer
    code, answer = installed.ask("PATCH", path, {"spec": {"mpiReplicaSpecs": {"Worker": {"restartPolicy": "Always"}}}})
    assert code == 422, answer


PAIRS = [
    pytest.param(kind, new, old, id=f"{kind.gvk.kind}-{number}")
    for kind in KINDS_WITH_TEMPLATES
    for number, (new, old) in enumerate(BROKEN[kind.gvk.kind])
]


@pytest.mark.parametrize(("kind", "new", "old"), PAIRS)
def test_a_violated_rule_is_refused_by_the_server_with_the_rules_message(
    server: KeptServer, kind: Kind, new: Json, old: Json | None
) -> None:
    job = wire(kind, new)
    if old is None:
        assert_refused(kind, post(server, server.namespace, kind, job), job)
        return
    before = stored(server, server.namespace, kind, old)
    path = f"/apis/{kind.gvk.api_version}/namespaces/{server.namespace}/{kind.gvk.plural}/{before['metadata']['name']}"
    edited = {**before, "spec": job["spec"]}
    assert_refused(kind, server.ask("PUT", path, edited), edited, before)


def stored(plane: ApiServer, namespace: str, kind: Kind, job: Json) -> Json:
    """A job in the cluster, with the status that `job` has."""
    code, answer = post(plane, namespace, kind, wire(kind, job))
    assert code == 201, answer
    path = f"/apis/{kind.gvk.api_version}/namespaces/{namespace}/{kind.gvk.plural}/{answer['metadata']['name']}"
    code, answer = plane.ask("PUT", f"{path}/status", {**answer, "status": job["status"]})
    assert code == 200, answer
    return answer


NOT_CHECKED = "some validation rules were not checked because the object was invalid"
MAP_KEY = re.compile(r"\[([^]\d][^]]*)]")


def assert_refused(kind: Kind, answer: tuple[int, Json], new: Json, old: Json | None = None) -> None:
    """The server refuses, and names every path that we name, and says of rules what we say.

    Of a wrong shape it speaks in its own words, and then it asks no rules. When a rule speaks, it writes the key of a
    map in brackets. A rule whose text has values says there its general text.
    """
    code, body = answer
    assert code == 422, body
    causes = [(MAP_KEY.sub(r".\1", cause["field"]), cause["message"]) for cause in body["details"]["causes"]]
    full = kinds.admit(kind, new)[0]
    wanted = [Problem(problem.path, "") for problem in Schema(schema(kind)).validate(full)]
    if not any(NOT_CHECKED in message for _, message in causes):
        for rule in with_aliases(rules_of(kind), kind.api.field_aliases):
            wanted += [Problem(problem.path, rule.default_message) for problem in violations((rule,), full, old)]
    assert wanted, f"we find nothing wrong with it, and the server does: {causes}"
    for problem in wanted:
        assert any(field == problem.path and problem.text in message for field, message in causes), (problem, causes)
