"""`--api trainjob`: the TrainJob of a script, with its runtime, as Kubeflow Trainer takes and renders it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.script_values import program_job, script
from tests.cli.test_script_manifests import CASES
from tests.conversion.trainer_schemas import problems_of
from trainyard.cli.command.options import APIS
from trainyard.cli.init import init
from trainyard.cli.run import run
from trainyard.cli.scripts.job_maker import ProgramJob
from trainyard.conversion import TARGETS, TRAINJOB
from trainyard.kinds.trainjob import admission
from trainyard.kinds.trainjob.expand import expand
from trainyard.kinds.trainjob.render import render
from trainyard.objects import Json, encode
from trainyard.objects.manifest import ManifestError, read

REFUSED = ("torch-elastic", "mpi4py-of-two", "chainer-of-two")
CONVERTED = [case for case in CASES if case not in REFUSED and not case.startswith("mxnet")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script(tmp_path)
    return tmp_path


def train_job(**options: Any) -> ProgramJob:
    return program_job("train.py", "--lr", "3", api=TRAINJOB, **options)


def pods_of(manifest: ProgramJob) -> dict[str, int]:
    """Number of pods of each replicated job that has any, as Trainer would make them."""
    job_set = render(manifest.job, manifest.runtimes[0]).job_set
    assert expand(job_set, "uid", "default").pods.keys() == {item["name"] for item in job_set["spec"]["replicatedJobs"]}
    return {item["name"]: item["template"]["spec"]["parallelism"] for item in job_set["spec"]["replicatedJobs"]}


@pytest.mark.parametrize("case", CONVERTED)
def test_trainer_takes_and_renders_it(case: str) -> None:
    manifest = train_job(**CASES[case])
    assert [problems_of(obj) for obj in manifest.objects] == [[], []]
    (runtime,) = manifest.runtimes
    assert admission.runtime_refusals(runtime) == admission.refusals(manifest.job, runtime) == []
    pods = pods_of(manifest)
    workers, servers = CASES[case].get("workers", 1), CASES[case].get("ps", 0)
    assert sum(pods.values()) == workers + servers
    hosts = {f"train-{name}-0-{index}.train" for name, count in pods.items() for index in range(count)}
    text = encode(manifest.objects).decode()
    assert set(re.findall(r"train-[a-z]+-[0-9-]+[.a-z]*", text)) <= hosts


@pytest.mark.parametrize("case", CONVERTED)
def test_the_first_failure_is_the_end(case: str) -> None:
    (runtime,) = train_job(**CASES[case]).runtimes
    for replicated_job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        spec = replicated_job["template"]["spec"]
        assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (0, "Never")


@pytest.mark.parametrize("case", CONVERTED)
def test_its_manifest_round_trips(case: str) -> None:
    manifest = train_job(**CASES[case])
    documents = read(manifest.manifest_yaml(Path("train.yaml")), "train.yaml")
    assert [document.obj for document in documents] == manifest.objects


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_train_job_cannot_do_is_refused(case: str) -> None:
    with pytest.raises(ManifestError, match=r"--api trainjob: (MPIJob )?spec\..* is not mapped: .*"):
        train_job(**CASES[case])


def test_init_writes_the_runtime_and_the_job(folder: Path) -> None:
    done = CliRunner().invoke(init, ["--api", "trainjob", "--framework", "torch", "--workers", "2", "train.py"])
    assert done.exit_code == 0, done.output
    documents = read((folder / "train.yaml").read_text(), "train.yaml")
    assert [document.obj["kind"] for document in documents] == ["TrainingRuntime", "TrainJob"]
    assert documents[1].obj["spec"]["trainer"]["numNodes"] == 2


def test_a_dry_run_prints_both() -> None:
    arguments = ["--api", "trainjob", "--framework", "jax", "--dry-run", "-o", "json", "train.py"]
    done = CliRunner().invoke(run, arguments)
    assert done.exit_code == 0, done.output
    printed: Json = json.loads(done.stdout)
    assert [obj["kind"] for obj in printed["items"]] == ["TrainingRuntime", "TrainJob"]


def test_the_apis_are_those_of_convert() -> None:
    assert APIS == TARGETS


def test_a_job_of_kubeflow_stays_one() -> None:
    assert program_job("train.py", framework="torch", api="kubeflow") == program_job("train.py", framework="torch")
