"""The manifests that `trainyard run SCRIPT` and `trainyard convert` make are valid for Kubeflow's own operators."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.drop_in.operators_build import operators
from trainyard.conversion import KUBEFLOW, convert, is_convertible
from trainyard.objects import Json
from trainyard.schema import Schema

pytestmark = [pytest.mark.cluster, pytest.mark.drop_in]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Schema]:
    """Kind -> the schema of `kubeflow.org/v1` in the Training Operator's definitions."""
    folder = operators(print) / "training-operator" / "manifests" / "base" / "crds"
    definitions = [yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in folder.glob("kubeflow*.yaml")]
    return {
        definition["spec"]["names"]["kind"]: Schema(version["schema"]["openAPIV3Schema"])
        for definition in definitions
        for version in definition["spec"]["versions"]
        if version["name"] == "v1"
    }


@cache
def manifests() -> dict[str, Json]:
    """The jobs of kubeflow.org/v1: those of scripts, and the converted examples."""
    jobs = {
        path.stem: yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        for path in (ROOT / "testdata" / "scripts").glob("*.yaml")
    }
    jobs = {name: job for name, job in jobs.items() if job["apiVersion"] == "kubeflow.org/v1"}
    for path in (ROOT / "examples").glob("*.yaml"):
        for obj in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
            if obj and is_convertible(obj, KUBEFLOW) and (results := convert(obj, KUBEFLOW).objects):
                jobs[path.name] = results[0]
    return jobs


@pytest.mark.parametrize("name", sorted(manifests()))
def test_the_definitions_of_the_training_operator_accept_it(name: str, schemas: dict[str, Schema]) -> None:
    job = manifests()[name]
    assert schemas[job["kind"]].validate(job) == []
    assert schemas[job["kind"]].unknown_fields(job) == []
