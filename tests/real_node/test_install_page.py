"""docs/install.md, typed on a real node: the operator's own image is installed in each way, and a job trains.

Everything is under the Pod Security Standard `restricted`: the operator by a check of its namespace, the job by its
namespace's label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real_node import install_page
from tests.real_node.conftest import import_image
from tests.real_node.image_pods import ENFORCE, RESTRICTED
from tests.real_node.install_page import Shell, Way
from tests.support import helm_3
from tests.support.container_images import OPERATOR_IMAGE, missing
from tests.support.control_plane_fixtures import create_namespace
from tests.support.real_node import RealNode
from tests.support.waiting import SLOW_PAUSE, until
from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json, encode, name_of, namespace_of

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.network]

JOB_IMAGE = "python:3.11"
TENSORFLOW_IMAGE, TEST_IMAGE = "trainyard/tf-train:1", "tensorflow/tensorflow:2.21.0"
PROGRAM = """
points = [(x / 50, 3 * x / 50 - 1) for x in range(-50, 51)]
slope = offset = 0.0
for step in range(500):
    errors = [(slope * x + offset - y, x) for x, y in points]
    slope -= 0.5 * sum(error * x for error, x in errors) / len(points)
    offset -= 0.5 * sum(error for error, _ in errors) / len(points)
assert abs(slope - 3) < 1e-3 and abs(offset + 1) < 1e-3, (slope, offset)
print("trained", flush=True)
"""
WAYS = install_page.ways()
HELM = next(way for way in WAYS if way.is_helm)


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    """One of its own: the page begins without our definitions, and deletes them."""
    if text := missing():
        pytest.skip(text)
    with RealNode() as node:
        import_image(node, OPERATOR_IMAGE)
        yield node


@pytest.fixture(scope="module")
def helm_programs(node: RealNode) -> dict[str, Path]:
    return {"Helm 4": node.programs["helm"], "Helm 3": helm_3.built(print)}


@pytest.fixture
def shell(node: RealNode, tmp_path: Path) -> Shell:
    """With Helm 4."""
    return Shell(node, tmp_path, node.programs["helm"])


def job_of(kind: Kind, name: str) -> Json:
    """One process that trains, as `restricted` wants it."""
    is_mxnet = kind is kinds.MXJOB
    container, field, role = (
        ("mxnet", "mxReplicaType", "WORKER") if is_mxnet else ("tensorflow", "tfReplicaType", "MASTER")
    )
    main: Json = {"name": container, "image": JOB_IMAGE, "securityContext": RESTRICTED}
    main["command"] = ["python3", "-c", PROGRAM]
    template = {"spec": {"containers": [main], "restartPolicy": "OnFailure"}}
    mode = {"jobMode": "local"} if is_mxnet else {}
    spec = {**mode, "replicaSpecs": [{"replicas": 1, field: role, "template": template}]}
    return {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": {"name": name}, "spec": spec}


def operators(node: RealNode) -> list[Json]:
    """The Deployments. There are no others."""
    _, deployments = node.ask("GET", "/apis/apps/v1/deployments")
    return list(deployments["items"])


def assert_ready_and_restricted(node: RealNode) -> None:
    (deployment,) = operators(node)
    namespace, name = namespace_of(deployment), name_of(deployment)
    node.kubectl("-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=100s")
    label = ["label", "--dry-run=server", "--overwrite", f"namespace/{namespace}", f"{ENFORCE}=restricted"]
    output = node.kubectl(*label)
    assert "Warning" not in output, output


def assert_trains(node: RealNode, kind: Kind, namespace: str) -> str:
    """A job of the kind succeeds in the namespace. Its path."""
    path = f"/apis/{kind.gvk.api_version}/namespaces/{namespace}/{kind.gvk.plural}"
    code, answer = node.ask("POST", path, job_of(kind, "first"))
    assert code == 201, answer
    succeeded = "--for=jsonpath={.status.state}=Succeeded"
    name = f"{kind.gvk.plural}.{kind.gvk.group}/first"
    node.kubectl("-n", namespace, "wait", name, succeeded, "--timeout=100s")
    _, pods = node.ask("GET", f"/api/v1/namespaces/{namespace}/pods")
    (pod,) = (pod for pod in pods["items"] if pod["spec"]["containers"][0]["image"] == JOB_IMAGE)
    assert node.kubectl("-n", namespace, "logs", name_of(pod)) == "trained\n"
    return f"{path}/first"


@contextmanager
def restricted_namespace(node: RealNode, name: str) -> Iterator[str]:
    create_namespace(node, name, **{ENFORCE: "restricted"})
    try:
        yield name
    finally:
        node.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def typed_afterwards(shell: Shell, *commands: str) -> Iterator[None]:
    """Also after a failure: the next test installs again."""
    try:
        yield
    finally:
        for command in commands:
            shell.type(command)


@pytest.mark.parametrize(
    ("way", "helm"),
    [(way, helm) for way in WAYS for helm in (("Helm 4", "Helm 3") if way.is_helm else ("Helm 4",))],
    ids=lambda value: value if isinstance(value, str) else value.install[0].replace("/", ""),
)
def test_each_way_installs_an_operator_that_trains_and_uninstalls_no_job(
    node: RealNode, helm_programs: dict[str, Path], tmp_path: Path, way: Way, helm: str
) -> None:
    shell = Shell(node, tmp_path, helm_programs[helm])
    kind = kinds.MXJOB if "mx_operator" in way.uninstall else kinds.TFJOB
    with typed_afterwards(shell, way.delete_definitions):
        for command in way.install:
            shell.type(command)
        assert_ready_and_restricted(node)
        with restricted_namespace(node, f"way-{WAYS.index(way)}-{helm[-1]}") as namespace:
            job = assert_trains(node, kind, namespace)
            shell.type(way.uninstall)
            assert operators(node) == [] and node.ask("GET", job)[0] == 200
    assert node.ask("GET", job)[0] == 404


@pytest.mark.parametrize("helm", ["Helm 4", "Helm 3"])
def test_helm_test_trains_where_the_namespace_enforces_restricted(
    node: RealNode, helm_programs: dict[str, Path], tmp_path: Path, helm: str
) -> None:
    """The image of our Dockerfile has the name of the public one, which no registry serves here: TensorFlow is the
    same."""
    import_image(node, TENSORFLOW_IMAGE)
    node.tag_image(TENSORFLOW_IMAGE, TEST_IMAGE)
    shell = Shell(node, tmp_path, helm_programs[helm])
    install, get_pods, test = install_page.block("helm test")
    label = "kubectl label namespace/default"
    with typed_afterwards(shell, HELM.uninstall, HELM.delete_definitions, f"{label} {ENFORCE}-"):
        shell.type(f"{label} {ENFORCE}=restricted")
        shell.type(install)
        assert_ready_and_restricted(node)
        assert re.search(r"^tf-job-operator-\S+ +1/1 +Running", shell.type(get_pods), re.MULTILINE)
        assert re.search(r"^Phase: +Succeeded$", shell.type(test), re.MULTILINE)
        assert "ok: TfJob tf-job-tfjob-test Succeeded" in node.kubectl("logs", "tf-job-tfjob-test")


@pytest.mark.parametrize("line", install_page.block("--namespaced"))
def test_each_line_of_trainyard_manifests_installs_an_operator(node: RealNode, shell: Shell, line: str) -> None:
    if "registry.example.com" in line:
        node.tag_image(OPERATOR_IMAGE, "registry.example.com/trainyard:0.1.0")
    uninstall = f"{line} --part operator | kubectl delete --cascade=foreground -f -"
    with typed_afterwards(shell, uninstall, f"{line} --part definitions | kubectl delete -f -"):
        shell.type(f"{line} | kubectl apply -f -")
        assert_ready_and_restricted(node)
        namespace = namespace_of(operators(node)[0])
        node.kubectl("label", f"namespace/{namespace}", f"{ENFORCE}=restricted")
        assert_trains(node, kinds.TFJOB, namespace)


@pytest.mark.parametrize("helm", ["Helm 4", "Helm 3"])
def test_a_chart_is_installed_where_kubectl_owns_the_definitions(
    node: RealNode, helm_programs: dict[str, Path], tmp_path: Path, helm: str
) -> None:
    """Helm 4 refuses without the option that the page names. Helm 3 installs with it and without."""
    shell = Shell(node, tmp_path, helm_programs[helm])
    shell.type(install_page.sentence_command("kubectl apply -f charts/trainyard/crds/"))
    with typed_afterwards(shell, HELM.uninstall, HELM.delete_definitions):
        completed = shell.run(HELM.install[0])
        if helm == "Helm 4":
            assert completed.returncode and 'conflict with "kubectl-client-side-apply"' in completed.stderr
        else:
            assert completed.returncode == 0, completed.stderr
            shell.type(HELM.uninstall)
        shell.type(install_page.sentence_command("helm install tf-job charts/trainyard --wait --skip-crds"))
        assert_ready_and_restricted(node)


def test_accelerators_of_a_config_map_reach_the_pods(node: RealNode, shell: Shell) -> None:
    config = {"accelerators": {"example.com/chip": {"envVars": [{"name": "CHIP", "value": "yes"}]}}}
    (shell.folder / "controller_config_file.yaml").write_bytes(encode(config))
    create, install = install_page.block("create configmap")
    shell.type(create)
    remove = "kubectl delete configmap tf-job-operator-config"
    with (
        typed_afterwards(shell, remove, HELM.uninstall, HELM.delete_definitions),
        restricted_namespace(node, "accelerated") as namespace,
    ):
        shell.type(install)
        assert_ready_and_restricted(node)
        job = job_of(kinds.TFJOB, "first")
        main = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
        main["resources"] = {"limits": {"example.com/chip": 1}}
        gvk = kinds.TFJOB.gvk
        path = f"/apis/{gvk.api_version}/namespaces/{namespace}/{gvk.plural}"
        assert node.ask("POST", path, job)[0] == 201
        pods = f"/api/v1/namespaces/{namespace}/pods"
        (pod,) = until(lambda: node.ask("GET", pods)[1]["items"], "the job has a pod", pause=SLOW_PAUSE)
        assert {"name": "CHIP", "value": "yes"} in pod["spec"]["containers"][0]["env"]
