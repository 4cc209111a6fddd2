"""The real API server refuses by our ValidatingAdmissionPolicies what Trainer's webhooks refuse, in their words, and
stores what they store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.control_plane.test_trainer_definitions import wait_until_served
from tests.drop_in.recordings import FOLDER, Recording, load
from tests.drop_in.scenarios_trainjob import TRAIN_JOBS
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace
from tests.support.waiting import SLOW_PAUSE, until
from trainyard.kinds import TRAINJOB, crds
from trainyard.kinds.trainjob.admission_policies import admission_policies
from trainyard.kinds.trainjob.shipped_runtimes import shipped_runtimes
from trainyard.objects import Json, encode, name_of

pytestmark = pytest.mark.cluster

_numbers = itertools.count(1)
REFUSED = {
    "initializers-without-jobs": "must have dataset-initializer job when trainJob is configured with input datasetConf",
    "manager-plain": 'must be a domain-prefixed path (such as "acme.io/foo")',
    "manager-ends-with-slash": 'must be a domain-prefixed path (such as "acme.io/foo")',
    "manager-upper": "",  # Trainer says which part of the path is wrong
    "patch-env-of-node": "must not have envs for the dataset-initializer, model-initializer, node containers",
    "reserved-torch": "must not have reserved envs, invalid envs configured: [PET_NNODES]",
    "reserved-torch-several": "must not have reserved envs, invalid envs configured: [PET_",
    "reserved-mpi": "must not have reserved envs, invalid envs configured: [OMPI_MCA_",
    "reserved-xgboost": "reserved for the XGBoost runtime",
    "runtime-of-unknown-group": "unsupported runtime: ClusterTrainingRuntime.acme.io",
    "runtime-of-unknown-kind": "unsupported runtime: Foo.trainer.kubeflow.org",
    "several-problems": "",  # a policy names its first problem
}
"""Scenario -> the part of the recorded refusal that is in ours, too."""


def recordings() -> Iterator[Recording]:
    return (load(path) for path in sorted((FOLDER / TRAIN_JOBS).glob("*.json")))


def apply(plane: ControlPlane, objects: list[Json]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=encode(listed).decode())


class Guarded(NamedTuple):
    """An API server with the policies in force, and a namespace in it."""

    plane: ControlPlane
    namespace: str

    @property
    def path(self) -> str:
        return f"/apis/{TRAINJOB.gvk.api_version}/namespaces/{self.namespace}/trainjobs"

    def ask(self, manifest: Json) -> tuple[int, str]:
        """The answer; nothing is stored."""
        code, answer = self.plane.ask("POST", f"{self.path}?dryRun=All", manifest)
        return code, str(answer.get("message", ""))

    def until_code(self, manifest: Json, expected: int) -> None:
        """The API server learns of a policy, and of its parameters, a moment after they are made."""
        until(
            lambda: self.ask(manifest),
            f"the answer is {expected}",
            accept=lambda answer: answer[0] == expected,
            pause=SLOW_PAUSE,
        )


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane) -> Iterator[Guarded]:
    """With the definitions, the shipped runtimes, one of the namespace, and the policies in force."""
    guarded = Guarded(control_plane, f"admission-{next(_numbers)}")
    create_namespace(control_plane, guarded.namespace)
    definitions = list(crds((TRAINJOB,)))
    apply(control_plane, definitions)
    for definition in definitions:
        wait_until_served(control_plane, name_of(definition))
        control_plane.wait_for(f"/apis/{TRAINJOB.gvk.api_version}/{definition['spec']['names']['plural']}")
    torch = next(item for item in shipped_runtimes() if name_of(item) == "torch-distributed")
    mine = {"apiVersion": torch["apiVersion"], "kind": "TrainingRuntime", "spec": torch["spec"]}
    apply(control_plane, [*shipped_runtimes(), {**mine, "metadata": {"name": "mine", "namespace": guarded.namespace}}])
    apply(control_plane, list(admission_policies()))
    probes = (
        with_reserved_variable("ClusterTrainingRuntime", "torch-distributed"),
        with_reserved_variable("TrainingRuntime", "mine"),
        job("probe", runtimePatches=[{"manager": "foo"}]),
    )
    for probe in probes:
        guarded.until_code(probe, 403)
    yield guarded
    for policy in admission_policies():
        control_plane.kubectl("delete", policy["kind"], name_of(policy))
    for probe in probes:
        guarded.until_code(probe, 201)
    control_plane.ask("DELETE", f"/api/v1/namespaces/{guarded.namespace}")


def with_reserved_variable(kind: str, name: str) -> Json:
    return job(
        "probe", runtimeRef={"kind": kind, "name": name}, trainer={"env": [{"name": "PET_NNODES", "value": "9"}]}
    )


def job(name: str, **spec: object) -> Json:
    identity = {"apiVersion": TRAINJOB.gvk.api_version, "kind": "TrainJob", "metadata": {"name": name}}
    return {**identity, "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec}}


def test_jobs_are_refused_in_the_recorded_words(guarded: Guarded) -> None:
    by_name = {recording.scenario.partition("/")[2]: recording for recording in recordings()}
    for name, text in REFUSED.items():
        code, message = guarded.ask(by_name[name].manifest)
        assert code == 403 and text in message, (name, code, message)
        assert text in by_name[name].steps[0]["refused"]["message"], name


def test_what_trainer_stores_is_stored(guarded: Guarded) -> None:
    for recording in recordings():
        if "refused" not in recording.steps[0]:
            code, message = guarded.ask(recording.manifest)
            assert code != 403, (recording.scenario, message)


def test_patches_change_only_while_suspended_and_without_pods(guarded: Guarded) -> None:
    path = guarded.path
    patches = [{"manager": "acme.io/team", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}]
    for name, suspend in (("runs", False), ("waits", True)):
        code, answer = guarded.plane.ask("POST", path, job(name, suspend=suspend))
        assert code == 201, answer
    code, answer = guarded.plane.ask("PATCH", f"{path}/runs", {"spec": {"runtimePatches": patches}})
    assert code == 403 and "can only be modified when the TrainJob is suspended" in answer["message"]
    counts = {"ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    status = {"status": {"jobsStatus": [{"name": "node", **counts}]}}
    assert guarded.plane.ask("PATCH", f"{path}/waits/status", status)[0] == 200
    code, answer = guarded.plane.ask("PATCH", f"{path}/waits", {"spec": {"runtimePatches": patches}})
    assert code == 403 and "ReplicatedJob node is still active" in answer["message"]
    idle = {"status": {"jobsStatus": [{"name": "node", **counts, "active": 0, "ready": 0}]}}
    assert guarded.plane.ask("PATCH", f"{path}/waits/status", idle)[0] == 200
    code, answer = guarded.plane.ask("PATCH", f"{path}/waits", {"spec": {"runtimePatches": patches, "suspend": False}})
    assert code == 200, answer
