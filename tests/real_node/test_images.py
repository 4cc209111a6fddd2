"""Images of the Dockerfiles on a real node under the Pod Security Standard `restricted`, and jobs of the examples.

`make container-images-page` starts every image so; here those that are small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.real_node import image_pods
from tests.real_node.conftest import import_image
from tests.real_node.image_pods import ENFORCE, PAGE, RESTRICTED
from tests.support.container_images import ROOT
from tests.support.control_plane_fixtures import create_namespace
from tests.support.real_node import RealNode
from trainyard import kinds
from trainyard.app.install import installation
from trainyard.objects import Json, encode

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.network]


@pytest.fixture(scope="module")
def operator(installed: RealNode, operator_image: None) -> Iterator[None]:
    """It serves every kind, as a pod of its image."""
    install = installation.Install(namespace="operator", kinds=kinds.KINDS)
    create_namespace(installed, install.namespace, **{ENFORCE: "restricted"})
    document = encode({"apiVersion": "v1", "kind": "List", "items": installation.operator_objects(install)}).decode()
    installed.kubectl("apply", "-f", "-", stdin=document)
    deployment = f"deployment/{install.names.operator}"
    installed.kubectl("-n", install.namespace, "rollout", "status", deployment, "--timeout=100s")
    yield
    installed.kubectl("delete", "--cascade=foreground", "-f", "-", stdin=document)
    installed.kubectl("delete", "namespace", install.namespace)


@pytest.mark.parametrize("image", ["trainyard/mpi-train:1", "trainyard/mpi-ssh-train:1"])
def test_an_image_works_as_an_ordinary_user_without_capabilities(
    real_node: RealNode, namespace: str, image: str
) -> None:
    import_image(real_node, image)
    real_node.kubectl("label", f"namespace/{namespace}", f"{ENFORCE}=restricted")
    _, memory = image_pods.works(real_node, namespace, image)
    assert memory > 1_000_000


def test_an_mpijob_trains_in_its_own_image_under_restricted(
    real_node: RealNode, operator: None, namespace: str
) -> None:
    """The example, with the tag of the image."""
    job = example("mpi_job.yaml")
    for container in containers(job):
        container["securityContext"] = RESTRICTED
    assert_trains_in_both_workers(real_node, namespace, job, "trainyard/mpi-train:1")


def test_an_mpijob_over_ssh_trains_as_an_ordinary_user_under_restricted(
    real_node: RealNode, operator: None, namespace: str
) -> None:
    """The example with the fields that the page adds to it."""
    job = with_fields(example("mpi_job_v2beta1.yaml"), yaml.safe_load(page_block("sshAuthMountPath")))
    assert_trains_in_both_workers(real_node, namespace, job, "trainyard/mpi-ssh-train:1")


def assert_trains_in_both_workers(node: RealNode, namespace: str, job: Json, image: str) -> None:
    import_image(node, image)
    node.kubectl("label", f"namespace/{namespace}", f"{ENFORCE}=restricted")
    for container in containers(job):
        container["image"] = image
    node.kubectl("-n", namespace, "create", "-f", "-", stdin=encode(job).decode())
    name = "mpijobs.kubeflow.org/mpi-train"
    node.kubectl("-n", namespace, "wait", name, "--for=condition=Succeeded", "--timeout=100s")
    names = node.kubectl("-n", namespace, "get", "pods", "-o", "name").split()
    (launcher,) = (name for name in names if "-launcher" in name)
    log = node.kubectl("-n", namespace, "logs", launcher)
    assert {"rank 0 of 2 on mpi-train-worker-0", "rank 1 of 2 on mpi-train-worker-1"} <= {
        line.partition(":")[0] for line in log.splitlines()
    }


def page_block(containing: str) -> str:
    """The block of YAML of the page that has this text."""
    (block,) = re.findall(
        rf"^```yaml\n((?:(?!^```).)*{containing}.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return str(block)


def with_fields(value: Any, fields: Any) -> Any:
    """The value with these fields added; of a list the items by their order."""
    if isinstance(fields, dict):
        return {**value, **{name: with_fields(value.get(name, {}), field) for name, field in fields.items()}}
    if isinstance(fields, list) and fields and isinstance(fields[0], dict):
        return [with_fields(item, more) for item, more in zip(value, fields, strict=True)]
    return fields


def example(name: str) -> Json:
    job: Json = yaml.safe_load((ROOT / "examples" / name).read_text())
    return job


def containers(job: Json) -> list[Any]:
    roles = job["spec"]["mpiReplicaSpecs"].values()
    return [container for role in roles for container in role["template"]["spec"]["containers"]]
