"""The objects that install the operator in a cluster: the output of `trainyard manifests`.

    objects(Install())  ->  definitions, users' roles, Namespace, ServiceAccount, roles, bindings, ConfigMap, Deployment

Rules for this file:
- Pure: values in, objects out. deploy/, config/ and charts/trainyard have these objects in files
  (tools/generate_manifests.py).
- The operator runs under the restricted Pod Security Standard: no root, no capabilities, a read-only file system.
- The kinds of an installation determine its definitions, its permissions, and the operator's --kinds.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import yaml

from trainyard import __version__, kinds
from trainyard.app.install import operator_rbac
from trainyard.core import Kind
from trainyard.objects import Json

LEASE_NAMESPACE = "default"  # the default of `trainyard operator --lease-namespace`
CONFIG_MAP = "tf-job-operator-config"  # the name in the TfJob README
CONFIG_FILE = "controller_config_file.yaml"
CONFIG_FOLDER = "/etc/trainyard"
CONFIG = "# What nodes with accelerators offer to the pods that ask for them: see docs/install.md\naccelerators: {}\n"
IMAGE = f"trainyard/operator:{__version__}"
PORT = 8080
USER = 65532
CORE, RBAC = "v1", "rbac.authorization.k8s.io/v1"


def _volume(name: str, mount_path: str, host_path: str) -> Json:
    """A folder of the node at `host_path`, mounted into pods at `mount_path`."""
    return {"name": name, "mountPath": mount_path, "hostPath": host_path}


_GPU = "alpha.kubernetes.io/nvidia-gpu"
_AZURE = "/usr/lib/nvidia-384"
_LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
CLOUDS: dict[str, Json] = {
    "gke": {
        _GPU: {
            "volumes": [
                _volume("nvidia-libraries", "/usr/local/nvidia/lib64", "/home/kubernetes/bin/nvidia/lib"),
                _volume("nvidia-debug-tools", "/usr/local/bin/nvidia", "/home/kubernetes/bin/nvidia/bin"),
            ]
        }
    },
    "azure": {
        _GPU: {
            "volumes": [
                _volume("lib", "/usr/lib/nvidia", _AZURE),
                _volume("bin", "/usr/local/nvidia/bin", f"{_AZURE}/bin"),
                _volume("libcuda", _LIBCUDA, _LIBCUDA),
            ],
            "envVars": [{"name": "LD_LIBRARY_PATH", "value": "/usr/lib/nvidia:/usr/lib/x86_64-linux-gnu"}],
        }
    },
}
"""The accelerators of the old chart, by cloud."""


def config_of(cloud: str) -> str:
    """The text of the controller config file for that cloud."""
    return str(yaml.safe_dump({"accelerators": CLOUDS[cloud]}, sort_keys=False))


class Names(msgspec.Struct, frozen=True):
    """The names of the objects of an installation."""

    operator: str = "trainyard-operator"  # Deployment and ServiceAccount
    role: str = "trainyard-operator"
    binding: str = "trainyard-operator"
    lease_role: str = "trainyard-leader-election"
    lease_binding: str = "trainyard-leader-election"


class Install(msgspec.Struct, frozen=True):
    """One installation. `namespaced`: it serves its own namespace only, with Roles instead of ClusterRoles."""

    namespace: str = "trainyard"
    kinds: tuple[Kind, ...] = operator_rbac.DEFAULT
    namespaced: bool = False
    names: Names = msgspec.field(default_factory=Names)
    image: str = IMAGE
    replicas: int = 1
    config: str = CONFIG

    @property
    def subject(self) -> Json:
        """The ServiceAccount of the operator, as a subject of role bindings."""
        return {"kind": "ServiceAccount", "name": self.names.operator, "namespace": self.namespace}


def objects(install: Install) -> list[Json]:
    """All objects of the installation, in an order in which they can be created."""
    return [*lasting_objects(install), *operator_objects(install)]


def lasting_objects(install: Install) -> list[Json]:
    """The definitions with their admission policies, the users' roles and the namespace: an uninstall keeps them.
    Deleting definitions or namespace deletes jobs, and without the roles users could not read the jobs that stay."""
    namespaces = [namespace(install)] if install.namespace != "default" else []
    policies = [policy for kind in install.kinds for policy in kind.api.admission_policies()]
    return [*definitions(install.kinds), *policies, *user_roles(), *namespaces]


def operator_objects(install: Install) -> list[Json]:
    """The operator and its permissions: the objects that an uninstall deletes. Jobs and their children stay."""
    return [*access(install), config_map(install), deployment(install)]


def shipped_objects(install: Install) -> list[Json]:
    """What comes with the kinds: for TrainJob the runtimes that Trainer ships, and the ConfigMap that its SDK reads.
    The API server must serve the definitions already."""
    return [obj for kind in install.kinds for _, obj in kinds.shipped_objects(kind)]


def definitions(chosen: Iterable[Kind]) -> list[Json]:
    """A CustomResourceDefinition for each kind and API group."""
    return [*kinds.crds(kinds.per_api_group(chosen))]


def user_roles() -> list[Json]:
    """ClusterRoles that add rights on jobs to `admin`, `edit` and `view` of Kubernetes, and of the Kubeflow platform.

    They name all kinds, whatever an operator serves: two installations in one cluster have the same roles. Nothing is
    granted to anyone who is not bound to one of the three.
    """
    roles = []
    for name, verbs in operator_rbac.USER_VERBS.items():
        role = _object(RBAC, "ClusterRole", f"trainyard-{name}")
        role["metadata"]["labels"] |= aggregation_labels(name)
        roles.append(role | {"rules": operator_rbac.rules(operator_rbac.user_permissions(kinds.KINDS, verbs))})
    return roles


def aggregation_labels(name: str) -> dict[str, str]:
    """The labels of a ClusterRole whose rules belong to the ClusterRole `edit` (then to `admin`, too) or `view`."""
    targets = ("admin", name) if name == "edit" else (name,)
    kubernetes = {f"rbac.authorization.k8s.io/aggregate-to-{target}": "true" for target in targets}
    kubeflow = {f"rbac.authorization.kubeflow.org/aggregate-to-kubeflow-{target}": "true" for target in targets}
    return {**kubernetes, **kubeflow}


def namespace(install: Install) -> Json:
    """The Namespace of the operator."""
    return _object(CORE, "Namespace", install.namespace)


def access(install: Install) -> list[Json]:
    """The ServiceAccount, its roles and bindings. The permissions for kinds whose jobs have Roles of their own are in
    a separate role: remove it to opt out."""
    names = install.names
    access_objects = [_object(CORE, "ServiceAccount", names.operator, install.namespace)]
    for suffix, granted in (
        ("", operator_rbac.default_permissions(install.kinds)),
        ("-jobs-with-roles", operator_rbac.opt_in_permissions(install.kinds)),
    ):
        if granted:
            access_objects += _role_and_binding(
                install, (f"{names.role}{suffix}", f"{names.binding}{suffix}"), operator_rbac.rules(granted)
            )
    lease = (f"{install.namespace}-{names.lease_role}", f"{install.namespace}-{names.lease_binding}")
    return [*access_objects, *_role_and_binding(install, lease, operator_rbac.lease_rules(), LEASE_NAMESPACE)]


def _role_and_binding(install: Install, names: tuple[str, str], rules: list[Json], namespace: str = "") -> list[Json]:
    """A role with these rules, and its binding to the operator's ServiceAccount: in `namespace`, else where the
    installation serves."""
    scope = namespace or (install.namespace if install.namespaced else "")
    prefix = "" if scope else "Cluster"
    role = _object(RBAC, f"{prefix}Role", names[0], scope) | {"rules": rules}
    binding = _object(RBAC, f"{prefix}RoleBinding", names[1], scope)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": names[0]}
    return [role, binding | {"roleRef": reference, "subjects": [install.subject]}]


def config_map(install: Install) -> Json:
    """The ConfigMap with the controller config file."""
    return _object(CORE, "ConfigMap", CONFIG_MAP, install.namespace) | {"data": {CONFIG_FILE: install.config}}


def deployment(install: Install) -> Json:
    """The Deployment of the operator. A second replica waits for the lease, as does any other operator of the same
    jobs."""
    labels = {"app": install.names.operator}
    pod = {
        "serviceAccountName": install.names.operator,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 10,
        "containers": [_container(install)],
        "volumes": [{"name": "config", "configMap": {"name": CONFIG_MAP, "optional": True}}],
    }
    spec = {
        "replicas": install.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", install.names.operator, install.namespace) | {"spec": spec}


def arguments(install: Install) -> list[str]:
    """The arguments of `trainyard operator`."""
    return [
        f"--kinds={','.join(kind.gvk.kind for kind in install.kinds)}",
        *([f"--namespace={install.namespace}"] if install.namespaced else []),
        "--leader-elect",
        f"--metrics-bind-address=:{PORT}",
        f"--controller-config-file={CONFIG_FOLDER}/{CONFIG_FILE}",
        "--optional-controller-config",
    ]


def _container(install: Install) -> Json:
    return {
        "name": "operator",
        "image": install.image,
        "command": ["trainyard", "operator"],
        "args": arguments(install),
        "env": [
            _env_from_field("MY_POD_NAMESPACE", "metadata.namespace"),
            _env_from_field("MY_POD_NAME", "metadata.name"),
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=3, initialDelaySeconds=5),
        "readinessProbe": _probe("/readyz", periodSeconds=5),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}],
    }


def _probe(path: str, **times: int) -> Json:
    return {"httpGet": {"path": path, "port": "metrics"}, **times}


def _env_from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Json:
    meta = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {"app.kubernetes.io/part-of": "trainyard"},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}
