"""The schemas of Kubeflow Trainer 2.3.0, from its CustomResourceDefinitions in testdata/trainer."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import yaml

from trainyard.objects import Json
from trainyard.schema import Schema

FOLDER = Path(__file__).parents[2] / "testdata" / "trainer"
PLURALS = {"TrainJob": "trainjobs", "TrainingRuntime": "trainingruntimes"}


def definition_text(kind: str) -> str:
    return lzma.decompress((FOLDER / f"trainer.kubeflow.org_{PLURALS[kind]}.yaml.xz").read_bytes()).decode()


@cache
def schema_of(kind: str) -> Schema:
    definition: Json = yaml.load(definition_text(kind), Loader=yaml.CSafeLoader)
    (version,) = definition["spec"]["versions"]
    return Schema(version["schema"]["openAPIV3Schema"])


def problems_of(obj: Json) -> list[str]:
    """What Trainer's API would refuse in the object, and the fields that it would drop."""
    schema = schema_of(obj["kind"])
    return [*map(str, schema.validate(obj)), *(f"{path}: dropped" for path in schema.unknown_fields(obj))]
