"""A node that is drained, and one whose kubelet is gone for longer than Kubernetes waits for it. No other node runs
pods: these stories come one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real_node.stage import Stage, container, pytorch_job, template, until
from tests.support.real_node import RealNode
from tests.support.real_node_flags import NAME
from trainyard.kinds.kubeflow_v1.pods import JOB_NAME
from trainyard.objects import Json, is_condition_true, name_of, uid_of

pytestmark = [pytest.mark.node, pytest.mark.slow]


def sleeping(name: str, **pod: Any) -> Json:
    """A job of one replica; exit codes from 128 on are retried."""
    return pytorch_job(name, template(container("pytorch", "sleep", "100000"), **pod), restart="ExitCode")


def node(real_node: RealNode) -> Json:
    return real_node.ask("GET", f"/api/v1/nodes/{NAME}")[1]


def is_ready(real_node: RealNode) -> bool:
    stored = node(real_node)
    return is_condition_true(stored["status"]["conditions"], "Ready") and not stored["spec"].get("taints")


@pytest.fixture(autouse=True)
def whole(real_node: RealNode) -> Iterator[None]:
    """The node is as before when a story ends, however it ends."""
    yield
    real_node.start("kubelet")
    real_node.kubectl("uncordon", NAME)
    until(lambda: is_ready(real_node), f"{NAME} is ready")


@pytest.fixture
def spare(real_node: RealNode) -> Iterator[None]:
    """A second node, which takes no pods: while no node at all is ready, Kubernetes evicts nothing."""
    real_node.add_node("spare")
    real_node.kubectl("cordon", "spare")
    yield
    real_node.lose_node("spare")
    real_node.kubectl("delete", "node", "spare")


def test_a_drained_job_goes_on_when_the_node_is_back_and_the_drain_is_no_failure(
    stage: Stage, real_node: RealNode
) -> None:
    job = sleeping("drained", terminationGracePeriodSeconds=5)  # with 0 the pod may be gone before the operator looks
    stage.create(job)
    first = stage.until_running(job, 1)
    real_node.kubectl("drain", NAME, "--force", f"--pod-selector={JOB_NAME}=drained", "--timeout=100s")
    until(
        lambda: stage.trainyard("why", "drained").stdout,
        "why says that the node is cordoned",
        accept=lambda text: "kubectl uncordon" in " ".join(text.split()),
    )
    until(
        lambda: stage.trainyard("events", "drained").stdout,
        "an event says what has ended the pod",
        accept=lambda text: "(EvictionByEvictionAPI: Eviction API: evicting)" in " ".join(text.split()),
    )
    real_node.kubectl("uncordon", NAME)
    stage.until_running(job, 1, but=first)
    assert not stage.job(job)["status"].get("restarts")


@pytest.mark.nightly
@pytest.mark.usefixtures("spare")
def test_a_kubelet_that_is_gone_takes_only_the_pods_that_do_not_tolerate_it(stage: Stage, real_node: RealNode) -> None:
    """The pod of one job is deleted, and stays until the kubelet is back: no second one runs meanwhile. That of the
    other runs on all the time."""
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    # With a grace period of 0 the API server would delete the pod without the kubelet.
    impatient = sleeping(
        "impatient", tolerations=[{**unreachable, "tolerationSeconds": 1}], terminationGracePeriodSeconds=1
    )
    patient = sleeping("patient", tolerations=[unreachable])
    stage.create(impatient, patient)
    before = {name_of(job): stage.until_running(job, 1) for job in (impatient, patient)}
    real_node.stop("kubelet")
    for name, words in (
        ("impatient", ["DeletionByTaintManager", "its pod does not end"]),
        ("patient", [f"its node {NAME} is not ready"]),
    ):
        until(
            lambda name=name: stage.trainyard("why", name).stdout,
            f"why {name} says {words}",
            accept=lambda text, words=words: all(word in " ".join(text.split()) for word in words),
            context=lambda name=name: stage.kubectl("get", "pods", "-o", "yaml"),
        )
        print(stage.trainyard("why", name).stdout)
        logs = stage.trainyard("logs", name)
        assert "its output cannot be shown" in logs.stderr and "no output yet" not in logs.stderr, logs.stderr
    assert uids(stage.pods(impatient)) == uids(before["impatient"])
    real_node.start("kubelet")
    stage.until_running(impatient, 1, but=before["impatient"])
    assert uids(stage.pods(patient)) == uids(before["patient"])
    for job in (impatient, patient):
        assert not stage.job(job)["status"].get("restarts")


def uids(pods: dict[str, Json]) -> dict[str, str]:
    return {name: uid_of(pod) for name, pod in pods.items()}
