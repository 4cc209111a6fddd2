"""A TrainJob in a queue of a real Kueue. Its integration watches JobSets, which exist here as a definition alone: our
operator makes none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.control_plane.job_life import operated
from tests.drop_in.operators import create
from tests.kueue.real_kueue import FRAMEWORKS, RealKueue
from tests.kueue.test_kueue import QUEUE, QUEUE_LABEL, Queued, namespace_with_queue
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import install
from tests.support.samples import trainjob
from trainyard.kinds import TRAINJOB
from trainyard.kinds.trainjob.definitions import definitions
from trainyard.kinds.trainjob.shipped_runtimes import shipped_runtimes
from trainyard.objects import Json, labels_of, name_of

pytestmark = [pytest.mark.cluster, pytest.mark.peers, pytest.mark.slow]
INTEGRATION = "trainer.kubeflow.org/trainjob"
RUNTIME = "torch-distributed"


def job_set_definition() -> Json:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": "JobSet", "plural": "jobsets", "singular": "jobset"}
    spec = {"group": "jobset.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # An API of k8s.io has to say where it was approved.
        "metadata": {
            "name": "jobsets.jobset.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": spec,
    }


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    kueue = RealKueue(integrations={"frameworks": [*FRAMEWORKS, INTEGRATION]})
    with ControlPlane() as plane:
        install(plane)
        plane.add_node("played", rack="r1")
        installed = {TRAINJOB.gvk.kind}
        create(plane, *(item for item in definitions() if item["spec"]["names"]["kind"] not in installed))
        create(plane, job_set_definition())
        create(plane, *(runtime for runtime in shipped_runtimes() if name_of(runtime) == RUNTIME))
        kueue.install(plane)
        with kueue.running(plane):
            yield plane


@pytest.fixture
def queued(plane: ControlPlane) -> Iterator[Queued]:
    with namespace_with_queue(plane, "trainjob", QUEUE) as queued:
        yield queued


async def test_a_trainjob_is_held_admitted_evicted_admitted_again_and_ends(queued: Queued) -> None:
    """Kueue writes what it adds to the pods into a runtimePatch of its own."""
    trainer = {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}}
    job = trainjob(runtime=RUNTIME, trainer=trainer)
    job["metadata"] = {"name": "example", "labels": {QUEUE_LABEL: QUEUE}}
    assert queued.submit(TRAINJOB, job)["spec"]["suspend"] is True, "its webhook suspends it"
    async with operated(queued.plane):
        await queued.until(lambda: len(queued.running()) == 2, "the admitted job runs")
        (pod_set,) = queued.workload("example")["spec"]["podSets"]
        assert (pod_set["name"], pod_set["count"]) == ("node", 2)
        for pod in queued.pods():
            assert labels_of(pod)["kueue.x-k8s.io/podset"] == "node" and QUEUE_LABEL not in labels_of(pod)
            assert pod["spec"]["nodeSelector"]["rack"] == "r1"
        await queued.until(lambda: queued.workload_is("example", "PodsReady"), "Kueue sees that all pods run")
        await queued.until(lambda: queued.used() == "2", "the queue counts its CPUs")

        queued.set_active("example", False)
        await queued.until(lambda: not queued.pods() and queued.used() == "0", "pods and quota are gone")
        assert "nodeSelector" not in str(queued.job(TRAINJOB, "example")["spec"])
        queued.set_active("example", True)
        await queued.until(lambda: len(queued.running()) == 2, "it runs again")
        for member in queued.running():
            await asyncio.to_thread(queued.end, member)
        await queued.until(lambda: queued.conditions(TRAINJOB, "example").get("Complete") == "True", "it is complete")
        await queued.until(lambda: queued.workload_is("example", "Finished"), "Kueue sees that it has ended")
        await queued.until(lambda: queued.used() == "0", "the quota is back")
