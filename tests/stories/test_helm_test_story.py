"""What `helm test` runs, run as its pod: it trains a small TfJob with real TensorFlow and says how that ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.stories.harness import POD, TFJOB, Harness
from tools.generate_manifests import ROOT
from trainyard.app.local import LocalClusterOptions
from trainyard.objects import GVK, Json

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

RULES = {"apiGroups": ["tensorflow.org"], "resources": ["tfjobs"], "verbs": ["get", "create", "delete"]}
RBAC = "rbac.authorization.k8s.io"
IMAGE = str(yaml.safe_load((ROOT / "charts/trainyard/values.yaml").read_text())["test"]["image"])


@pytest.fixture
def network() -> str:
    """Where a pod finds its service account at the standard path."""
    return "namespace"


@pytest.fixture
def options(place: Path, network: str) -> LocalClusterOptions:
    """The images that are shipped, real TensorFlow among them."""
    return LocalClusterOptions(network=network, say=list[str]().append, parent=place)


async def account(harness: Harness) -> None:
    """The ServiceAccount of the test, with the rights in the chart."""
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "tester"}
    subject = {"kind": "ServiceAccount", "name": "tester", "namespace": harness.namespace}
    for gvk, rest in (
        (GVK("", "v1", "ServiceAccount", "serviceaccounts"), {}),
        (GVK(RBAC, "v1", "Role", "roles"), {"rules": [RULES]}),
        (GVK(RBAC, "v1", "RoleBinding", "rolebindings"), {"roleRef": reference, "subjects": [subject]}),
    ):
        obj = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": "tester"}, **rest}
        await harness.api.create(gvk, harness.namespace, obj)


def pod(namespace: str) -> Json:
    values = {"JOB": "tf-job-tfjob-test", "IMAGE": IMAGE, "SECONDS": "120", "MY_POD_NAMESPACE": namespace}
    container = {
        "name": "test",
        "image": IMAGE,
        "command": ["python3", "/test/train.py"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "volumeMounts": [{"name": "test", "mountPath": "/test"}],
    }
    volume = {"name": "test", "hostPath": {"path": str(ROOT / "charts/trainyard/files")}}
    spec = {
        "containers": [container],
        "volumes": [volume],
        "restartPolicy": "Never",
        "serviceAccountName": "tester",
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tester"}, "spec": spec}


def test_the_chart_gives_the_helm_test_its_permissions() -> None:
    text = (ROOT / "charts/trainyard/templates/tests/train.yaml").read_text()
    rules = text.partition("rules:\n")[2].partition("---")[0]
    assert yaml.safe_load(rules) == [RULES]


async def test_the_helm_test_trains_a_small_job_and_deletes_it(harness: Harness) -> None:
    harness.patience = 120
    await account(harness)
    await harness.api.create(POD, harness.namespace, pod(harness.namespace))
    ended = await harness.until(lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), POD, "tester")
    answer = b"".join([chunk async for chunk in harness.api.logs(harness.namespace, "tester", "test")]).decode()
    assert ended["status"]["phase"] == "Succeeded", answer
    assert answer == "ok: TfJob tf-job-tfjob-test Succeeded\n"
    assert (await harness.api.list(TFJOB, harness.namespace))["items"] == []
