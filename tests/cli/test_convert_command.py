"""`trainyard convert`: files and standard input, several documents, exit codes and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from trainyard.cli.convert import convert
from trainyard.cli.lint import lint

EXAMPLES = Path(__file__).parents[2] / "examples"
OTHER = """\
# A folder for the model.
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}   # two
data:
  text: |
    # not a comment
"""
JOB = """\
apiVersion: elastic.pytorch.org/v1alpha1
kind: ElasticJob
metadata:
  name: train
spec:
  rdzvBackend: c10d
  replicaSpecs:
    Worker:
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: elasticjob-worker
            image: example.com/train:1
            command: [torchrun, train.py]
"""


def converted(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(convert, arguments, input=stdin)


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_other_documents_keep_their_text_and_their_order() -> None:
    result = converted("-", stdin=f"{OTHER}---\n{JOB}---\n# nothing\n---\n{OTHER.replace('settings', 'more')}")
    assert result.exit_code == 0
    first, job, comment, last = re.split(r"^---\n", result.stdout, flags=re.MULTILINE)
    assert (first, comment, last) == (OTHER, "# nothing\n", OTHER.replace("settings", "more"))
    assert yaml.safe_load(job)["kind"] == "PyTorchJob"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_that_begins_with_a_separator_and_has_other_newlines(newline: str) -> None:
    text = f"---\n{OTHER}---\n{JOB}".replace("\n", newline)
    result = converted("-", stdin=text)
    assert [obj["kind"] for obj in yaml.safe_load_all(result.stdout)] == ["ConfigMap", "PyTorchJob"]


def test_the_result_is_valid_for_lint_and_is_not_written_over_a_file(folder: Path) -> None:
    result = converted("job.yaml", "-o", "new.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "ElasticJob train: PyTorchJob" in result.stderr
    assert CliRunner().invoke(lint, ["new.yaml"]).exit_code == 0
    text = (folder / "new.yaml").read_text()
    again = converted("job.yaml", "-o", "new.yaml")
    assert again.exit_code == 2 and "is there already" in one_line(again.stderr)
    assert (folder / "new.yaml").read_text() == text


def test_several_files_are_one_stream(folder: Path) -> None:
    (folder / "other.yaml").write_text(OTHER)
    result = converted("job.yaml", "other.yaml")
    assert [obj["kind"] for obj in yaml.safe_load_all(result.stdout)] == ["PyTorchJob", "ConfigMap"]


def test_a_list_stays_a_list(folder: Path) -> None:
    items = [yaml.safe_load(OTHER), yaml.safe_load(JOB)]
    (folder / "list.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    obj = yaml.safe_load(converted("list.yaml", "--to", "trainjob").stdout)
    assert obj["kind"] == "List" and [item["kind"] for item in obj["items"]] == [
        "ConfigMap",
        "TrainingRuntime",
        "TrainJob",
    ]


def test_a_field_that_is_not_mapped_has_its_line_and_a_reason_and_ends_with_1(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("spec:\n  rdzv", "spec:\n  managedBy: example.com/other\n  rdzv"))
    result = converted("job.yaml")
    assert result.exit_code == 1
    assert "job.yaml:6: spec.managedBy: not mapped: example.com/other manages no job" in one_line(result.stderr)
    assert "ElasticJob train: PyTorchJob; 1 field is not mapped" in one_line(result.stderr)
    assert yaml.safe_load(result.stdout)["kind"] == "PyTorchJob"


def test_an_invalid_job_is_reported_as_by_lint_and_nothing_is_written(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("restartPolicy", "restartPolcy"))
    result = converted("job.yaml", "-o", "new.yaml")
    assert result.exit_code == 2 and "did you mean restartPolicy" in one_line(result.stderr)
    assert not (folder / "new.yaml").exists()


def test_an_mx_job_is_kept_with_its_text() -> None:
    result = converted(str(EXAMPLES / "mx_job_dist.yaml"))
    assert result.exit_code == 1 and "have no kind for MXNet" in one_line(result.stderr)
    assert result.stdout == (EXAMPLES / "mx_job_dist.yaml").read_text()


@pytest.mark.parametrize(("target", "text"), [("kubeflow", "no TfJob"), ("trainjob", "no job of a kind")])
def test_an_input_without_a_job_is_the_output(folder: Path, target: str, text: str) -> None:
    (folder / "other.yaml").write_text(OTHER)
    result = converted("other.yaml", "--to", target)
    assert (result.exit_code, result.stdout) == (0, OTHER) and text in result.stderr


def test_lost_comments_are_named() -> None:
    assert "comments of this document are not kept" in one_line(converted("-", stdin=f"# mine\n{JOB}").stderr)
    assert "comments" not in converted("-", stdin=JOB).stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"\xff\xfe\xff", "UTF-8"), (b"a: [", "job.yaml:"), (None, "cannot be read"), (b"", "has no object")],
)
def test_a_file_that_cannot_be_read_ends_with_2(folder: Path, content: bytes | None, text: str) -> None:
    (folder / "job.yaml").unlink()
    if content is not None:
        (folder / "job.yaml").write_bytes(content)
    result = converted("job.yaml")
    assert result.exit_code == 2 and text in result.stderr and result.stdout == ""


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_converts_to_manifests_that_lint_accepts(path: Path) -> None:
    result = converted(str(path), "-o", "new.yaml")
    kinds = {obj["kind"] for obj in yaml.load_all(Path("new.yaml").read_text(), Loader=yaml.CSafeLoader) if obj}
    assert result.exit_code == (1 if kinds & {"MxJob"} or "tensorboard" in path.stem else 0), result.stderr
    if kinds & {"TFJob", "PyTorchJob", "MPIJob"}:
        assert CliRunner().invoke(lint, ["new.yaml"]).exit_code == 0
