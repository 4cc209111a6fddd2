"""What the documents tell people to type, with the real kubectl and helm against a real API server."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.control_plane import ControlPlane
from tools.generate_manifests import ROOT
from trainyard import kinds
from trainyard.app import installation, rights
from trainyard.app.installation import Install, Names
from trainyard.cli.install_manifests import to_yaml
from trainyard.objects import Json

pytestmark = pytest.mark.cluster

CHART = str(ROOT / "charts" / "trainyard")
PLAIN = str(ROOT / "deploy")
KUSTOMIZE = str(ROOT / "config" / "default")
DEFINITIONS = {
    PLAIN: str(ROOT / "deploy/definitions"),
    KUSTOMIZE: str(ROOT / "config/definitions"),
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One of its own: definitions and cluster roles come and go."""
    with ControlPlane() as made:
        yield made


def chart(plane: ControlPlane, *values: str, name: str = "tf-job") -> list[Json]:
    """What Helm makes of it."""
    sets = [word for value in values for word in ("--set", value)]
    ran = plane.run("helm", "template", name, CHART, *sets)
    assert ran.returncode == 0, ran.stderr
    return [
        one
        for one in yaml.load_all(ran.stdout, Loader=yaml.CSafeLoader)
        if one and "helm.sh/hook" not in annotations_of(one)
    ]


def annotations_of(obj: Json) -> Json:
    return obj["metadata"].get("annotations") or {}


def of(objects: list[Json], kind: str) -> list[Json]:
    return [obj for obj in objects if obj["kind"] == kind]


def test_plain_files_are_created_and_what_they_deploy_is_admitted(plane: ControlPlane) -> None:
    """The ChainerJob README: kubectl create -f deploy/"""
    output = plane.kubectl("create", "-f", DEFINITIONS[PLAIN], "-f", PLAIN)
    assert "namespace/chainer-operator created" in output and "Warning" not in output
    try:
        plane.wait_for("/api/v1/namespaces/chainer-operator/serviceaccounts/default")
        plane.kubectl("label", "namespace/chainer-operator", "pod-security.kubernetes.io/enforce=restricted")
        plane.kubectl("rollout", "restart", "-n", "chainer-operator", "deployment/chainer-operator")
        made = "--for=jsonpath={.status.updatedReplicas}=1"
        plane.kubectl("wait", "-n", "chainer-operator", "deployment/chainer-operator", made, "--timeout=60s")
        pods = yaml.safe_load(plane.kubectl("get", "pods", "-n", "chainer-operator", "-o", "yaml"))["items"]
        assert pods and {pod["spec"]["serviceAccountName"] for pod in pods} == {"chainer-operator"}
    finally:
        job = ROOT / "examples" / "tf_job.yaml"
        plane.wait_for("/apis/tensorflow.org/v1alpha1/tfjobs")
        plane.kubectl("create", "-n", "chainer-operator", "-f", str(job))
        plane.kubectl("delete", "--cascade=foreground", "-f", PLAIN, "--wait=true")
        assert "example-job" in plane.kubectl("get", "tfjobs", "-n", "chainer-operator", "-o", "name")
        plane.kubectl("delete", "-f", DEFINITIONS[PLAIN], "--wait=true")


def test_kustomize_applies_twice_and_then_there_is_nothing_to_do(plane: ControlPlane) -> None:
    """The ElasticJob README: kubectl apply -k config/default"""
    assert "namespace/elastic-job created" in plane.kubectl("apply", "-k", DEFINITIONS[KUSTOMIZE])
    output = plane.kubectl("apply", "-k", KUSTOMIZE)
    assert "deployment.apps/elastic-job-k8s-controller created" in output
    try:
        again = plane.kubectl("apply", "-k", KUSTOMIZE)
        assert {line.split()[-1] for line in again.splitlines()} == {"unchanged"}
    finally:
        plane.kubectl("delete", "-k", KUSTOMIZE, "--wait=true")
        left = plane.kubectl("get", "crd,namespaces", "-o", "name").split()
        assert "namespace/elastic-job" in left and any("elasticjobs" in name for name in left)
        plane.kubectl("delete", "-k", DEFINITIONS[KUSTOMIZE], "--wait=true")


def test_the_chart_is_the_installation_that_manifests_prints(plane: ControlPlane) -> None:
    objects = chart(plane, "cloud=gke")
    names = Names("tf-job-operator", "tf-job-operator", "tf-job-operator", *["tf-job-operator-leader-election"] * 2)
    expected = Install(namespace="default", names=names, config=installation.config_of("gke"))
    for kind in ("ClusterRole", "Role"):
        assert [one["rules"] for one in of(objects, kind)] == [
            one["rules"] for one in of([*installation.access(expected), *installation.user_roles()], kind)
        ]
    assert yaml.safe_load(of(objects, "ConfigMap")[0]["data"][installation.CONFIG_FILE]) == yaml.safe_load(
        expected.config
    )
    ours, theirs = installation.deployment(expected)["spec"], of(objects, "Deployment")[0]["spec"]
    del theirs["template"]["metadata"]["annotations"], theirs["template"]["spec"]["containers"][0]["imagePullPolicy"]
    assert theirs == ours


@pytest.mark.parametrize(
    ("values", "kinds_of_objects"),
    [
        ((), {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"}),
        (("rbac.install=false",), {"Deployment"}),
        (("scope=namespace", "cloud=azure"), {"ServiceAccount", "Role", "RoleBinding", "Deployment", "ConfigMap"}),
    ],
)
def test_values_say_what_is_made(plane: ControlPlane, values: tuple[str, ...], kinds_of_objects: set[str]) -> None:
    assert {one["kind"] for one in chart(plane, *values)} == kinds_of_objects


def test_chainer_job_is_opted_into(plane: ControlPlane) -> None:
    objects = chart(plane, "chainerjob=true", "rbac.userRoles=false")
    roles = {one["metadata"]["name"]: one["rules"] for one in of(objects, "ClusterRole")}
    assert roles["tf-job-operator-chainerjob"] == rights.rules(rights.opt_in_rights(kinds.KINDS))
    assert set(roles) == {"tf-job-operator", "tf-job-operator-chainerjob"}


@pytest.mark.parametrize("value", ["cloud=aws", "rbac.install=maybe", "replicas=-1", "rbac.instal=true"])
def test_a_wrong_value_is_refused_by_its_path(plane: ControlPlane, value: str) -> None:
    ran = plane.run("helm", "template", "tf-job", CHART, "--set", value)
    assert ran.returncode != 0 and value.split("=", maxsplit=1)[0].split(".", maxsplit=1)[0] in ran.stderr


def test_helm_lints_installs_upgrades_and_rolls_back_and_jobs_stay(plane: ControlPlane) -> None:
    assert plane.run("helm", "lint", "--strict", CHART).returncode == 0
    plane.kubectl("create", "namespace", "helmed")
    for words in (
        ("install", "tf-job", CHART, "--set", "rbac.install=true,cloud=gke"),
        ("upgrade", "tf-job", CHART, "--set", "cloud=azure"),
    ):
        ran = plane.run("helm", *words, "-n", "helmed")
        assert ran.returncode == 0, ran.stderr
    job = ROOT / "examples" / "tf_job.yaml"
    plane.kubectl("create", "-n", "helmed", "-f", str(job))
    before = plane.kubectl("get", "tfjobs", "-n", "helmed", "-o", "jsonpath={.items[*].metadata.uid}")
    for command in (("rollback", "tf-job", "1"), ("uninstall", "tf-job")):
        ran = plane.run("helm", *command, "-n", "helmed")
        assert ran.returncode == 0, ran.stderr
    assert plane.kubectl("get", "tfjobs", "-n", "helmed", "-o", "jsonpath={.items[*].metadata.uid}") == before != ""


def test_a_config_map_that_was_there_first_is_used(plane: ControlPlane, tmp_path: Path) -> None:
    """The TfJob README: create the ConfigMap, then install without a cloud. The order matters."""
    config = tmp_path / installation.CONFIG_FILE
    config.write_text("accelerators: {}\n")
    plane.kubectl("create", "namespace", "ordered")
    plane.kubectl("create", "-n", "ordered", "configmap", "tf-job-operator-config", "--from-file", str(config))
    ran = plane.run("helm", "install", "own", CHART, "-n", "ordered", "--set", "name=own")
    assert ran.returncode == 0, ran.stderr
    document = yaml.safe_load(plane.kubectl("get", "-n", "ordered", "deployment", "own", "-o", "yaml"))
    assert (
        f"--controller-config-file={installation.CONFIG_FOLDER}/{installation.CONFIG_FILE}"
        in (document["spec"]["template"]["spec"]["containers"][0]["args"])
    )
    assert plane.run("helm", "uninstall", "own", "-n", "ordered").returncode == 0


def test_a_namespaced_installation_is_applied_and_its_account_may_do_nothing_elsewhere(plane: ControlPlane) -> None:
    objects = installation.objects(Install(namespace="team-a", namespaced=True))
    plane.kubectl("apply", "-f", "-", stdin=to_yaml(objects))
    try:
        who = "--as=system:serviceaccount:team-a:trainyard-operator"
        end = time.monotonic() + 30  # the API server learns of a binding in a moment
        while plane.run("kubectl", "auth", "can-i", "create", "jobs", "-n", "team-a", who).stdout.strip() != "yes":
            assert time.monotonic() < end
        assert plane.run("kubectl", "auth", "can-i", "create", "jobs", "-n", "default", who).stdout.strip() == "no"
        assert plane.run("kubectl", "auth", "can-i", "get", "secrets", "-n", "team-a", who).stdout.strip() == "no"
    finally:
        plane.kubectl("delete", "-f", "-", "--wait=false", stdin=to_yaml(objects))


USER_ROLES = {
    "deploy": lambda plane: plane.kubectl("apply", "-f", str(ROOT / "deploy/definitions/user-roles.yaml")),
    "config": lambda plane: plane.kubectl("apply", "-f", str(ROOT / "config/definitions/user-roles.yaml")),
    "chart": lambda plane: plane.kubectl("apply", "-f", "-", stdin=to_yaml(chart(plane))),
}
MAY = {
    "admin": {*rights.USER_VERBS["edit"]},
    "edit": {*rights.USER_VERBS["edit"]},
    "view": {"get", "list", "watch"},
}


def may(plane: ControlPlane, user: str, verb: str, resource: str, subresource: str = "") -> bool:
    """Whether a user may do this in the namespace `shared`, as the API server says."""
    plural, _, group = resource.partition(".")
    where = {"namespace": "shared", "group": group, "resource": plural, "subresource": subresource, "verb": verb}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    body = {**review, "spec": {"user": user, "resourceAttributes": where}}
    code, answer = plane.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert code == 201, answer
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("way", USER_ROLES)
def test_an_admin_of_a_namespace_may_edit_jobs_and_a_viewer_may_read_them(plane: ControlPlane, way: str) -> None:
    resources = [f"{kind.gvk.plural}.{kind.gvk.group}" for kind in kinds.ALL]
    plane.kubectl("create", "namespace", "shared")
    for role in MAY:
        words = ("--clusterrole", role, "--user", role, "-n", "shared")
        plane.kubectl("create", "rolebinding", role, *words)
    assert not any(may(plane, role, "get", resources[0]) for role in MAY)
    USER_ROLES[way](plane)
    try:
        last = resources[-1]
        plane.wait_until(lambda: all(may(plane, role, "get", last) for role in MAY), "the roles were aggregated")
        for role, verbs in MAY.items():
            for resource in resources:
                assert {verb for verb in rights.USER_VERBS["edit"] if may(plane, role, verb, resource)} == verbs
                assert may(plane, role, "get", resource, "status")
                assert not may(plane, role, "patch", resource, "status")  # only the operator writes it
        for kind in kinds.ALL:
            if kind.api.scale:
                name = f"{kind.gvk.plural}.{kind.gvk.group}"
                assert [may(plane, role, "patch", name, "scale") for role in MAY] == [True, True, False]
    finally:
        plane.kubectl("delete", "clusterroles", "-l", "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-edit")
        plane.kubectl("delete", "clusterroles", "-l", "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-view")
        plane.wait_until(lambda: not may(plane, "admin", "get", resources[-1]), "the rights were gone")
        plane.kubectl("delete", "namespace", "shared")


def test_short_names_and_plurals_clash_with_nothing_of_kubernetes(plane: ControlPlane) -> None:
    """Against the discovery of a real API server."""
    lines = plane.kubectl("api-resources", "--no-headers").splitlines()
    ours = {kind.gvk.group for kind in kinds.ALL}
    taken: set[str] = set()
    for line in lines:
        cells = line.split()
        if cells[-3].split("/")[0] not in ours:
            taken |= {cells[0], *(cells[1].split(",") if len(cells) == 5 else ())}
    assert {"pods", "po", "jobs", "deploy"} <= taken
    for kind in kinds.KINDS:
        assert not taken & {kind.gvk.plural, kind.api.singular, *kind.api.short_names}


def test_a_copy_of_the_chart_can_be_packed(plane: ControlPlane, tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "trainyard")
    ran = plane.run("helm", "package", str(tmp_path / "trainyard"), "-d", str(tmp_path))
    assert ran.returncode == 0 and list(tmp_path.glob("trainyard-*.tgz")), ran.stderr
