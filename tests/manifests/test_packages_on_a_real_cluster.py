"""The documented install commands, with the real kubectl and helm against a real API server."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until
from tools import monitoring
from tools.generate_manifests import ROOT
from trainyard import kinds
from trainyard.app.install import installation, operator_rbac
from trainyard.app.install.installation import Install, Names
from trainyard.cli.install_manifests import to_yaml
from trainyard.cli.operator import operator
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
    with ControlPlane() as control_plane:
        yield control_plane


def chart(plane: ControlPlane, *values: str, name: str = "tf-job") -> list[Json]:
    """What Helm makes of it."""
    sets = [argument for value in values for argument in ("--set", value)]
    completed = plane.run("helm", "template", name, CHART, *sets)
    assert completed.returncode == 0, completed.stderr
    return [
        document
        for document in yaml.load_all(completed.stdout, Loader=yaml.CSafeLoader)
        if document and "helm.sh/hook" not in annotations_of(document)
    ]


def annotations_of(obj: Json) -> Json:
    return obj["metadata"].get("annotations") or {}


def of(objects: list[Json], kind: str) -> list[Json]:
    return [obj for obj in objects if obj["kind"] == kind]


def test_plain_files_are_applied_and_their_deployment_is_admitted(plane: ControlPlane) -> None:
    """The ChainerJob README: kubectl create -f deploy/"""
    output = plane.kubectl("create", "-f", DEFINITIONS[PLAIN], "-f", PLAIN)
    assert "namespace/chainer-operator created" in output and "Warning" not in output
    try:
        plane.wait_for("/api/v1/namespaces/chainer-operator/serviceaccounts/default")
        plane.kubectl("label", "namespace/chainer-operator", "pod-security.kubernetes.io/enforce=restricted")
        plane.kubectl("rollout", "restart", "-n", "chainer-operator", "deployment/chainer-operator")
        condition = "--for=jsonpath={.status.updatedReplicas}=1"
        plane.kubectl("wait", "-n", "chainer-operator", "deployment/chainer-operator", condition, "--timeout=60s")
        pods = yaml.safe_load(plane.kubectl("get", "pods", "-n", "chainer-operator", "-o", "yaml"))["items"]
        assert pods and {pod["spec"]["serviceAccountName"] for pod in pods} == {"chainer-operator"}
    finally:
        job = ROOT / "examples" / "tf_job.yaml"
        plane.wait_for("/apis/tensorflow.org/v1alpha1/tfjobs")
        plane.kubectl("create", "-n", "chainer-operator", "-f", str(job))
        plane.kubectl("delete", "--cascade=foreground", "-f", PLAIN, "--wait=true")
        assert "example-job" in plane.kubectl("get", "tfjobs", "-n", "chainer-operator", "-o", "name")
        plane.kubectl("delete", "-f", DEFINITIONS[PLAIN], "--wait=true")


def test_a_second_kustomize_apply_changes_nothing(plane: ControlPlane) -> None:
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
        assert [role["rules"] for role in of(objects, kind)] == [
            role["rules"] for role in of([*installation.access(expected), *installation.user_roles()], kind)
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
def test_chart_values_select_the_objects(
    plane: ControlPlane, values: tuple[str, ...], kinds_of_objects: set[str]
) -> None:
    assert {obj["kind"] for obj in chart(plane, *values)} == kinds_of_objects


def test_chainer_job_is_opted_into(plane: ControlPlane) -> None:
    objects = chart(plane, "chainerjob=true", "rbac.userRoles=false")
    roles = {role["metadata"]["name"]: role["rules"] for role in of(objects, "ClusterRole")}
    assert roles["tf-job-operator-jobs-with-roles"] == operator_rbac.rules(
        operator_rbac.opt_in_permissions([kinds.CHAINERJOB])
    )
    assert set(roles) == {"tf-job-operator", "tf-job-operator-jobs-with-roles"}


ARGUMENTS = {
    "kinds={MxJob,TfJob}": "--kinds=TfJob,MxJob",
    "kinds={MxJob},chainerjob=true": "--kinds=MxJob,ChainerJob",
    "log.format=json": "--log-format=json",
    "log.level=debug": "--log-level=debug",
    "nodeLostTimeout=300": "--node-lost-timeout=300",
    "lease.duration=15": "--lease-duration=15",
    "lease.namespace=kube-system": "--lease-namespace=kube-system",
    "gangScheduler=volcano": "--gang-scheduler-name=volcano",
    "trainjobMode=pods": "--trainjob-mode=pods",
    "clusterDomain=corp.example": "--cluster-domain=corp.example",
    "scope=namespace": "--namespace=default",
    "extraArgs={--context=c}": "--context=c",
}


def operator_container(objects: list[Json]) -> Json:
    container: Json = of(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize("value", ARGUMENTS)
def test_a_value_becomes_an_argument_that_the_operator_takes(plane: ControlPlane, value: str) -> None:
    args = operator_container(chart(plane, value))["args"]
    assert ARGUMENTS[value] in args and ARGUMENTS[value] not in operator_container(chart(plane))["args"]
    operator.make_context("operator", list(args))


@pytest.mark.parametrize("kind", [kind.gvk.kind for kind in kinds.KINDS])
def test_an_operator_of_one_kind_has_the_rights_for_that_kind_alone(plane: ControlPlane, kind: str) -> None:
    objects = chart(plane, f"kinds={{{kind}}}", "rbac.userRoles=false")
    (role,) = of(objects, "ClusterRole")
    assert role["rules"] == operator_rbac.rules(
        operator_rbac.permissions_of(next(served for served in kinds.KINDS if served.gvk.kind == kind))
    )
    assert f"--kinds={kind}" in operator_container(objects)["args"]


def test_chart_values_of_the_pod_are_in_its_template(plane: ControlPlane) -> None:
    objects = chart(
        plane,
        "labels.team=ml,annotations.a=b,podLabels.x=y,podAnnotations.c=d,serviceAccountAnnotations.e=f",
        "priorityClassName=high,podAntiAffinity=required,topologySpreadConstraints[0].maxSkew=1",
        "extraEnv[0].name=PYTHONFAULTHANDLER,extraEnv[0].value=x,podDisruptionBudget.enabled=true",
    )
    for obj in objects:
        assert obj["metadata"]["labels"]["team"] == "ml" and annotations_of(obj)["a"] == "b"
    (deployment,) = of(objects, "Deployment")
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "tf-job-operator", "x": "y", "team": "ml"}
    assert annotations_of(template)["c"] == "d" and annotations_of(of(objects, "ServiceAccount")[0])["e"] == "f"
    selected = {"matchLabels": deployment["spec"]["selector"]["matchLabels"]}
    pod = template["spec"]
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selected}
    assert pod["topologySpreadConstraints"] == [{"maxSkew": 1, "labelSelector": selected}]
    assert pod["priorityClassName"] == "high"
    assert {"name": "PYTHONFAULTHANDLER", "value": "x"} in pod["containers"][0]["env"]
    assert of(objects, "PodDisruptionBudget")[0]["spec"] == {"minAvailable": 1, "selector": selected}


def test_monitoring_is_that_of_the_files(plane: ControlPlane) -> None:
    assert not {obj["kind"] for obj in chart(plane)} & {"PodMonitor", "PrometheusRule"}
    on = ",".join(f"monitoring.{part}.enabled=true" for part in ("podMonitor", "alerts", "dashboard"))
    objects = chart(plane, on, "monitoring.alerts.runbook=https://example.com/runbook")
    (monitor,), (rule,) = of(objects, "PodMonitor"), of(objects, "PrometheusRule")
    assert rule["spec"] == monitoring.rules("https://example.com/runbook")
    assert monitor["spec"]["selector"] == of(objects, "Deployment")[0]["spec"]["selector"]
    ports = {port["name"] for port in operator_container(objects)["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
    maps = [obj for obj in of(objects, "ConfigMap") if obj["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert json.loads(maps[0]["data"]["trainyard.json"]) == monitoring.dashboard()


def test_the_templates_depend_on_the_values_alone(plane: ControlPlane) -> None:
    """As `helm template` and Argo CD need it: no lookup, nothing random, no hook but that of `helm test`."""
    templates = [path.read_text() for path in Path(CHART, "templates").rglob("*") if path.is_file()]
    calls = {call for text in templates for call in re.findall(r"\b(lookup|rand\w+|genCA|uuidv4|now)\b", text)}
    assert calls == set()
    assert chart(plane, "cloud=gke", "chainerjob=true") == chart(plane, "cloud=gke", "chainerjob=true")
    assert {hook for text in templates for hook in re.findall(r"helm.sh/hook: (.*)", text)} == {"test"}


@pytest.mark.parametrize(
    "value",
    [
        "kinds={PodJob}",
        "log.format=xml",
        "podAntiAffinity=soft",
        "extraArgs={x}",
        "cloud=aws",
        "rbac.install=maybe",
        "replicas=-1",
        "rbac.instal=true",
    ],
)
def test_a_wrong_value_is_refused_by_its_path(plane: ControlPlane, value: str) -> None:
    completed = plane.run("helm", "template", "tf-job", CHART, "--set", value)
    assert completed.returncode != 0 and value.split("=", maxsplit=1)[0].split(".", maxsplit=1)[0] in completed.stderr


def test_helm_lints_installs_upgrades_and_rolls_back_and_jobs_stay(plane: ControlPlane) -> None:
    assert plane.run("helm", "lint", "--strict", CHART).returncode == 0
    plane.kubectl("create", "namespace", "helmed")
    for step in (
        ("install", "tf-job", CHART, "--set", "rbac.install=true,cloud=gke"),
        ("upgrade", "tf-job", CHART, "--set", "cloud=azure"),
    ):
        completed = plane.run("helm", *step, "-n", "helmed")
        assert completed.returncode == 0, completed.stderr
    job = ROOT / "examples" / "tf_job.yaml"
    plane.kubectl("create", "-n", "helmed", "-f", str(job))
    before = plane.kubectl("get", "tfjobs", "-n", "helmed", "-o", "jsonpath={.items[*].metadata.uid}")
    for command in (("rollback", "tf-job", "1"), ("uninstall", "tf-job")):
        completed = plane.run("helm", *command, "-n", "helmed")
        assert completed.returncode == 0, completed.stderr
    assert plane.kubectl("get", "tfjobs", "-n", "helmed", "-o", "jsonpath={.items[*].metadata.uid}") == before != ""


def test_the_job_of_helm_test_is_admitted_where_pod_security_is_restricted(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the pod that creates it is."""
    for name in ("JOB", "IMAGE", "SECONDS", "MY_POD_NAMESPACE"):
        monkeypatch.setenv(name, "1")
    job = runpy.run_path(str(Path(CHART, "files", "train.py")))["job"]()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}}
    pod["spec"] = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    plane.kubectl("create", "namespace", "tight")
    plane.kubectl("label", "namespace/tight", "pod-security.kubernetes.io/enforce=restricted")
    command = ("create", "-n", "tight", "--dry-run=server", "-f", "-")
    plane.wait_for("/api/v1/namespaces/tight/serviceaccounts/default")
    plane.kubectl(*command, stdin=to_yaml([pod]))


def test_a_config_map_that_was_there_first_is_used(plane: ControlPlane, tmp_path: Path) -> None:
    """The TfJob README: create the ConfigMap, then install without a cloud. The order matters."""
    config = tmp_path / installation.CONFIG_FILE
    config.write_text("accelerators: {}\n")
    plane.kubectl("create", "namespace", "ordered")
    plane.kubectl("create", "-n", "ordered", "configmap", "tf-job-operator-config", "--from-file", str(config))
    completed = plane.run("helm", "install", "own", CHART, "-n", "ordered", "--set", "name=own")
    assert completed.returncode == 0, completed.stderr
    document = yaml.safe_load(plane.kubectl("get", "-n", "ordered", "deployment", "own", "-o", "yaml"))
    assert (
        f"--controller-config-file={installation.CONFIG_FOLDER}/{installation.CONFIG_FILE}"
        in (document["spec"]["template"]["spec"]["containers"][0]["args"])
    )
    assert plane.run("helm", "uninstall", "own", "-n", "ordered").returncode == 0


def test_a_namespaced_installation_is_applied_and_has_no_permission_elsewhere(plane: ControlPlane) -> None:
    objects = installation.objects(Install(namespace="team-a", namespaced=True))
    plane.kubectl("apply", "-f", "-", stdin=to_yaml(objects))
    try:
        who = "--as=system:serviceaccount:team-a:trainyard-operator"
        until(
            lambda: plane.run("kubectl", "auth", "can-i", "create", "jobs", "-n", "team-a", who).stdout.strip(),
            "the API server knows the binding",
            accept=lambda answer: answer == "yes",
            pause=SLOW_PAUSE,
        )
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
    "admin": {*operator_rbac.USER_VERBS["edit"]},
    "edit": {*operator_rbac.USER_VERBS["edit"]},
    "view": {"get", "list", "watch"},
}


def may(plane: ControlPlane, user: str, verb: str, resource: str, subresource: str = "") -> bool:
    """Whether a user may do this in the namespace `shared`, by the API server's authorizer."""
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
        arguments = ("--clusterrole", role, "--user", role, "-n", "shared")
        plane.kubectl("create", "rolebinding", role, *arguments)
    assert not any(may(plane, role, "get", resources[0]) for role in MAY)
    USER_ROLES[way](plane)
    try:
        last = resources[-1]
        plane.wait_until(lambda: all(may(plane, role, "get", last) for role in MAY), "the roles were aggregated")
        for role, verbs in MAY.items():
            for resource in resources:
                assert {verb for verb in operator_rbac.USER_VERBS["edit"] if may(plane, role, verb, resource)} == verbs
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


def test_short_names_and_plurals_are_unique_in_kubernetes(plane: ControlPlane) -> None:
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
    completed = plane.run("helm", "package", str(tmp_path / "trainyard"), "-d", str(tmp_path))
    assert completed.returncode == 0 and list(tmp_path.glob("trainyard-*.tgz")), completed.stderr
