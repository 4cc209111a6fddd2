"""Where a stream is no terminal, a message is one line and a table has all of its text; on a terminal both fit it.

A problem of a manifest is `file:line: field: text` for every command, so that editors, CI and grep can read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.terminals import COLUMNS, Stream, run_on

pytestmark = pytest.mark.slow
EXAMPLE = (Path(__file__).parents[2] / "examples" / "tf_job.yaml").read_text()
MISSPELT = EXAMPLE.replace("tfReplicaType: WORKER", "tfReplicaTyp: WORKER")
TWO_MASTERS = EXAMPLE.replace("tfReplicaType: WORKER", "tfReplicaType: MASTER")
ELASTIC = """apiVersion: elastic.pytorch.org/v1alpha1
kind: ElasticJob
metadata: {name: a}
spec:
  rdzvBackend: c10d
  replicaSpecs:
    Worker:
      restartPolcy: Never
      template: {spec: {containers: [{name: elasticjob-worker, image: x}]}}
"""
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
FILES = {
    "misspelt.yaml": MISSPELT,
    "two-masters.yaml": TWO_MASTERS,
    "documents.yaml": f"{TWO_MASTERS}---\n{MISSPELT}",
    "elastic.yaml": ELASTIC,
    "bounds.yaml": f"{ELASTIC.replace('restartPolcy: Never', 'replicas: 1')}  minReplicas: 3\n  maxReplicas: 2\n",
    "ray.yaml": "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n",
    "config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    "list.yaml": "apiVersion: v1\nkind: List\nitems:\n- 3\n",
    "no-items.yaml": "apiVersion: v1\nkind: List\nitems: []\n",
    "syntax.yaml": "apiVersion: v1\nkind: a: b\n",
    "newline.yaml": EXAMPLE.replace("spec:", 'spec:\n  "a\\nb": 1\n  tfImag: x', 1),
    "duplicate.yaml": "apiVersion: v1\nkind: ConfigMap\nkind: ConfigMap\n",
    "twice.yaml": f"{EXAMPLE}---\n{EXAMPLE}",
    "empty.yaml": "",
    "kubeconfig": KUBECONFIG,
}
SUBMIT = ["submit", "--kubeconfig", "kubeconfig"]


class Case(NamedTuple):
    """A command that finds problems, and the place and field of each."""

    line: list[str]
    problems: list[str]
    given: str = ""


MISSPELT_AT = "23: spec.replicaSpecs[1].tfReplicaTyp"
CASES = [
    *(
        Case([*command, "misspelt.yaml"], [f"misspelt.yaml:{MISSPELT_AT}"])
        for command in (["lint"], ["plan"], ["run"], ["run", "--dry-run"], SUBMIT)
    ),
    Case(["convert", "elastic.yaml"], ["elastic.yaml:8: spec.replicaSpecs.Worker.restartPolcy"]),
    Case(
        ["lint", "documents.yaml", "two-masters.yaml"],
        [
            *(
                "documents.yaml:13: spec.replicaSpecs",
                "documents.yaml:43: metadata.name",
                "documents.yaml:55: spec.replicaSpecs[1].tfReplicaTyp",
            ),
            "two-masters.yaml:13: spec.replicaSpecs",
        ],
    ),
    Case(["lint", "-"], [f"standard input:{MISSPELT_AT}"], MISSPELT),
    Case(["convert", "-"], ["standard input:2: YAML"], FILES["syntax.yaml"]),
    Case(["lint", "twice.yaml"], ["twice.yaml:43: metadata.name"]),
    Case(["lint", "ray.yaml"], ["ray.yaml:2: kind"]),
    *(
        Case(
            [*command, "two-masters.yaml", "ray.yaml", "syntax.yaml"],
            ["two-masters.yaml:13: spec.replicaSpecs", "ray.yaml:2: kind", "syntax.yaml:2: YAML"],
        )
        for command in (["lint"], ["run"], SUBMIT)
    ),
    *(
        Case(
            [*command, "bounds.yaml"],
            ["bounds.yaml:8: spec.replicaSpecs.Worker.replicas", "bounds.yaml:10: spec.minReplicas"],
        )
        for command in (["lint"], ["run"], ["plan"], ["convert"], SUBMIT)
    ),
    Case(["run", "config.yaml"], ["config.yaml:2: kind"]),
    Case(["lint", "twice.yaml", "twice.yaml"], ["twice.yaml:43: metadata.name"]),
    Case(["lint", "list.yaml"], ["list.yaml:4: items[0]"]),
    Case(["plan", "no-items.yaml"], ["no-items.yaml:1: items"]),
    Case([*SUBMIT, "syntax.yaml"], ["syntax.yaml:2: YAML"]),
    Case(["lint", "newline.yaml"], ["newline.yaml:14: spec.tfImag"]),
    Case(
        ["lint", "duplicate.yaml", "empty.yaml", "gone.yaml"],
        ["duplicate.yaml:3: kind", "empty.yaml:1: document", "gone.yaml:1: file"],
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a-folder-with-a-name-that-makes-messages-longer-than-a-terminal-is-wide")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case.line))
def test_a_problem_is_one_line_in_a_pipe_and_fits_a_terminal(case: Case, folder: Path) -> None:
    piped = run_on(folder, case.line, given=case.given, COLUMNS="40")
    assert (piped.code, piped.out) == (2, "")
    matches = [re.match(r"([^:]+:[0-9]+: [^ :]+): \S", line) for line in piped.err.splitlines()]
    assert [match and match[1] for match in matches] == case.problems, piped.err
    shown = run_on(folder, case.line, out="terminal", err="terminal", given=case.given)
    assert words(shown.err) == words(piped.err) and max(map(len, shown.err.splitlines())) <= COLUMNS


LONG_IMAGE = f"registry.example.com/{'a-long-name-' * 5}"
IMAGES = f"images:\n- {{match: {LONG_IMAGE}, providers: [{{requirements: [a==1]}}]}}\n"
MESSAGES: list[tuple[list[str], int]] = [
    (["get", "--kubeconfig", "no/such/file/in/this/folder/or/anywhere/else"], 3),
    (["delete", "mnist", "--kubeconfig", "kubeconfig", "--namespace", "a-namespace-with-a-long-name"], 3),
    (["logs", f"{'a-job-with-a-long-name-' * 2}b", "--attempt", "1"], 1),
    (["run", "--workers", "several-hundred-thousand-and-one-more-than-that", "train.py"], 2),
    (["init", "no/such/script/in/this/folder/or/in/any/other/folder/train.py"], 2),
    (["images", "--images", "no/such/file/in/this/folder/or/anywhere/else/at/all/images.yaml"], 2),
]


@pytest.mark.parametrize(
    ("line", "code"), MESSAGES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_message_is_one_line_in_a_pipe_and_fits_a_terminal(line: list[str], code: int, folder: Path) -> None:
    piped, shown = run_on(folder, line), run_on(folder, line, err="terminal")
    assert (piped.code, piped.out) == (shown.code, shown.out) == (code, "")
    _, error, text = piped.err.rpartition("Error: ")  # of the command line: its usage has lines of its own
    assert text.count("\n") == 1 and len(error + text) > COLUMNS, piped.err
    assert words(shown.err) == words(piped.err)
    longest_word = max(map(len, text.split()))
    assert max(map(len, shown.err.splitlines())) <= max(COLUMNS, longest_word), "a path is never broken"


@pytest.mark.parametrize(("out", "err"), [("pipe", "terminal"), ("terminal", "pipe")])
def test_each_stream_is_judged_by_itself_and_a_table_is_cut_on_a_terminal_only(
    out: Stream, err: Stream, folder: Path
) -> None:
    (folder / "images.yaml").write_text(IMAGES)
    table = run_on(folder, ["images", "--images", "images.yaml"], out=out, err=err).out
    message = run_on(folder, ["lint", "misspelt.yaml"], out=out, err=err).err
    assert (max(map(len, table.splitlines())) <= COLUMNS) is (out == "terminal")
    assert ("…" in table, LONG_IMAGE in table.splitlines()[1]) == (out == "terminal", out == "pipe")
    assert (max(map(len, message.splitlines())) <= COLUMNS) is (err == "terminal")
