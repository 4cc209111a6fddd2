"""The files of deploy/, config/ and charts/trainyard are what the code says, and hold what an installation must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.control_plane_build import find_kubectl
from tools import generate_manifests
from tools.generate_manifests import ROOT
from trainyard import kinds
from trainyard.app.config import parse_config
from trainyard.app.install import installation, operator_rbac
from trainyard.app.install.installation import Install
from trainyard.app.operating import parse_address, parse_kinds
from trainyard.cli.operator import operator
from trainyard.core import Kind
from trainyard.objects import Json
from trainyard.objects.resources import NATIVE_POD_GROUP
from trainyard.server.auth import rbac

pytestmark = pytest.mark.slow

ANNOTATION = 262144  # bytes of all annotations of an object: client-side `kubectl apply` keeps a copy there
OF_KUBERNETES = {
    *("all", "cm", "cs", "ep", "ev", "limits", "ns", "no", "pvc", "pv", "po", "rc", "quota", "sa", "svc", "crd"),
    *("crds", "deploy", "ds", "rs", "sts", "hpa", "cj", "csr", "ing", "netpol", "pdb", "pc", "sc", "vac", "jobs"),
}


def by_kind(objects: list[Json], kind: str) -> list[Json]:
    return [obj for obj in objects if obj["kind"] == kind]


def named(objects: list[Json]) -> dict[tuple[str, str], Json]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def printed(*arguments: str) -> list[Json]:
    command = [sys.executable, "-m", "trainyard", "manifests", *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    return [document for document in yaml.load_all(completed.stdout, Loader=yaml.CSafeLoader) if document]


def test_the_manifest_files_are_generated_from_the_code() -> None:
    written = generate_manifests.written()
    assert {path: path.read_text() for path in written} == written, "run `make manifests`"
    folders = [ROOT / name for name in ("deploy", "config/definitions", "config/rbac", "config/operator")]
    folders += [
        ROOT / "charts/trainyard/crds",
        ROOT / "charts/trainyard/generated",
    ]
    assert {path for folder in folders for path in folder.rglob("*") if path.is_file()} <= set(written)


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: f"{kind.gvk.plural}.{kind.gvk.group}")
def test_a_definition_is_small_enough_for_client_side_apply(kind: Kind) -> None:
    assert len(json.dumps(kinds.crd(kind))) < ANNOTATION - 1024


def test_three_kinds_need_at_most_45_permissions_and_none_that_is_sensitive() -> None:
    """Beside those on the PodGroups of Kubernetes, which --gang-scheduler-name=native makes."""
    three = (kinds.TFJOB, kinds.MXJOB, kinds.ELASTICJOB)
    groups = {
        (f"{NATIVE_POD_GROUP.plural}.{NATIVE_POD_GROUP.group}", verb)
        for verb in ("list", "watch", "create", "patch", "delete")
    }
    pairs = operator_rbac.resource_verb_pairs(three)
    assert groups <= pairs and len(pairs - groups) <= 45
    held = operator_rbac.default_permissions(kinds.KINDS)
    parts = {part for permission in held for part in permission}
    assert not any("*" in part for part in parts)
    assert not parts & {"secrets", "pods/exec", "roles", "rolebindings", "clusterroles", "serviceaccounts", "escalate"}
    assert {kind.gvk.kind for kind in kinds.KINDS if operator_rbac.is_opt_in(kind)} == {
        "ChainerJob",
        "MPIJob",
        "TrainJob",
    }


def test_the_rbac_rules_are_exactly_the_permissions() -> None:
    held = operator_rbac.default_permissions(kinds.KINDS) | operator_rbac.opt_in_permissions(kinds.KINDS)
    listed = [
        operator_rbac.Permission(group, resource, verb)
        for rule in operator_rbac.rules(held)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert len(listed) == len(set(listed)) and set(listed) == held


def test_without_any_of_the_granted_rights_the_role_of_a_chainer_job_could_not_be_made() -> None:
    granted = [
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": ["a-0"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a-0"]},
    ]
    held = operator_rbac.permissions_of(kinds.CHAINERJOB)
    assert rbac.missing_rules(operator_rbac.rules(held), granted) == []
    for permission in operator_rbac.JOB_GRANTS["ChainerJob"]:
        assert rbac.missing_rules(operator_rbac.rules(held - {operator_rbac.Permission(*permission)}), granted)


def test_manifests_prints_the_objects_of_an_installation() -> None:
    assert printed() == installation.objects(Install())
    assert [obj["kind"] for obj in printed()] == [
        *["CustomResourceDefinition"] * len(kinds.per_api_group(operator_rbac.DEFAULT)), *["ClusterRole"] * 2,
        "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
        "Role", "RoleBinding", "ConfigMap", "Deployment",
    ]  # fmt: skip


def test_the_operator_of_a_namespaced_installation_has_no_cluster_wide_permission() -> None:
    objects = printed("--namespace", "team-a", "--namespaced", "--kinds", "all")
    rest = printed("--namespace", "team-a", "--namespaced", "--kinds", "all", "--part", "operator")
    assert [obj for obj in objects if obj not in rest] == installation.lasting_objects(
        Install(namespace="team-a", namespaced=True, kinds=kinds.KINDS)
    )
    assert {obj["metadata"].get("namespace") for obj in rest} == {"team-a", installation.LEASE_NAMESPACE}
    shared = [obj for obj in rest if obj["metadata"]["namespace"] == installation.LEASE_NAMESPACE]
    assert {(obj["kind"], obj["metadata"]["name"]) for obj in shared} == {
        ("Role", "team-a-trainyard-leader-election"),
        ("RoleBinding", "team-a-trainyard-leader-election"),
    }
    assert (
        "--namespace=team-a" in by_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    )


def test_the_permissions_of_chainer_jobs_are_separate() -> None:
    objects = printed("--kinds", "all", "--part", "operator")
    roles = {role["metadata"]["name"]: role["rules"] for role in by_kind(objects, "ClusterRole")}
    assert roles["trainyard-operator"] == operator_rbac.rules(operator_rbac.default_permissions(kinds.KINDS))
    assert set(roles) == {"trainyard-operator", "trainyard-operator-jobs-with-roles"}


def test_every_binding_leads_from_its_role_to_the_account_of_the_deployment() -> None:
    for install in (Install(), Install(namespaced=True), generate_manifests.DEPLOY, generate_manifests.CONFIG):
        objects = installation.objects(install)
        account = by_kind(objects, "ServiceAccount")[0]["metadata"]
        names = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
        for binding in by_kind(objects, "ClusterRoleBinding") + by_kind(objects, "RoleBinding"):
            assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in names
            subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
            assert binding["subjects"] == [subject]
        spec = by_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == account["name"]


def test_the_operator_is_restricted() -> None:
    pod = installation.deployment(Install())["spec"]["template"]["spec"]
    assert (
        pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    for container in pod["containers"]:
        secure = container["securityContext"]
        assert secure["readOnlyRootFilesystem"] and not secure["allowPrivilegeEscalation"]
        assert secure["capabilities"] == {"drop": ["ALL"]}


def test_the_documents_find_their_namespaces() -> None:
    assert (
        by_kind(installation.objects(generate_manifests.DEPLOY), "Namespace")[0]["metadata"]["name"]
        == "chainer-operator"
    )
    assert by_kind(installation.objects(generate_manifests.CONFIG), "Namespace")[0]["metadata"]["name"] == "elastic-job"


def test_kustomize_puts_together_the_same_objects() -> None:
    kubectl = find_kubectl()
    if kubectl is None:
        pytest.skip("kubectl is not on PATH; install it, or run make control-plane, which builds one")
    documents: list[Json] = []
    for folder in ("definitions", "default"):
        command = [str(kubectl), "kustomize", str(ROOT / "config" / folder)]
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
        documents += [document for document in yaml.load_all(completed.stdout, Loader=yaml.CSafeLoader) if document]
    assert named(documents) == named(installation.objects(generate_manifests.CONFIG))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kinds", "RayJob"), "write some of TfJob, MxJob, ChainerJob, ElasticJob, TFJob,"),
        (("--kinds", ","), "names no kind"),
        (("--namespace", "Team_A"), "not a legal namespace"),
    ],
)
def test_an_invalid_option_is_answered_with_the_valid_ones(arguments: tuple[str, ...], message: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "trainyard", "manifests", *arguments], capture_output=True, text=True
    )
    assert completed.returncode == 2 and message in " ".join(completed.stderr.split())


def test_the_pod_monitor_selects_the_operator_of_the_same_files() -> None:
    (monitor,) = yaml.safe_load_all((ROOT / "deploy/monitoring/pod-monitor.yaml").read_text())
    deployment = installation.deployment(generate_manifests.DEPLOY)
    assert monitor["spec"]["selector"] == deployment["spec"]["selector"]
    assert monitor["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= {port["name"] for port in ports}


UNINSTALLED = {
    "kubectl delete -f deploy/": ["deploy/1-rbac.yaml", "deploy/2-operator.yaml"],
    "kubectl delete -k config/default": ["config/rbac/rbac.yaml", "config/operator/operator.yaml"],
    "kubectl delete -f examples/mx_operator_deploy.yaml": ["examples/mx_operator_deploy.yaml"],
}


@pytest.mark.parametrize("command", UNINSTALLED)
def test_the_objects_of_an_uninstall_include_no_crd_and_no_namespace(command: str) -> None:
    """With either every job of the cluster or of the namespace would go."""
    files = [ROOT / name for name in UNINSTALLED[command]]
    if command.endswith("deploy/"):
        assert [path for path in sorted((ROOT / "deploy").iterdir()) if path.is_file()] == files
    objects = [
        document for file in files for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader) if document
    ]
    assert not {obj["kind"] for obj in objects} & {"CustomResourceDefinition", "Namespace"}
    assert by_kind(objects, "Deployment")


def test_manifests_prints_the_part_that_an_uninstall_deletes() -> None:
    parts = [printed("--part", part) for part in ("definitions", "operator")]
    assert parts[0] == installation.lasting_objects(Install())
    assert parts[0] + parts[1] == printed()


def test_resource_names_are_unique() -> None:
    known_names: set[str] = set()
    for kind in kinds.KINDS:
        names = {kind.gvk.plural, kind.api.singular, *kind.api.short_names}
        assert kinds.shares_name(kind) == bool(names & known_names) and not names & OF_KUBERNETES
        known_names |= names
        assert set(kind.api.categories) <= {"all"}


def test_the_files_name_no_place_of_this_machine() -> None:
    for path, text in generate_manifests.written().items():
        assert str(Path.home()) not in text, path


@pytest.mark.parametrize(
    "install", [Install(), Install(namespaced=True), generate_manifests.DEPLOY, generate_manifests.CONFIG]
)
def test_the_operator_accepts_the_arguments_of_the_deployment(install: Install) -> None:
    context = operator.make_context("operator", installation.arguments(install))
    assert parse_kinds(context.params["served"]) == kinds.per_api_group(install.kinds)
    assert context.params["namespace"] == (install.namespace if install.namespaced else "")
    assert parse_address(context.params["bind"]) == ("", installation.PORT)
    assert context.params["leader_elect"] and context.params["lease_namespace"] == installation.LEASE_NAMESPACE


@pytest.mark.parametrize("cloud", installation.CLOUDS)
def test_the_operator_takes_the_config_of_every_cloud(cloud: str) -> None:
    for text in (installation.config_of(cloud), installation.CONFIG):
        parsed = parse_config(text, "config")
        assert parsed.warnings == []
    assert parse_config(installation.config_of(cloud), "config").accelerators == installation.CLOUDS[cloud]


def test_the_runtimes_are_printed_alone_and_only_for_train_jobs() -> None:
    kinds_of_objects = [obj["kind"] for obj in printed("--kinds", "trainjob", "--part", "runtimes")]
    assert kinds_of_objects.count("ClusterTrainingRuntime") == 8 and kinds_of_objects[0] == "Namespace"
    with pytest.raises(subprocess.CalledProcessError) as refused:
        printed("--part", "runtimes")
    assert refused.value.returncode == 2 and "add --kinds TrainJob" in refused.value.stderr
