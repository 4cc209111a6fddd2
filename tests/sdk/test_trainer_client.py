"""The Kubeflow SDK, unchanged, finds the runtimes that Trainer ships and submits its jobs, without a warning.

No controller of TrainJobs is served yet, so the cluster of these tests gets the definitions and the runtimes here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.environments import run_story, sdk_python
from trainyard.kinds.trainjob.definitions import CLUSTER_TRAINING_RUNTIME, definitions
from trainyard.kinds.trainjob.shipped_runtimes import public_objects, shipped_runtimes
from trainyard.objects import GVK, namespace_of
from trainyard.objects.resources import CONFIG_MAP, CRD, NAMESPACE
from trainyard.testing import ClusterHandle, local_cluster

pytestmark = [pytest.mark.network, pytest.mark.slow]

RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "Namespace": NAMESPACE,
    "ConfigMap": CONFIG_MAP,
    "Role": GVK(RBAC, "v1", "Role", "roles"),
    "RoleBinding": GVK(RBAC, "v1", "RoleBinding", "rolebindings"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterHandle]:
    with local_cluster() as handle:
        api = handle.cluster.api
        for definition in definitions():
            handle.run(api.create(CRD, "", definition))
        for obj in public_objects():
            handle.run(api.create(RESOURCES[obj["kind"]], namespace_of(obj), obj))
        for runtime in shipped_runtimes():
            handle.run(api.create(CLUSTER_TRAINING_RUNTIME, "", runtime))
        yield handle


@pytest.mark.parametrize("story", ["runtimes", "submissions"])
def test_the_trainer_client_works(story: str, cluster: ClusterHandle, tmp_path: Path) -> None:
    run_story(sdk_python("kubeflow"), "trainer_program.py", cluster.kubeconfig(tmp_path / "kubeconfig"), story)
