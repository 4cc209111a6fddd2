from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from trainyard.app.kubeconfig import on_loopback
from trainyard.cli.session.submission import create_objects, read
from trainyard.cli.session.working_directory import manifest_folder, set_annotation
from trainyard.client import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from trainyard.objects import GVK, Json, name_of, namespace_of
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.manifest import ManifestError

JOB = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: NAME}
spec:
  replicaSpecs:
  - tfReplicaType: MASTER
    template: {spec: {containers: [{name: tensorflow, image: x}], restartPolicy: OnFailure}}
"""
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: p, namespace: other}\nspec: {}\n"


def written(folder: Path, *texts: str) -> list[str]:
    paths = []
    for at, text in enumerate(texts):
        path = folder / f"{at}.yaml"
        path.write_text(text)
        paths.append(str(path))
    return paths


def job(name: str = "a") -> str:
    return JOB.replace("NAME", name)


def test_dependencies_are_created_in_order_and_jobs_last(tmp_path: Path) -> None:
    submission = read(written(tmp_path, job(), CLAIM + "---\n" + CONFIG))
    assert [name_of(obj) for _, obj in submission.other_objects] == ["c", "p"]
    assert [name_of(obj) for _, obj in submission.jobs] == ["a"]
    assert submission.namespaces == ["default", "other"] or submission.namespaces == ["other", "default"]


def test_a_namespace_is_only_filled_in_where_the_file_names_none(tmp_path: Path) -> None:
    submission = read(written(tmp_path, job(), CONFIG), "mine")
    assert {namespace_of(obj) for _, obj in [*submission.other_objects, *submission.jobs]} == {"mine"}


@pytest.mark.parametrize(
    ("texts", "namespace", "message"),
    [
        ((CONFIG,), "", "0.yaml:2: kind: there is no job, only ConfigMap (v1)"),
        ((job(), job()), "", "written twice"),
        ((job("a b"),), "", "not a legal name"),
        ((job() + "---\n" + CLAIM,), "mine", "--namespace says mine"),
        ((job(),), "A", "--namespace: 'A' is not a legal namespace"),
        (
            (job() + "---\nkind: Widget\napiVersion: v1\nmetadata: {name: w}\n",),
            "",
            ":10: kind: Widget (v1) is not taken here; beside jobs there may be: Namespace",
        ),
        ((job() + "---\nkind: ConfigMap\napiVersion: v2\nmetadata: {name: w}\n",), "", "write v1"),
        ((job() + "---\nkind: ConfigMap\napiVersion: v1\n",), "", "metadata.name: the ConfigMap has no name"),
        ((job().replace("MASTER", "BOSS"),), "", "BOSS"),
        (("a: [",), "", "0.yaml:"),
        ((job() + "  managedBy: example.com/other\n",), "", "spec.managedBy: 'example.com/other' does not run here"),
    ],
)
def test_problems_are_reported_with_their_place_before_anything_starts(
    tmp_path: Path, texts: tuple[str, ...], namespace: str, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        read(written(tmp_path, *texts), namespace)
    assert message in str(caught.value)


def test_the_problems_of_all_files_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        read([*written(tmp_path, "a: ["), str(tmp_path / "missing.yaml")])
    assert "0.yaml" in str(caught.value) and "missing.yaml" in str(caught.value)


def test_a_job_managed_by_another_operator_is_submitted_to_a_cluster_and_refused_in_a_private_one(
    tmp_path: Path,
) -> None:
    files = written(tmp_path, job() + "  managedBy: kueue.x-k8s.io/multikueue\n")
    assert len(read(files, private=False).jobs) == 1
    with pytest.raises(ManifestError, match="managedBy"):
        read(files)


EXPORTED = """\
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata:
  name: a
  creationTimestamp: "2026-11-28T10:00:00Z"
  generation: 1
  managedFields: [{apiVersion: tensorflow.org/v1alpha1, manager: kubectl}]
  resourceVersion: "17"
  selfLink: /apis/tensorflow.org/v1alpha1/namespaces/default/tfjobs/a
  uid: 3b7c5c2e-5b1d-4f3c-8b0c-2f1f6f0a7a11
spec: {replicaSpecs: [{tfReplicaType: MASTER, template: {spec: {containers: [{name: tensorflow, image: x}]}}}]}
status: {state: Succeeded}
"""
GENERATED = """\
apiVersion: v1
kind: Pod
metadata: {name: p, creationTimestamp: null}
spec: {containers: []}
status: {}
"""


@pytest.mark.parametrize("local", [True, False])
def test_what_only_an_api_server_sets_is_left_out_with_one_note(tmp_path: Path, local: bool) -> None:
    """A job as `kubectl get -o yaml` prints it: the API server would refuse its resourceVersion with 500."""
    pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, uid: u, resourceVersion: '1'}\nspec: {containers: []}\n"
    submission = read(written(tmp_path, EXPORTED + pod), local=local)
    ((_, job_object),) = submission.jobs
    assert sorted(job_object) == ["apiVersion", "kind", "metadata", "spec"]
    assert {"name", "namespace"} <= set(job_object["metadata"]) <= {"name", "namespace", "annotations"}
    assert set(submission.other_objects[0][1]["metadata"]) <= {"name", "namespace", "annotations"}
    job_note, pod_note = submission.notes
    assert "0.yaml:3: note: metadata: uid, resourceVersion, generation, creationTimestamp" in job_note
    assert job_note.endswith("selfLink, status are set by the API server, and left out when the object is created")
    assert "0.yaml:16: note: metadata: uid, resourceVersion are set" in pod_note


def test_empty_fields_of_a_generated_manifest_are_left_out_without_a_note(tmp_path: Path) -> None:
    """As `kubectl create --dry-run=client -o yaml` prints them."""
    submission = read(written(tmp_path, GENERATED), private=False)
    assert submission.messages() == [] and "status" not in submission.other_objects[0][1]


def test_objects_without_a_job_may_be_submitted_to_a_cluster(tmp_path: Path) -> None:
    submission = read(written(tmp_path, CONFIG), default_namespace="team", private=False)
    assert [namespace_of(obj) for _, obj in submission.other_objects] == ["team"]
    with pytest.raises(ManifestError, match="there is no job"):
        read(written(tmp_path, CONFIG))


def folder_of(obj: Json) -> object:
    return (obj["metadata"].get("annotations") or {}).get(WORKING_DIRECTORY)


WORKLOADS = """
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec: {containers: []}
---
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec: {template: {spec: {containers: []}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec: {template: {metadata: null, spec: {containers: []}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: own}
spec: {template: {metadata: {annotations: {trainyard.dev/working-directory: /mine}}, spec: {containers: []}}}
"""


def test_jobs_and_pods_for_this_machine_run_in_the_folder_of_their_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/job.yaml").write_text(job())
    (tmp_path / "all.yaml").write_text(WORKLOADS + "---\n" + CONFIG)
    monkeypatch.chdir(tmp_path)
    submission = read(["sub/job.yaml", "all.yaml"])
    assert [folder_of(obj) for _, obj in submission.jobs] == [f"{tmp_path}/sub"]
    by_kind = {gvk.kind: obj for gvk, obj in submission.other_objects}
    assert folder_of(by_kind["Pod"]) == str(tmp_path)
    assert [folder_of(by_kind[kind]["spec"]["template"]) for kind in ("Job", "StatefulSet", "Deployment")] == [
        *(str(tmp_path), str(tmp_path), "/mine")
    ]
    assert [folder_of(by_kind[kind]) for kind in ("Job", "StatefulSet", "ConfigMap")] == [None] * 3


def test_a_job_for_another_cluster_is_sent_unchanged(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(WORKLOADS + "---\n" + job())
    submission = read([str(tmp_path / "all.yaml")], local=False)
    assert [folder_of(obj) for _, obj in submission.jobs] == [None]
    by_kind = {gvk.kind: obj for gvk, obj in submission.other_objects}
    assert by_kind["Job"]["spec"]["template"] == {"spec": {"containers": []}} and folder_of(by_kind["Pod"]) is None


def test_a_manifest_from_stdin_uses_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [manifest_folder(source) for source in ("standard input", "/dev/null")] == [str(tmp_path)] * 2
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert manifest_folder("standard input") == ""


@pytest.mark.parametrize(
    "meta", ["text", {"name": "a", "annotations": "text"}, {"name": "a", "annotations": {WORKING_DIRECTORY: "/x"}}]
)
def test_malformed_and_existing_values_are_not_replaced(meta: object) -> None:
    obj = {"kind": "Pod", "metadata": copy.deepcopy(meta)}
    set_annotation(obj, "/folder")
    assert obj["metadata"] == meta


@pytest.mark.parametrize(
    ("server", "local"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://localhost:6443/path", True),
        ("https://[::1]:6443", True),
        ("https://10.0.0.1:6443", False),
        ("https://cluster.example.com", False),
        ("https://localhost.example.com", False),
    ],
)
def test_a_server_is_on_loopback(server: str, local: bool) -> None:
    assert on_loopback(server) is local


class RefusingApi:
    """An API server that refuses objects of these kinds, and stores all others."""

    def __init__(self, **refusals: ApiError) -> None:
        self.refusals = refusals
        self.existing: Json = {"data": {"a": "b", "more": "c", "empty": ""}}
        self.stored: list[str] = []

    async def get(self, gvk: GVK, namespace: str, name: str) -> Json:
        return self.existing

    async def create(self, gvk: GVK, namespace: str, obj: Json) -> Json:
        if gvk.kind in self.refusals:
            raise self.refusals[gvk.kind]
        self.stored.append(name_of(obj))
        return {**obj, "metadata": {**obj["metadata"], "uid": "u"}}


@pytest.mark.parametrize(
    ("refusals", "stored", "problem"),
    [
        ({}, ["c", "a"], ""),
        ({"ConfigMap": AlreadyExists(409, "AlreadyExists", "exists")}, ["a"], ""),
        ({"ConfigMap": Forbidden(403, "Forbidden", "no right")}, [], "1.yaml:1: ConfigMap c: no right"),
        (
            {"TfJob": Invalid(422, "Invalid", "x", {"causes": [{"field": "spec.a", "message": "must not be"}]})},
            ["c"],
            "0.yaml:5: spec.a: must not be",
        ),
        (
            {"TfJob": NotFound(404, "NotFound", "the server could not find the requested resource")},
            ["c"],
            "0.yaml:3: kind: the cluster does not serve TfJob (tensorflow.org/v1alpha1); add it to the kinds of "
            "Trainyard there: `kinds` of the chart, or --kinds of trainyard manifests",
        ),
        (
            {"TfJob": NotFound(404, "NotFound", 'namespaces "default" not found')},
            ["c"],
            '0.yaml:4: metadata.namespace: namespaces "default" not found; make it with `kubectl create namespace '
            "default`, or name one that is there",
        ),
    ],
)
async def test_a_refused_object_is_a_problem_with_its_file_line_and_field(
    refusals: dict[str, ApiError], stored: list[str], problem: str, tmp_path: Path
) -> None:
    submission, problems = read(written(tmp_path, job(), CONFIG)), ""
    api: Any = RefusingApi(**refusals)
    try:
        ((_, created),) = await create_objects(api, submission)
        assert created["kind"] == "TfJob" and created["metadata"]["uid"] == "u"
    except ManifestError as error:
        problems = str(error.problems[0]).removeprefix(f"{tmp_path}/")
    assert (api.stored, problems) == (stored, problem)


@pytest.mark.parametrize(
    ("manifest", "problems"),
    [
        ("kind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: b\n", []),
        ("kind: ConfigMap\nmetadata: {name: c}\ndata:\n  more: c\n  a: new\n", ["1.yaml:6: data.a"]),
        ("kind: ConfigMap\nmetadata: {name: c}\nbinaryData:\n  bytes: AAE=\n", ["1.yaml:5: binaryData.bytes"]),
        ("kind: Secret\nmetadata: {name: c}\nstringData:\n  key: word\n", []),
        ("kind: Secret\nmetadata: {name: c}\nstringData:\n  key: other\n", ["1.yaml:5: stringData.key"]),
        ("kind: Secret\nmetadata: {name: c}\ndata:\n  key: d29yZA==\n", []),
        ("kind: Secret\nmetadata: {name: c}\ndata:\n  key: |\n    d29y\n    ZA==\n", []),
        ("kind: Secret\nmetadata: {name: c}\ndata: {key: b3RoZXI=}\nstringData: {key: word}\n", []),
        ("kind: Secret\nmetadata: {name: c}\ndata:\n  key: no\n", ["1.yaml:5: data.key"]),
        ("kind: ConfigMap\nmetadata: {name: c}\ndata:\n  empty:\n", []),
    ],
)
async def test_a_job_is_not_started_beside_a_config_map_of_the_same_name_with_other_data(
    manifest: str, problems: list[str], tmp_path: Path
) -> None:
    submission = read(written(tmp_path, job(), f"apiVersion: v1\n{manifest}"))
    kind = manifest.split()[1]
    api: Any = RefusingApi(**{kind: AlreadyExists(409, "AlreadyExists", "exists")})
    if kind == "Secret":
        api.existing = {"data": {"key": "d29yZA=="}}
    text = ""
    try:
        await create_objects(api, submission)
    except ManifestError as error:
        text = str(error)
    assert [f"{tmp_path}/{problem}" in text for problem in problems] == [True] * len(problems)
    assert (f"kubectl delete {kind.lower()} c -n default" in text, api.stored) == (
        bool(problems),
        [] if problems else ["a"],
    )
