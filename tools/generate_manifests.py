"""Writes the generated parts of deploy/, config/ and charts/trainyard, an example and docs/rbac.md: `make manifests`.

Rules for this file:
- Every object comes from app/install/installation.py; here is only which file it stands in, and what it is called
  there.
- Definitions and namespaces stand in files of their own: with them every job would go. What stands beside them is the
  operator, and deleting it removes no job.
- The four are one operator under the names of the documents that print their commands. A cluster takes one of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools import monitoring
from tools.rbac_page import page
from trainyard import kinds
from trainyard.app.install import installation, operator_rbac
from trainyard.app.install.installation import Install, Names
from trainyard.cli.install_manifests import to_yaml as as_documents
from trainyard.cli.output.printing import as_yaml
from trainyard.core import Kind
from trainyard.objects import Json

ROOT = Path(__file__).parents[1]
HEAD = "# Written by `make manifests`.\n"

DEPLOY = Install(
    namespace="chainer-operator",
    kinds=tuple(kind for kind in kinds.KINDS if kind.api.installed_by_default),
    names=Names(
        operator="chainer-operator",
        role="chainer-operator",
        binding="chainer-operator",
        lease_role="leader-election-role",
        lease_binding="leader-election-rolebinding",
    ),
)
"""`kubectl create -f deploy/definitions/ -f deploy/`, of the ChainerJob README: its kind and the other three."""

CONFIG = Install(
    namespace="elastic-job",
    names=Names(
        operator="elastic-job-k8s-controller",
        role="elastic-job-k8s-controller-role",
        binding="elastic-job-k8s-controller-rolebinding",
        lease_role="leader-election-role",
        lease_binding="leader-election-rolebinding",
    ),
)
"""`kubectl apply -k config/default`, of the ElasticJob README: the kinds that need nothing sensitive."""

MXNET = Install(
    namespace="default",
    kinds=(kinds.MXJOB,),
    names=Names(
        operator="mx-job-operator",
        role="mx-job-operator",
        binding="mx-job-operator",
        lease_role="mx-job-operator-leader-election",
        lease_binding="mx-job-operator-leader-election",
    ),
)
"""`kubectl create -f examples/mx_operator_deploy.yaml`, of the MxJob README: its kind alone."""


def written(root: Path = ROOT) -> dict[Path, str]:
    """Every generated file as it should be."""
    whole = {
        "examples/mx_operator_definitions.yaml": _documents(installation.lasting_objects(MXNET)),
        "examples/mx_operator_deploy.yaml": _documents(installation.operator_objects(MXNET)),
    }
    texts = {**_deploy(), **_config(), **_chart(), **_monitoring(), **whole, "docs/rbac.md": page()}
    return {root / path: text for path, text in texts.items()}


def _deploy() -> dict[str, str]:
    return {
        "deploy/definitions/crd.yaml": _documents(installation.definitions(DEPLOY.kinds)),
        "deploy/definitions/namespace.yaml": _documents([installation.namespace(DEPLOY)]),
        "deploy/definitions/user-roles.yaml": _documents(installation.user_roles()),
        "deploy/1-rbac.yaml": _documents(installation.access(DEPLOY)),
        "deploy/2-operator.yaml": _documents([installation.config_map(DEPLOY), installation.deployment(DEPLOY)]),
    }


def _config() -> dict[str, str]:
    return {
        "config/definitions/crd.yaml": _documents(installation.definitions(CONFIG.kinds)),
        "config/definitions/namespace.yaml": _documents([installation.namespace(CONFIG)]),
        "config/definitions/user-roles.yaml": _documents(installation.user_roles()),
        "config/definitions/kustomization.yaml": _kustomization("crd.yaml", "user-roles.yaml", "namespace.yaml"),
        "config/rbac/rbac.yaml": _documents(installation.access(CONFIG)),
        "config/rbac/kustomization.yaml": _kustomization("rbac.yaml"),
        "config/operator/operator.yaml": _documents([installation.config_map(CONFIG), installation.deployment(CONFIG)]),
        "config/operator/kustomization.yaml": _kustomization("operator.yaml"),
        "config/default/kustomization.yaml": _kustomization("../rbac", "../operator"),
    }


def _chart() -> dict[str, str]:
    """What templates cannot say: definitions, rules, and the accelerators of clouds."""
    texts = {
        f"charts/trainyard/crds/{definition['metadata']['name']}.yaml": _documents([definition])
        for definition in installation.definitions(DEPLOY.kinds)
    }
    rules = {
        **{f"user-{role['metadata']['name'].rpartition('-')[2]}": role["rules"] for role in installation.user_roles()},
        "operator": operator_rbac.rules(operator_rbac.default_permissions(operator_rbac.DEFAULT)),
        "chainerjob": operator_rbac.rules(operator_rbac.opt_in_permissions([kinds.CHAINERJOB])),
        "lease": operator_rbac.lease_rules(),
    }
    rules |= {_resource(kind): operator_rbac.rules(operator_rbac.permissions_of(kind)) for kind in kinds.KINDS}
    table = {
        "order": [kind.gvk.kind for kind in kinds.KINDS],
        "default": [kind.gvk.kind for kind in operator_rbac.DEFAULT],
        "optIn": [kind.gvk.kind for kind in kinds.KINDS if operator_rbac.is_opt_in(kind)],
        "kinds": {kind.gvk.kind: _resource(kind) for kind in kinds.KINDS},
    }
    texts["charts/trainyard/generated/kinds.yaml"] = HEAD + as_yaml(table)
    for name, listed in rules.items():
        texts[f"charts/trainyard/generated/rules-{name}.yaml"] = HEAD + as_yaml(listed)
    for cloud in installation.CLOUDS:
        texts[f"charts/trainyard/generated/cloud-{cloud}.yaml"] = HEAD + installation.config_of(cloud)
    return texts


def _resource(kind: Kind) -> str:
    return f"{kind.gvk.plural}.{kind.gvk.group}"


def _monitoring() -> dict[str, str]:
    """Alerts, dashboard and PodMonitor, for `kubectl apply -f deploy/monitoring/` and for the chart."""
    dashboard = json.dumps(monitoring.dashboard(), indent=1) + "\n"
    rule = monitoring.prometheus_rule(DEPLOY.namespace)
    return {
        "deploy/monitoring/alerts.yaml": _documents([rule]),
        "deploy/monitoring/pod-monitor.yaml": _documents(
            [monitoring.pod_monitor(DEPLOY.namespace, DEPLOY.names.operator)]
        ),
        "deploy/monitoring/grafana/dashboard.json": dashboard,
        "charts/trainyard/generated/alerts.yaml": HEAD + as_yaml(monitoring.rules("RUNBOOK")),
        "charts/trainyard/generated/dashboard.json": dashboard,
    }


def _documents(objects: list[Json]) -> str:
    return HEAD + as_documents(objects)


def _kustomization(*resources: str) -> str:
    api_version = "kustomize.config.k8s.io/v1beta1"
    return HEAD + as_yaml({"apiVersion": api_version, "kind": "Kustomization", "resources": list(resources)})


def write(root: Path = ROOT) -> None:
    for path, text in written(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:2]))
