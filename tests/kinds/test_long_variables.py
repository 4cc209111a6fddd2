"""Variables and arguments of more than 128 KiB, with which Linux starts no program, are reported before the start."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.support.builders import replicas, tfjob
from tests.support.samples import kubeflow_job
from trainyard import kinds
from trainyard.cli.session import submission
from trainyard.core import Config, long_variables, parse_job
from trainyard.objects import Json, encode
from trainyard.objects.manifest import ManifestError

LONGEST = 131072 - len("TEXT=") - 1  # of a value


def with_text(length: int, field: str = "env") -> Json:
    job = copy.deepcopy(kubeflow_job("PyTorchJob"))
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container[field] = [{"name": "TEXT", "value": "ä" + (length - 2) * "x"}] if field == "env" else [length * "x"]
    return job


def with_long_init_container() -> Json:
    """Its variable has the name of a short one of the main container."""
    job = with_text(9)
    spec = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec["containers"][0]["env"] = [{"name": "LONG", "value": "TEXT"}]
    spec["initContainers"] = [{"name": "init", "image": "i", "env": [{"name": "LONG", "value": LONGEST * "x" + "x"}]}]
    return job


CASES: dict[str, tuple[Json, str, str]] = {
    "TFJob, 3000": (kubeflow_job("TFJob", Worker=3000), "", ""),
    "TFJob, 9000": (kubeflow_job("TFJob", Worker=9000), "Worker", "the variable TF_CONFIG would have 3"),
    "XGBoostJob": (kubeflow_job("XGBoostJob", Worker=9000), "Worker", "the variable WORKER_ADDRS would have 1"),
    "PyTorchJob": (kubeflow_job("PyTorchJob", Worker=9000), "", ""),
    "TfJob": (tfjob(replicas("MASTER"), replicas("WORKER", 9000)), "spec.replicaSpecs[1]", "the variable TF_CONFIG"),
    "longest text": (with_text(LONGEST), "", ""),
    "text": (with_text(LONGEST + 1), "Master", "131073 bytes"),
    "init container": (with_long_init_container(), "Master", "the variable LONG would have"),
    "argument": (with_text(131072, "args"), "Master", "the longest of args would have 131073"),
}


@pytest.mark.parametrize(("job", "role", "text"), CASES.values(), ids=CASES)
def test_a_text_that_no_program_starts_with_is_reported_with_its_role(job: Json, role: str, text: str) -> None:
    kind = kinds.kind_of(job)
    assert kind is not None
    found_problems = {problem.path: problem.text for problem in long_variables(parse_job(kind, job, Config()))}
    if not role:
        assert found_problems == {}
        return
    (problem,) = (problem for path, problem in found_problems.items() if path.endswith(role))
    assert text in problem
    own = "file of a volume" if "TEXT" in str(job) or "args" in text else "fewer replicas"
    assert own in problem


def test_on_this_machine_it_is_refused_and_elsewhere_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(encode(with_text(LONGEST + 1)))
    with pytest.raises(ManifestError, match="the variable TEXT would have 131073 bytes"):
        submission.read([str(file)])
    (warning,) = submission.read([str(file)], local=False).warnings
    assert "warning: spec.pytorchReplicaSpecs.Master: the variable TEXT would have" in warning
