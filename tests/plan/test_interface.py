"""`trainyard plan` and `trainyard lint`, from the outside: what they take, what they print, how they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support.builders import NOW, UID, batch_job, pod_of, replicas, service, template, tfjob
from trainyard.cli.lint import lint
from trainyard.cli.output.printing import as_yaml
from trainyard.cli.plan import plan
from trainyard.objects import Json
from trainyard.objects.yaml_reader import load

TIME = "2023-11-14T22:13:20Z"  # builders' NOW


def run(*arguments: str) -> Result:
    return CliRunner().invoke(plan, [*arguments, "--now", TIME], catch_exceptions=False)


def written(folder: Path, *documents: Json, name: str = "in.yaml") -> str:
    path = folder / name
    path.write_text("---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents))
    return str(path)


def planned(folder: Path, *documents: Json, options: tuple[str, ...] = ()) -> list[Json]:
    result = run(written(folder, *documents), "-o", "json", *options)
    assert result.exit_code == 0, result.stderr
    record_fields: list[Json] = json.loads(result.stdout)
    return record_fields


def fresh(*items: Json, **spec: Any) -> Json:
    """A job as a person writes it."""
    listed = list(items) or [replicas("MASTER"), replicas("WORKER")]
    meta = {"name": "example-job"}
    head = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": meta}
    return {**head, "spec": {"replicaSpecs": listed, **spec}}


def test_the_answer_has_exactly_the_fields_of_the_interface(tmp_path: Path) -> None:
    (answer,) = planned(tmp_path, fresh())
    assert list(answer) == ["job", "spec", "status", "creates", "deletes", "patches", "events", "after", "writes"]
    assert list(answer["job"]) == ["apiVersion", "kind", "namespace", "name", "uid"]
    assert answer["job"]["namespace"] == "default"
    assert [list(patch) for patch in answer["patches"]] == [
        ["apiVersion", "kind", "name", "subresource", "type", "patch"]
    ]
    assert [list(event) for event in answer["events"]] == [["type", "reason", "message"]]
    assert answer["writes"] == 1 + 1 + len(answer["creates"])  # the spec patch, the status, the children


def test_jobs_with_generated_names_are_planned_under_different_ones(tmp_path: Path) -> None:
    job = fresh()
    job["metadata"] = {"generateName": "tune-"}
    plans = planned(tmp_path, job, job)
    assert [plan["job"]["name"] for plan in plans] == ["tune-00000", "tune-00001"]
    assert all(plan["creates"] and plan["status"]["phase"] == "Creating" for plan in plans)


def test_the_same_file_always_gives_the_same_plan(tmp_path: Path) -> None:
    assert planned(tmp_path, fresh()) == planned(tmp_path, fresh())


def test_yaml_json_and_list_input_give_the_same_plan(tmp_path: Path) -> None:
    path = written(tmp_path, fresh(), tfjob())
    as_yaml = list(yaml.safe_load_all(run(path).stdout))
    wrapped = {"apiVersion": "v1", "kind": "List", "items": [fresh(), tfjob()]}
    assert as_yaml == planned(tmp_path, fresh(), tfjob()) == planned(tmp_path, wrapped)


def passes(folder: Path, documents: list[Json], most: int = 10) -> list[Json]:
    """Pass after pass with --apply, until nothing is written any more."""
    for _ in range(most):
        if not planned(folder, *documents)[0]["writes"]:
            return documents
        result = run(written(folder, *documents), "--apply")
        assert result.exit_code == 0, result.stderr
        documents = yaml.safe_load(result.stdout)["items"]
    raise AssertionError(f"still writing after {most} passes")


def test_plans_can_be_chained_until_nothing_is_left_to_write(tmp_path: Path) -> None:
    ps = replicas("PS", 2)
    world = passes(tmp_path, [fresh(replicas("MASTER"), ps, tensorboard={"logDir": "/l"})])
    kinds = [obj["kind"] for obj in world]
    assert kinds == ["TfJob", "Service", "ConfigMap", "Job", "Job", "Job", "Service", "Deployment"]


def test_a_job_can_be_planned_through_its_life_by_hand(tmp_path: Path) -> None:
    world = passes(tmp_path, [fresh(cleanPodPolicy="All", ttlSecondsAfterFinished=0)])
    master = next(obj for obj in world if obj["metadata"]["name"].startswith("master"))
    pod = pod_of(master, "Succeeded", code=0)
    answer = planned(tmp_path, *world, pod)[0]
    assert answer["status"]["state"] == "Succeeded" and answer["after"] == TIME
    assert [delete["kind"] for delete in answer["deletes"]] == ["Service", "Job", "Job"] or len(answer["deletes"]) == 3
    left = yaml.safe_load(run(written(tmp_path, *world, pod), "--apply").stdout)["items"]
    assert [obj["kind"] for obj in left] == ["TfJob"]  # the pod went with its Job
    (last,) = planned(tmp_path, *left)
    assert [(delete["kind"], delete["name"]) for delete in last["deletes"]] == [("TfJob", "example-job")]
    assert yaml.safe_load(run(written(tmp_path, *left), "--apply").stdout)["items"] == []


def test_grandchildren_count_and_children_of_other_jobs_do_not(tmp_path: Path) -> None:
    first = planned(tmp_path, tfjob())[0]["status"]
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    other = pod_of(batch_job("MASTER"), "Failed", code=1)
    other["metadata"]["ownerReferences"][0]["uid"] = "somebody else's Job"
    objects = [tfjob(status=first), service(), master, worker, pod_of(worker), other]
    assert planned(tmp_path, *objects)[0]["status"]["state"] == "Running"


def test_a_foreign_name_is_reported_with_kind_name_and_owner(tmp_path: Path) -> None:
    taken = batch_job("WORKER")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "f", "controller": True}
    taken["metadata"] |= {"ownerReferences": [owner], "labels": {}}
    (answer,) = planned(tmp_path, tfjob(), taken)
    job_condition = next(
        condition for condition in answer["status"]["conditions"] if condition["type"] == "NameConflict"
    )
    assert all(name in job_condition["message"] for name in ("Job worker-76no-0", "CronJob nightly"))
    assert [create["metadata"]["name"] for create in answer["creates"]] == ["tfjob-76no", "master-76no-0"]


def test_two_jobs_of_one_namespace_do_not_share_a_runtime_id(tmp_path: Path) -> None:
    first, two = fresh(), fresh()
    two["metadata"] = {"name": "other-job"}
    answers = planned(tmp_path, first, two)
    ids = {answer["spec"]["RuntimeId"] for answer in answers}
    assert len(ids) == 2


def test_a_stored_invalid_job_gets_a_failing_plan_and_a_new_one_is_refused(tmp_path: Path) -> None:
    bad = [replicas("MASTER", 2)]
    stored = tfjob(*bad)
    assert planned(tmp_path, stored)[0]["status"]["phase"] == "Failed"
    result = run(written(tmp_path, fresh(*bad)))
    assert result.exit_code == 2 and not result.stdout
    assert "in.yaml:8: spec.replicaSpecs[0].replicas: invalid job spec: The MASTER must" in result.stderr


def test_the_clock_is_the_one_that_was_given(tmp_path: Path) -> None:
    (answer,) = planned(tmp_path, fresh(activeDeadlineSeconds=60))
    assert answer["status"]["startTime"] == TIME and answer["after"] == "2023-11-14T22:14:20Z"
    assert NOW == 1_700_000_000.0
    result = CliRunner().invoke(plan, [written(tmp_path, fresh()), "--now", "yesterday"])
    assert result.exit_code == 2 and "write one like" in result.stderr


REFUSED: list[tuple[str, bytes, str]] = [
    ("an empty file", b"", "has no object"),
    ("only comments", b"# nothing\n---\n", "has no object"),
    ("broken YAML", b"kind: [", "in.yaml:"),
    ("a duplicate key", b"apiVersion: v1\nkind: Pod\nkind: Job\n", "kind"),
    ("a tag", b"!!python/object:os.system {}\n", "in.yaml:1"),
    (
        "a bomb",
        b"a: &a [x]\n" + b"".join(b"%c: &%c [%s]\n" % (c, c, b"*%c," % (c - 1) * 9) for c in b"bcdefghi"),
        "in.yaml",
    ),
    ("depth", b"[" * 100_000, "in.yaml"),
    ("not UTF-8", b"\xff\xfe\xff", "in.yaml"),
    ("no object", b"- 1\n", "in.yaml:1"),
    (
        "no job",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
        "holds no job, only ConfigMap (v1), a built-in kind of Kubernetes; kinds that run here: TfJob (tensorflow.org/",
    ),
    (
        "an unknown version",
        b"apiVersion: tensorflow.org/v2\nkind: TfJob\nmetadata: {name: x}\n",
        "write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",
    ),
    (
        "the kind in small letters",
        b"apiVersion: tensorflow.org/v1alpha1\nkind: tfjob\nmetadata: {name: x}\n",
        "write apiVersion: tensorflow.org/v1alpha1 and kind: TfJob",
    ),
    ("no name", b"apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nspec: {}\n", "metadata.name"),
    (
        "an illegal name",
        b"apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: My Job}\nspec: {}\n",
        "metadata.name",
    ),
]


@pytest.mark.parametrize(("content", "text"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
@pytest.mark.parametrize("command", [plan, lint], ids=["plan", "lint"])
def test_bad_input_ends_with_2_and_a_sentence(command: Any, content: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "in.yaml"
    path.write_bytes(content)
    result = CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    assert result.exit_code == 2 and not result.stdout
    assert text in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr) < 1000


@pytest.mark.parametrize("command", [plan, lint], ids=["plan", "lint"])
def test_a_file_that_cannot_be_read_is_named(command: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        result = CliRunner().invoke(command, [str(path)], catch_exceptions=False)
        assert result.exit_code == 2 and str(path) in result.stderr


def test_the_problems_of_all_files_are_reported_together(tmp_path: Path) -> None:
    manifest = written(tmp_path, fresh(replicas("MASTER", 2), replicas("WORKER", -1)), name="one.yaml")
    two = written(tmp_path, fresh(replicas("WORKER", template=template("x"))), name="two.yaml")
    result = CliRunner().invoke(lint, [manifest, two])
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len([line for line in lines if "one.yaml" in line]) == 2
    assert len([line for line in lines if "two.yaml" in line]) == 2


def test_lint_accepts_valid_jobs_and_warns_about_probable_mistakes(tmp_path: Path) -> None:
    result = CliRunner().invoke(lint, [written(tmp_path, fresh())])
    assert result.exit_code == 0 and result.stdout.startswith("1 job, no problem")
    warned = CliRunner().invoke(lint, [written(tmp_path, fresh(shardCount=3))])
    assert warned.exit_code == 0 and "1 warning" in warned.stdout and "spec.shardCount" in warned.stderr


@pytest.mark.parametrize("command", [plan, lint], ids=["plan", "lint"])
def test_a_misspelt_field_is_refused_with_its_line_and_the_similar_field(command: Any, tmp_path: Path) -> None:
    path = written(tmp_path, fresh(replicas("MASTER"), {"tfReplicaTyp": "WORKER", "template": template()}))
    line = 1 + Path(path).read_text().splitlines().index("  - tfReplicaTyp: WORKER")
    result = CliRunner().invoke(command, [path])
    place = f"in.yaml:{line}: spec.replicaSpecs[1].tfReplicaTyp"
    assert result.exit_code == 2 and f"{place}: there is no such field; did you mean tfReplicaType?" in result.stderr


def test_a_child_that_is_no_object_is_refused_with_its_place(tmp_path: Path) -> None:
    odd = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": ["b"]}}}
    result = run(written(tmp_path, tfjob(), odd))
    assert result.exit_code == 2 and "in.yaml:" in result.stderr and UID not in result.stdout


def test_a_dump_comes_through_a_pipe() -> None:
    text = yaml.safe_dump(fresh())
    piped = CliRunner().invoke(plan, ["-", "--now", TIME, "-o", "json"], input=text, catch_exceptions=False)
    assert piped.exit_code == 0 and json.loads(piped.stdout)[0]["creates"]
    refused = CliRunner().invoke(lint, ["-"], input="a: [", catch_exceptions=False)
    assert refused.exit_code == 2 and refused.stderr.startswith("standard input:")


def test_objects_in_another_namespace_are_no_children_even_by_owner(tmp_path: Path) -> None:
    first = planned(tmp_path, tfjob())[0]["status"]
    elsewhere = batch_job("MASTER", complete=True)
    elsewhere["metadata"]["namespace"] = "other"
    (answer,) = planned(tmp_path, tfjob(status=first), service(), elsewhere)
    assert answer["status"]["state"] != "Succeeded"
    assert "master-76no-0" in {create["metadata"]["name"] for create in answer["creates"]}


def test_a_runtime_id_that_a_later_job_of_the_file_has_is_in_use(tmp_path: Path) -> None:
    taken = planned(tmp_path, fresh())[0]["spec"]["RuntimeId"]
    later = fresh(RuntimeId=taken)
    later["metadata"] = {"name": "later", "uid": UID}
    answers = planned(tmp_path, fresh(), later)
    assert answers[0]["spec"]["RuntimeId"] != taken == answers[1]["spec"]["RuntimeId"]


NUMBERS = [
    "07502e3070", "18549e9054", "1e400", "1e5", "-.5", "12.", "0x1f", "0X1F", "0o17", "0b-1", ".5_0", "1_0e3", "0_8",
    "0x1ffffffffffffffff", "0o7777777777777777777777777", "9" * 400, "1:30", ".inf",
]  # fmt: skip
"""To one reader of YAML or another."""


@pytest.mark.parametrize("text", [*NUMBERS, "y", "N", "1.4.0", "", "null", "true", "=", "<<", "2001-01-01", "dc944ff"])
def test_a_text_is_read_back_as_a_text(text: str) -> None:
    document = as_yaml({"a": text, text: "b"})
    (value,) = load(document, "here")
    assert value.value == yaml.safe_load(document) == {"a": text, text: "b"}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_string_that_looks_like_a_number_is_quoted(text: str) -> None:
    assert as_yaml({"a": text}) == f"a: '{text}'\n"


@pytest.mark.parametrize("text", ["dc944ff", "1.29.3", "10.0.0.1:80", "500m", "2Gi", "1e", "0x", "tensorflow"])
def test_a_string_that_is_no_number_is_not_quoted(text: str) -> None:
    assert as_yaml({"a": text}) == f"a: {text}\n"


def test_a_git_hash_without_quotes_may_be_a_label_or_a_variable(tmp_path: Path) -> None:
    """kubectl takes it, because Go's numbers end before it."""
    file = tmp_path / "job.yaml"
    file.write_text(
        "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: job, labels: {commit: 18549e9054}}\n"
        "spec:\n  replicaSpecs:\n  - template:\n      metadata: {labels: {commit: 18549e9054}}\n"
        "      spec:\n        containers:\n"
        "        - {name: tensorflow, image: x, env: [{name: COMMIT, value: 18549e9054}]}\n"
    )
    assert CliRunner().invoke(lint, [str(file)]).exit_code == 0
    (document,) = yaml.safe_load_all(run(str(file)).stdout)
    (job,) = [child for child in document["creates"] if child["kind"] == "Job"]
    assert job["spec"]["template"]["metadata"]["labels"]["commit"] == "18549e9054"
    assert job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "18549e9054"
