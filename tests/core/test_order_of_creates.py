"""In which order the children of a new job are created."""

from __future__ import annotations

import pytest

from tests.support import samples
from trainyard import core, kinds
from trainyard.core import Observed


@pytest.mark.parametrize("workers", [1, 3, 300])
def test_pods_come_before_services_and_the_master_s_service_with_the_master_of_a_large_job(workers: int) -> None:
    job = samples.sample("PyTorchJob")
    job["metadata"]["name"] = "j"
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
    creates = [(create.gvk.kind, create.name) for create in core.plan(kinds.PYTORCHJOB, job, Observed(()), 0.0).creates]
    names = ["j-master-0", *(f"j-worker-{index}" for index in range(workers))]
    pods, services = [("Pod", name) for name in names], [("Service", name) for name in names]
    if len(creates) > core.FEW_CREATES:
        pods.insert(1, services.pop(0))
    assert creates == pods + services
