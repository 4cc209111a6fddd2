"""The operators' own examples, as their modules have them. Each is submitted, runs and succeeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.drop_in.jobs import KINDS
from tests.drop_in.operators import documents
from tests.drop_in.operators_build import operators
from tests.drop_in.scenario import MPI, TRAINING, Scenario, pods, running
from tests.drop_in.scenarios_trainjob import TRAIN_JOBS, from_documents
from tests.drop_in.trainer import trainer_examples
from trainyard.objects import Json


def examples(folders: Sequence[str] = ("*",)) -> Iterator[Scenario]:
    """Those of the kinds whose folder a shell pattern matches. Builds the operators of no others."""
    if any(fnmatchcase(TRAIN_JOBS, folder) for folder in folders):
        for name, manifests in trainer_examples():
            yield from from_documents(name, manifests)
    if not any(fnmatchcase(kind.folder, folder) for kind in KINDS for folder in folders):
        return
    built = operators(lambda text: None)
    for operator in (TRAINING, MPI):
        folder = built / operator / "examples"
        for path in sorted(folder.rglob("*.yaml")):
            for manifest in documents(path):
                if str(manifest.get("apiVersion", "")).startswith("kubeflow.org/"):
                    yield _example(operator, path.relative_to(folder), manifest)


def _example(operator: str, path: Path, manifest: Json) -> Scenario:
    version = manifest["apiVersion"].partition("/")[2]
    kind = manifest["kind"].lower() + ("-v2beta1" if version == "v2beta1" else "")
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    name = "example-" + "-".join(path.with_suffix("").parts[1:]).replace("_", "-").lower()
    pattern = f"{metadata['name']}-*"
    steps = (running(pattern), pods("Succeeded", pattern, exitCode=0, **{"from": "Running"}))
    return Scenario(kind, name, {**manifest, "metadata": metadata}, steps, operator)
