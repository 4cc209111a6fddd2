from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.cli.submission import read
from trainyard.objects import name_of, namespace_of
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


def test_jobs_come_last_and_what_they_need_in_an_order_that_works(tmp_path: Path) -> None:
    found = read(written(tmp_path, job(), CLAIM + "---\n" + CONFIG))
    assert [name_of(obj) for _, obj in found.others] == ["c", "p"]
    assert [name_of(obj) for _, obj in found.jobs] == ["a"]
    assert found.namespaces == ["default", "other"] or found.namespaces == ["other", "default"]


def test_a_namespace_is_only_filled_in_where_the_file_names_none(tmp_path: Path) -> None:
    found = read(written(tmp_path, job(), CONFIG), "mine")
    assert {namespace_of(obj) for _, obj in [*found.others, *found.jobs]} == {"mine"}


@pytest.mark.parametrize(
    ("texts", "namespace", "said"),
    [
        ((CONFIG,), "", "holds no job"),
        ((job(), job()), "", "written twice"),
        ((job("a b"),), "", "not a legal name"),
        ((job() + "---\n" + CLAIM,), "mine", "--namespace says mine"),
        ((job(),), "A", "--namespace: 'A' is not a legal namespace"),
        ((job() + "---\nkind: Widget\napiVersion: v1\nmetadata: {name: w}\n",), "", "kind Widget (v1) is not known"),
        ((job() + "---\nkind: ConfigMap\napiVersion: v2\nmetadata: {name: w}\n",), "", "write v1"),
        ((job() + "---\nkind: ConfigMap\napiVersion: v1\n",), "", "metadata.name is missing"),
        ((job().replace("MASTER", "BOSS"),), "", "BOSS"),
        (("a: [",), "", "0.yaml:"),
        ((job() + "  managedBy: example.com/other\n",), "", "spec.managedBy: 'example.com/other' does not run here"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_before_anything_starts(
    tmp_path: Path, texts: tuple[str, ...], namespace: str, said: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        read(written(tmp_path, *texts), namespace)
    assert said in str(caught.value)


def test_the_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        read([*written(tmp_path, "a: ["), str(tmp_path / "missing.yaml")])
    assert "0.yaml" in str(caught.value) and "missing.yaml" in str(caught.value)


def test_a_job_for_another_operator_waits_for_it_on_a_cluster_and_is_refused_in_a_private_one(tmp_path: Path) -> None:
    files = written(tmp_path, job() + "  managedBy: kueue.x-k8s.io/multikueue\n")
    assert len(read(files, private=False).jobs) == 1
    with pytest.raises(ManifestError, match="managedBy"):
        read(files)


def test_what_jobs_need_may_be_handed_in_alone_on_a_cluster(tmp_path: Path) -> None:
    found = read(written(tmp_path, CONFIG), otherwise="team", private=False)
    assert [namespace_of(obj) for _, obj in found.others] == ["team"]
    with pytest.raises(ManifestError, match="holds no job"):
        read(written(tmp_path, CONFIG))
